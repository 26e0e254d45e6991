//! What a run is made of, drawn from its seed.

use std::fmt;
use std::mem;
use std::time::Duration;

use bakery_lock::testing::{Conditions, Cut, Replicas, Weather};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How many replicas there are.
pub(crate) const REPLICAS: usize = 3;

/// How far clocks may differ; a client on the memory store takes this for the bound.
pub(crate) const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// How late a write may come to the table.
pub(crate) const TIME_IN_FLIGHT: Duration = Duration::from_secs(15);

/// Some tasks want this much more than the TTL of their client.
pub(crate) const MORE_TTL: Duration = Duration::from_secs(2);

/// So far a process may run ahead of another one that can send it a message: what arrives meanwhile
/// comes this much later.
pub(crate) const LATE_TO_RUN: Duration = Duration::from_millis(5);

/// More dead rows than a run has.
pub(crate) const NO_SWEEPS: usize = 1_000;

/// In µs.
const HOUR: i64 = 3_600_000_000;

const HOURS_OF_A_YEAR: i64 = 365 * 24;

/// When the faults end, unless a plan is cut short.
const HEALED: Duration = Duration::from_secs(16);

/// What a run is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Which promise to the lock is broken on purpose.
    pub(crate) breach: Breach,
    /// What becomes of each message follows from this, and what each task draws.
    pub(crate) chance: u64,
    /// When the faults end.
    pub(crate) healed: Duration,
    pub(crate) replicas: Replicas,
    pub(crate) conditions: Conditions,
    /// How messages between clients fare.
    pub(crate) weather: Weather,
    /// With more dead rows than this a read warns of them, and clients sweep.
    pub(crate) many_dead: usize,
    /// Whether replicas write and read in one round trip.
    pub(crate) exchanges: bool,
    /// What is locked.
    pub(crate) objects: Vec<String>,
    /// How tasks want to hold, for each of these.
    pub(crate) mixes: Vec<Mix>,
    pub(crate) machines: Vec<MachinePlan>,
    /// What is done to the world, and when.
    pub(crate) deeds: Vec<(Duration, Deed)>,
}

/// How tasks want to hold an object, other than alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mix {
    /// Some share it.
    pub(crate) shared: bool,
    /// Some want it as a limited number, which this is.
    pub(crate) max_holders: Option<u32>,
    /// Every second client wants it as one more than that.
    pub(crate) other_limit: bool,
    /// Some that want it alone want it to stay taken for a while.
    pub(crate) min_hold: bool,
}

/// A process that uses the library.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MachinePlan {
    pub(crate) ttl: Duration,
    /// How many tasks want locks.
    pub(crate) workers: usize,
    /// How often each of them does, while there are faults.
    pub(crate) visits: usize,
    /// The longest pause between two visits, in ms.
    pub(crate) idle: u64,
    /// By how many µs its wall clock is off.
    pub(crate) wall_error: i64,
    /// Whether its tasks use a place in turn.
    pub(crate) turns: bool,
    /// Whether it takes turns of other clients that do, and lets them take turns of it.
    pub(crate) peers: bool,
    /// Whether its tasks stay for long now and then, and draw tokens up to the end.
    pub(crate) lingers: bool,
}

/// Something that is done to the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deed {
    /// Cuts a machine off a replica, or ends that.
    Cut { machine: usize, replica: usize, cut: Cut },
    /// Cuts a machine off another one that takes turns, or all of them, or ends that.
    CutOff { machine: usize, other: Option<usize>, cut_off: bool },
    /// Makes a replica slower by this many ms.
    Slow { replica: usize, by: u64 },
    /// Stops a replica; it forgets what it was told during the last while.
    Crash { replica: usize, forgets: Duration },
    /// Lets it continue.
    Start { replica: usize },
    /// Stops the process of a machine.
    Pause { machine: usize },
    /// Lets it continue.
    Resume { machine: usize },
    /// Kills the process of a machine.
    Kill { machine: usize },
    /// Starts it again, once it was killed or shut down.
    Restart { machine: usize },
    /// Sets the wall clock of a machine.
    Step { machine: usize, wall_error: i64 },
    /// Leaves all requests of a machine's client to the registry of hosts unanswered, to the end.
    SilenceRegistry { machine: usize },
    /// Raises the mark of an object to the time of a wall clock that is off by this many µs.
    Mark { object: usize, off_by: i64 },
    /// Raises the fence of an object, likewise.
    Fence { object: usize, off_by: i64 },
    /// Says that a contender has left an object which has not, with a stamp that is off by this
    /// many µs: the one at this place, counted round and round, so long a handoff is said to take.
    Release { object: usize, place: usize, handoff: Duration, off_by: i64 },
    /// Lets a machine ask a contender to leave an object: the one at this place, counted round and
    /// round.
    AskToLeave { machine: usize, object: usize, place: usize },
    /// Lets a machine remove killed clients from an object.
    RemoveTheDead { machine: usize, object: usize },
    /// Lets a machine shut its client down.
    ShutDown { machine: usize },
    /// Loses rows of a contender, the holder first of all, then counted round and round.
    LoseRows { object: usize, place: usize },
    /// Loses them between the read and the write of the contender's next renewal, and holds that
    /// write up.
    LoseRowsAtRenewal { object: usize, place: usize, held_up: Duration },
    /// Loses all rows of an object.
    Truncate { object: usize },
    /// Lets a machine remove a contender by force, although it lives.
    RemoveByForce { machine: usize, object: usize, place: usize },
}

/// Which promise to the lock a run breaks on purpose. Two may hold then, but not for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// None: two never hold.
    None,
    /// Rows that were acknowledged are lost.
    LostRows,
    /// Contenders that live are removed by force.
    Force,
}

/// What replicas do when they crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disks {
    /// They keep what they have acknowledged, as the lock needs it.
    Synced,
    /// They forget what they acknowledged of late, as with `commitlog_sync: periodic`.
    Forgetful,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(seed: u64, disks: Disks) -> Self {
        let mut plan = Plan::without_exchanges(seed, disks);
        Draw(StdRng::seed_from_u64(seed ^ 0xE8C4)).exchanges(&mut plan);
        plan
    }

    /// The plan of a seed whose replicas always need two round trips to write and read.
    pub(crate) fn without_exchanges(seed: u64, disks: Disks) -> Self {
        let mut draw = Draw(StdRng::seed_from_u64(seed));
        let machines: Vec<_> = (0..draw.up_to(2, 4)).map(|_| draw.machine()).collect();
        let objects = if draw.0.random_bool(0.7) { 1 } else { 2 };
        let objects: Vec<_> = (1..=objects).map(|number| format!("object {number}")).collect();
        let conditions = draw.conditions();
        let ahead = [(); REPLICAS].map(|()| draw.clock_error());
        let deeds = draw.deeds(Scene { machines: machines.len(), objects: objects.len() }, disks);
        let replicas = Replicas { quorum: 2, ahead };
        let (chance, healed, breach) = (seed, HEALED, Breach::None);
        let weather = Weather::CALM;
        let mixes = vec![Mix::default(); objects.len()];
        let mut plan = Plan {
            seed,
            breach,
            chance,
            healed,
            replicas,
            conditions,
            weather,
            many_dead: NO_SWEEPS,
            exchanges: false,
            objects,
            mixes,
            machines,
            deeds,
        };
        Draw(StdRng::seed_from_u64(seed ^ 0x9EE5)).peers(&mut plan);
        Draw(StdRng::seed_from_u64(seed ^ 0x30DE)).modes(&mut plan);
        let mut draw = Draw(StdRng::seed_from_u64(seed ^ 0x54EE9));
        if draw.0.random_bool(0.7) {
            plan.many_dead = draw.0.random_range(0..4);
        }
        Draw(StdRng::seed_from_u64(seed ^ 0xC10C)).wrong_clocks(&mut plan);
        Draw(StdRng::seed_from_u64(seed ^ 0x4057)).silent_registry(&mut plan);
        let mut draw = Draw(StdRng::seed_from_u64(seed ^ 0x3179));
        for mix in &mut plan.mixes {
            mix.min_hold = draw.0.random_bool(0.3);
            mix.other_limit = draw.0.random_bool(0.3);
        }
        Draw(StdRng::seed_from_u64(seed ^ 0x57A71C)).wrong_statics(&mut plan);
        Draw(StdRng::seed_from_u64(seed ^ 0x4E8D)).herd(&mut plan);
        plan
    }

    /// From when on nothing that went wrong matters any more: rows of clients that died have
    /// expired, even those that were late.
    pub(crate) fn settled(&self) -> Duration {
        self.healed + TIME_IN_FLIGHT + self.longest_ttl() + MAX_CLOCK_SKEW
    }

    /// The plan of a seed where a promise is broken, in half of them with all messages in time. All
    /// holders hold alone: of others that hold together the bound of an overlap is not known.
    pub(crate) fn with_breach(seed: u64, breach: Breach) -> Self {
        let mut draw = Draw(StdRng::seed_from_u64(seed ^ 0xB4EAC4));
        let mut plan = Plan { breach, ..Plan::new(seed, Disks::Synced) };
        plan.mixes.fill(Mix::default());
        for machine in &mut plan.machines {
            machine.lingers = draw.0.random_bool(0.7);
        }
        if draw.0.random_bool(0.5) {
            plan.let_messages_flow();
        }
        let scene = Scene { machines: plan.machines.len(), objects: plan.objects.len() };
        for _ in 0..draw.up_to(1, 5) {
            let deed = match breach {
                Breach::None => continue,
                Breach::LostRows => draw.loss(scene),
                Breach::Force => draw.force(scene),
            };
            plan.deeds.push((Duration::from_millis(draw.up_to(500, 14_000)), deed));
        }
        plan
    }

    /// Lets every message arrive in time, and lets processes run.
    pub(crate) fn let_messages_flow(&mut self) {
        self.conditions = Conditions { latency: self.conditions.latency, ..Conditions::CALM };
        self.weather = Weather { latency: self.weather.latency, ..Weather::CALM };
        self.deeds.retain(|(_, deed)| !deed.stops_messages());
    }

    /// Whether every message arrives in time, and no process is stopped.
    pub(crate) fn lets_messages_flow(&self) -> bool {
        let calm = Conditions { latency: self.conditions.latency, ..Conditions::CALM };
        let fair = Weather { latency: self.weather.latency, ..Weather::CALM };
        let arrive = self.conditions == calm && self.weather == fair;
        arrive && !self.deeds.iter().any(|(_, deed)| deed.stops_messages())
    }

    /// How long a request takes at most when messages flow: there and back, and the same once all
    /// is healed.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_millis(self.conditions.latency.max(Conditions::CALM.latency) * 2)
    }

    /// The longest TTL of any row: tasks ask for a little more than their client does.
    pub(crate) fn longest_ttl(&self) -> Duration {
        let longest = self.machines.iter().map(|machine| machine.ttl).max();
        longest.expect("there are machines") + MORE_TTL
    }

    /// How long a message to another client takes at most when messages flow.
    pub(crate) fn way_between_clients(&self) -> Duration {
        Duration::from_millis(self.weather.latency.max(Weather::CALM.latency)) + LATE_TO_RUN
    }

    /// Whether a wall clock is off by more than the bound at any time.
    pub(crate) fn has_wrong_clocks(&self) -> bool {
        let bound = MAX_CLOCK_SKEW.as_micros();
        self.deeds.iter().any(|(_, deed)| {
            let off_by = if let Deed::Step { wall_error, .. } = deed { *wall_error } else { 0 };
            u128::from(off_by.unsigned_abs()) > bound
        })
    }

    /// Whether the mark of an object follows a clock that is ahead.
    pub(crate) fn has_marks_ahead(&self) -> bool {
        self.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Mark { off_by, .. } if *off_by > 0))
    }

    /// Whether the fence of an object follows a clock that is ahead.
    pub(crate) fn has_fence_ahead(&self, name: &str) -> bool {
        self.deeds.iter().any(|(_, deed)| {
            let Deed::Fence { object, off_by } = deed else { return false };
            self.objects[*object] == name && *off_by > 0
        })
    }

    /// By how much a wall clock is set ahead in all, at most.
    pub(crate) fn set_ahead(&self) -> Duration {
        let of_machine = |number: usize, machine: &MachinePlan| {
            let mut steps = self.steps_of(number);
            steps.sort_unstable();
            let mut before = machine.wall_error;
            let ahead = steps.into_iter().map(|(_, wall_error)| {
                let step = wall_error - mem::replace(&mut before, wall_error);
                u64::try_from(step).unwrap_or_default()
            });
            Duration::from_micros(ahead.sum())
        };
        let machines = self.machines.iter().enumerate();
        machines.map(|(number, machine)| of_machine(number, machine)).max().unwrap_or_default()
    }

    /// When the wall clock of a machine is set, and by how many µs it is off then.
    fn steps_of(&self, number: usize) -> Vec<(Duration, i64)> {
        let step = |(at, deed): &(Duration, Deed)| {
            let Deed::Step { machine, wall_error } = deed else { return None };
            (*machine == number).then_some((*at, *wall_error))
        };
        self.deeds.iter().filter_map(step).collect()
    }

    /// How long a write is held up at most.
    pub(crate) fn held_up(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for (_, deed) in &self.deeds {
            if let Deed::LoseRowsAtRenewal { held_up, .. } = deed {
                longest = longest.max(*held_up);
            }
        }
        longest
    }
}

/// Line by line: what it is made of, then what is done and when.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, breach, chance, healed, replicas, conditions, .. } = self;
        let Plan { weather, many_dead, exchanges, objects, mixes, machines, deeds, .. } = self;
        writeln!(f, "seed {seed}, breach {breach:?}, chance {chance}, healed at {healed:?}")?;
        for (object, mix) in objects.iter().zip(mixes) {
            writeln!(f, "{object:?}: {mix:?}")?;
        }
        writeln!(f, "{replicas:?}")?;
        writeln!(f, "{conditions:?}")?;
        writeln!(f, "{weather:?}")?;
        writeln!(f, "reads warn of more than {many_dead} dead rows")?;
        if *exchanges {
            writeln!(f, "replicas write and read in one round trip")?;
        }
        for (number, machine) in machines.iter().enumerate() {
            writeln!(f, "machine {number}: {machine:?}")?;
        }
        let mut deeds = deeds.clone();
        deeds.sort_by_key(|(at, _)| *at);
        for (at, deed) in deeds {
            writeln!(f, "{:>6} ms  {deed:?}", at.as_millis())?;
        }
        Ok(())
    }
}

/// What deeds are done to.
#[derive(Clone, Copy)]
struct Scene {
    machines: usize,
    objects: usize,
}

struct Draw(StdRng);

impl Draw {
    /// In some runs replicas write and read in one round trip. In half of these, requests are lost
    /// and late so often that two of them often meet at one replica only, as the protocol allows.
    fn exchanges(&mut self, plan: &mut Plan) {
        plan.exchanges = self.0.random_bool(0.4);
        if plan.exchanges && self.0.random_bool(0.5) {
            let Conditions { late, late_by, lost, .. } = &mut plan.conditions;
            *late = late.max(self.0.random_range(0.2..0.6));
            *late_by = (*late_by).max(self.0.random_range(50..500));
            *lost = lost.max(self.0.random_range(0.05..0.25));
        }
    }

    fn machine(&mut self) -> MachinePlan {
        MachinePlan {
            ttl: Duration::from_secs(self.up_to(5, 8)),
            workers: usize::try_from(self.up_to(1, 3)).expect("it is small"),
            visits: usize::try_from(self.up_to(2, 8)).expect("it is small"),
            idle: [20, 200, 3_000][self.0.random_range(0..3)],
            wall_error: self.wall_error(),
            turns: self.0.random_bool(0.8),
            peers: false,
            lingers: false,
        }
    }

    /// Adds turns between clients to a plan: most often all clients take them, or all but one.
    fn peers(&mut self, plan: &mut Plan) {
        if self.0.random_bool(0.2) {
            return;
        }
        let is_mixed = self.0.random_bool(0.4);
        let without = self.0.random_range(0..plan.machines.len());
        for (number, machine) in plan.machines.iter_mut().enumerate() {
            let stands_aside = number == without || self.0.random_bool(0.2);
            machine.peers = !(is_mixed && stands_aside);
        }
        plan.weather = self.weather();
        if self.0.random_bool(0.5) {
            for _ in 0..self.up_to(1, 4) {
                let (begins, ends) = self.period();
                let machine = self.0.random_range(0..plan.machines.len());
                let other = self.0.random_range(0..plan.machines.len());
                let other = Some(other).filter(|other| *other != machine);
                let cut = |cut_off| Deed::CutOff { machine, other, cut_off };
                plan.deeds.extend([(begins, cut(true)), (ends, cut(false))]);
            }
        }
    }

    /// Sets some wall clocks hours ahead or back, most often for a moment, and marks objects by
    /// such clocks, or by those that are years ahead.
    fn wrong_clocks(&mut self, plan: &mut Plan) {
        if self.0.random_bool(0.7) {
            return;
        }
        for _ in 0..self.up_to(1, 3) {
            let (begins, ends) = self.period();
            let machine = self.0.random_range(0..plan.machines.len());
            let (wrong, right) = (self.hours(), self.wall_error());
            plan.deeds.push((begins, Deed::Step { machine, wall_error: wrong }));
            plan.deeds.push((ends, Deed::Step { machine, wall_error: right }));
        }
        if self.0.random_bool(0.5) {
            let at = Duration::from_millis(self.up_to(500, 14_000));
            let object = self.0.random_range(0..plan.objects.len());
            let off_by = self.hours_or_years();
            plan.deeds.push((at, Deed::Mark { object, off_by }));
        }
    }

    /// Writes fences and releases that are wrong by hours or years.
    fn wrong_statics(&mut self, plan: &mut Plan) {
        if self.0.random_bool(0.7) {
            return;
        }
        for _ in 0..self.up_to(1, 4) {
            let at = Duration::from_millis(self.up_to(500, 14_000));
            let object = self.0.random_range(0..plan.objects.len());
            let off_by = self.hours_or_years();
            let deed = if self.0.random_bool(0.3) {
                Deed::Fence { object, off_by }
            } else {
                let place = self.0.random_range(0..plan.machines.len());
                let handoff = Duration::from_micros(self.hours_or_years().unsigned_abs());
                Deed::Release { object, place, handoff, off_by }
            };
            plan.deeds.push((at, deed));
        }
    }

    /// Adds clients with one task each, so that some stand far back in the queue and give up.
    fn herd(&mut self, plan: &mut Plan) {
        if self.0.random_bool(0.97) {
            return;
        }
        for _ in 0..self.up_to(8, 14) {
            let machine = MachinePlan { workers: 1, visits: 2, idle: 200, ..self.machine() };
            plan.machines.push(machine);
        }
    }

    /// Silences the registry for some machines, and sets their wall clocks ahead, so that what they
    /// know of their host is overdue.
    fn silent_registry(&mut self, plan: &mut Plan) {
        if self.0.random_bool(0.9) {
            return;
        }
        for _ in 0..self.up_to(1, 2) {
            let machine = self.0.random_range(0..plan.machines.len());
            let (begins, steps) = self.period();
            plan.deeds.push((begins, Deed::SilenceRegistry { machine }));
            // Later it would end the patience of a caller that must be served.
            plan.deeds.push((steps.min(HEALED), Deed::Step { machine, wall_error: HOUR }));
        }
    }

    /// Up to some hours ahead or back, in µs.
    fn hours(&mut self) -> i64 {
        self.0.random_range(-5 * HOUR..5 * HOUR)
    }

    /// Up to some hours ahead or back, or years ahead, in µs.
    fn hours_or_years(&mut self) -> i64 {
        let hours = self.hours();
        if hours > 3 * HOUR { hours * HOURS_OF_A_YEAR } else { hours }
    }

    /// Lets some tasks share objects, or want them as a limited number.
    fn modes(&mut self, plan: &mut Plan) {
        for mix in &mut plan.mixes {
            if self.0.random_bool(0.4) {
                mix.shared = self.0.random_bool(0.7);
                let limits = self.0.random_bool(0.6) || !mix.shared;
                mix.max_holders = limits.then(|| self.0.random_range(1..=3));
            }
        }
    }

    fn weather(&mut self) -> Weather {
        Weather {
            latency: [1, 3, 15][self.0.random_range(0..3)],
            late: self.sometimes(0.2),
            late_by: [50, 700, 5_000][self.0.random_range(0..3)],
            lost: self.sometimes(0.3),
            repeated: self.sometimes(0.3),
        }
    }

    /// Not every run has every kind of trouble, or those that need quiet would never come.
    fn conditions(&mut self) -> Conditions {
        Conditions {
            latency: [2, 5, 30][self.0.random_range(0..3)],
            late: self.sometimes(0.2),
            late_by: [50, 2_000, 14_000][self.0.random_range(0..3)],
            lost: self.sometimes(0.15),
            queued: self.sometimes(0.05),
            queued_for: [100, 12_000][self.0.random_range(0..2)],
            refused: self.sometimes(0.05),
            unknown: self.sometimes(0.1),
        }
    }

    /// Within the bound; often at its ends, where it is tight.
    fn clock_error(&mut self) -> Duration {
        match self.0.random_range(0..4) {
            0 => Duration::ZERO,
            1 => MAX_CLOCK_SKEW,
            _ => MAX_CLOCK_SKEW.mul_f64(self.0.random()),
        }
    }

    fn wall_error(&mut self) -> i64 {
        i64::try_from(self.clock_error().as_micros()).expect("it is a second at most")
    }

    fn deeds(&mut self, scene: Scene, disks: Disks) -> Vec<(Duration, Deed)> {
        let mut deeds = Vec::new();
        for kind in 0..8 {
            if self.0.random_bool(0.5) {
                for _ in 0..self.up_to(1, 4) {
                    self.trouble(kind, scene, &mut deeds);
                }
            }
        }
        if disks == Disks::Forgetful {
            for _ in 0..6 {
                self.crash(Duration::from_secs(10), &mut deeds);
            }
        }
        deeds
    }

    /// A deed, and what undoes it.
    fn trouble(&mut self, kind: u32, scene: Scene, deeds: &mut Vec<(Duration, Deed)>) {
        let (begins, ends) = self.period();
        let machine = self.0.random_range(0..scene.machines);
        let replica = self.0.random_range(0..REPLICAS);
        let object = self.0.random_range(0..scene.objects);
        match kind {
            0 => {
                let cut = self.cut();
                deeds.push((begins, Deed::Cut { machine, replica, cut }));
                deeds.push((ends, Deed::Cut { machine, replica, cut: Cut::default() }));
            }
            1 => {
                deeds.push((begins, Deed::Slow { replica, by: self.up_to(5, 1_200) }));
                deeds.push((ends, Deed::Slow { replica, by: 0 }));
            }
            2 => self.crash(Duration::ZERO, deeds),
            3 => {
                deeds.push((begins, Deed::Pause { machine }));
                deeds.push((ends, Deed::Resume { machine }));
            }
            4 => {
                deeds.push((begins, Deed::Kill { machine }));
                deeds.push((ends, Deed::Restart { machine }));
                let (other, notices) = ((machine + 1) % scene.machines, self.soon_after(begins));
                deeds.push((notices, Deed::RemoveTheDead { machine: other, object }));
            }
            5 => {
                let place = self.0.random_range(0..scene.machines);
                deeds.push((begins, Deed::AskToLeave { machine, object, place }));
            }
            6 => {
                deeds.push((begins, Deed::ShutDown { machine }));
                deeds.push((ends, Deed::Restart { machine }));
            }
            _ => deeds.push((begins, Deed::Step { machine, wall_error: self.wall_error() })),
        }
    }

    /// A loss of rows, most often of the holder's.
    fn loss(&mut self, scene: Scene) -> Deed {
        let object = self.0.random_range(0..scene.objects);
        let place = self.place(scene);
        match self.0.random_range(0..5) {
            0 => Deed::Truncate { object },
            1 | 2 => Deed::LoseRows { object, place },
            _ => {
                // Long enough for another client to be let in, and shorter than a request waits.
                let held_up = Duration::from_millis(self.up_to(1, 800));
                Deed::LoseRowsAtRenewal { object, place, held_up }
            }
        }
    }

    fn force(&mut self, scene: Scene) -> Deed {
        let machine = self.0.random_range(0..scene.machines);
        let object = self.0.random_range(0..scene.objects);
        Deed::RemoveByForce { machine, object, place: self.place(scene) }
    }

    /// The holder's place, or another one.
    fn place(&mut self, scene: Scene) -> usize {
        if self.0.random_bool(0.7) { 0 } else { self.0.random_range(0..scene.machines) }
    }

    fn soon_after(&mut self, begins: Duration) -> Duration {
        begins + Duration::from_millis(self.up_to(50, 3_000))
    }

    fn crash(&mut self, forgets: Duration, deeds: &mut Vec<(Duration, Deed)>) {
        let ((begins, ends), replica) = (self.period(), self.0.random_range(0..REPLICAS));
        deeds.push((begins, Deed::Crash { replica, forgets }));
        deeds.push((ends, Deed::Start { replica }));
    }

    /// From the whole of it, answers included, to half of it.
    fn cut(&mut self) -> Cut {
        let requests = self.0.random_bool(0.6);
        Cut { requests, answers: !requests || self.0.random_bool(0.5) }
    }

    /// When something begins, and when it ends: mostly soon, sometimes after a lease.
    fn period(&mut self) -> (Duration, Duration) {
        let begins = Duration::from_millis(self.up_to(0, 12_000));
        let longest = if self.0.random_bool(0.5) { 500 } else { 9_000 };
        (begins, begins + Duration::from_millis(self.up_to(1, longest)))
    }

    fn sometimes(&mut self, most: f64) -> f64 {
        if self.0.random_bool(0.5) { 0.0 } else { most * self.0.random::<f64>() }
    }

    fn up_to(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..=most)
    }
}

impl Deed {
    /// Whether messages are late or lost by it, or a process does not run.
    fn stops_messages(self) -> bool {
        match self {
            Deed::Cut { .. }
            | Deed::CutOff { .. }
            | Deed::Slow { .. }
            | Deed::Crash { .. }
            | Deed::Start { .. }
            | Deed::Pause { .. }
            | Deed::Resume { .. } => true,
            Deed::Kill { .. }
            | Deed::Restart { .. }
            | Deed::Step { .. }
            | Deed::AskToLeave { .. }
            | Deed::Mark { .. }
            | Deed::Fence { .. }
            | Deed::Release { .. }
            | Deed::SilenceRegistry { .. }
            | Deed::RemoveTheDead { .. }
            | Deed::ShutDown { .. }
            | Deed::LoseRows { .. }
            | Deed::LoseRowsAtRenewal { .. }
            | Deed::Truncate { .. }
            | Deed::RemoveByForce { .. } => false,
        }
    }
}
