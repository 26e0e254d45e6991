//! The fence and the rows of one holder on three replicas. As in [`crate::store::replicas`] a write
//! reaches a replica just before a reader can tell, and replicas have no names.

/// How many there are, and how many are a quorum.
const REPLICAS: usize = 3;
const QUORUM: usize = 2;

/// What a replica has; merging it with another's is what a read does with its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Data {
    pub(super) fence: Option<i64>,
    /// The stamp of the `entering::` row, and whether it is deleted, which wins where stamps are
    /// equal.
    entering: (i64, bool),
    pub(super) is_revoked: bool,
}

/// A write, which may reach a replica at any moment once it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Write {
    Fence(i64),
    Entering(i64),
    Removal(i64),
    Revocation,
}

/// What a read asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Fence,
    Rows,
}

/// A read under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reading {
    asked: Asked,
    answers: usize,
    seen: Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Replica {
    data: Data,
    /// Those whose reads it has answered. Each is a bit.
    answered: u8,
}

/// Three replicas, and what is under way to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replicas {
    replicas: [Replica; REPLICAS],
    under_way: Vec<Write>,
    readings: [Option<Reading>; 2],
}

/// A replica answers, after these writes under way have reached it. Each is a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    replica: usize,
    after: u16,
}

impl Data {
    const NOTHING: Data = Data { fence: None, entering: (0, true), is_revoked: false };

    /// Whether there is an `entering::` row.
    pub(super) fn is_present(&self) -> bool {
        !self.entering.1
    }

    fn merge(&mut self, other: Data) {
        self.fence = self.fence.max(other.fence);
        self.entering = self.entering.max(other.entering);
        self.is_revoked |= other.is_revoked;
    }

    fn part(self, asked: Asked) -> Self {
        match asked {
            Asked::Fence => Data { fence: self.fence, ..Data::NOTHING },
            Asked::Rows => Data { fence: None, ..self },
        }
    }
}

impl Write {
    fn data(self) -> Data {
        match self {
            Write::Fence(value) => Data { fence: Some(value), ..Data::NOTHING },
            Write::Entering(stamp) => Data { entering: (stamp, false), ..Data::NOTHING },
            Write::Removal(stamp) => Data { entering: (stamp, true), ..Data::NOTHING },
            Write::Revocation => Data { is_revoked: true, ..Data::NOTHING },
        }
    }
}

impl Replica {
    fn takes(&mut self, write: Write) {
        self.data.merge(write.data());
    }

    fn is_changed_by(&self, write: Write) -> bool {
        let mut after = *self;
        after.takes(write);
        after != *self
    }
}

impl Replicas {
    /// A quorum has this write, and the last replica may get it.
    pub(super) fn with(write: Write) -> Self {
        let nothing = Replica { data: Data::NOTHING, answered: 0 };
        let mut replicas = [nothing; REPLICAS];
        replicas[..QUORUM].iter_mut().for_each(|replica| replica.takes(write));
        let mut replicas = Replicas { replicas, under_way: vec![write], readings: [None; 2] };
        replicas.tidy();
        replicas
    }

    pub(super) fn send(&mut self, write: Write) {
        self.under_way.push(write);
    }

    /// The sets of replicas that may get a write for it to be acknowledged. Each is a bit.
    pub(super) fn acknowledgements(&self, write: Write) -> Vec<u8> {
        let lacks = |i: &usize| self.replicas[*i].is_changed_by(write);
        let lacking = (0..REPLICAS).filter(lacks).fold(0_u8, |set, i| set | 1 << i);
        let missing = QUORUM.saturating_sub(REPLICAS - lacking.count_ones() as usize);
        let sets = (0..=lacking).filter(|set| set & !lacking == 0);
        sets.filter(|set| set.count_ones() as usize == missing).collect()
    }

    pub(super) fn acknowledge(&mut self, write: Write, reached: u8) {
        for i in (0..REPLICAS).filter(|i| reached & (1 << i) != 0) {
            self.replicas[i].takes(write);
        }
        self.tidy();
    }

    pub(super) fn begin_read(&mut self, reader: usize, asked: Asked) {
        self.readings[reader] = Some(Reading { asked, answers: 0, seen: Data::NOTHING });
    }

    /// All ways in which a read can get on.
    pub(super) fn answers(&self, reader: usize) -> Vec<Answer> {
        let Some(reading) = self.readings[reader] else { return Vec::new() };
        let mut answers = Vec::new();
        for (replica, had) in self.replicas.iter().enumerate() {
            let known = self.replicas[..replica].contains(had);
            if known || had.answered & (1 << reader) != 0 {
                continue;
            }
            let noticed = self.under_way.iter().enumerate().filter(|(_, write)| {
                let asked = write.data().part(reading.asked) != Data::NOTHING;
                asked && had.is_changed_by(**write)
            });
            let noticed = noticed.fold(0_u16, |set, (i, _)| set | 1 << i);
            let sets = (0..=noticed).filter(|set| set & !noticed == 0);
            answers.extend(sets.map(|after| Answer { replica, after }));
        }
        answers
    }

    /// A replica answers; what the read shows, once a quorum has answered.
    pub(super) fn answer(&mut self, reader: usize, answer: Answer) -> Option<Data> {
        let Answer { replica, after } = answer;
        let reached = self.under_way.iter().enumerate().filter(|(i, _)| after & (1 << i) != 0);
        for (_, write) in reached {
            self.replicas[replica].takes(*write);
        }
        self.replicas[replica].answered |= 1 << reader;
        let reading = self.readings[reader].as_mut().expect("a read was sent before its answer");
        reading.answers += 1;
        reading.seen.merge(self.replicas[replica].data.part(reading.asked));
        let seen = reading.seen;
        let shown = (reading.answers == QUORUM).then_some(seen);
        if shown.is_some() {
            self.readings[reader] = None;
            self.replicas.iter_mut().for_each(|replica| replica.answered &= !(1 << reader));
        }
        self.tidy();
        shown
    }

    /// Brings equal states to one form.
    fn tidy(&mut self) {
        let replicas = &mut self.replicas;
        self.under_way.retain(|write| replicas.iter().any(|replica| replica.is_changed_by(*write)));
        self.under_way.sort_unstable();
        self.under_way.dedup();
        replicas.sort_unstable();
    }
}
