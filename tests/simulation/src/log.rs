//! What happened in a run, and the rounds that follow from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bakery_lock::LockMode;
use bakery_lock::testing::{
    LineKind, LineRecord, LossRecord, SimulatedCluster, WriteKind, WriteRecord,
};

use super::plan::MAX_CLOCK_SKEW;
use support::history::{End, Round};

/// What happened in a run. Times are of the simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// In the order of the grants of each client.
    pub(crate) holds: Vec<Hold>,
    pub(crate) tokens: Vec<Token>,
    /// What callers were told instead of being granted something.
    pub(crate) failures: Vec<Failure>,
    /// When clients were shut down.
    pub(crate) shutdowns: Vec<Shutdown>,
    /// Clients that lend their place to others.
    pub(crate) lenders: BTreeSet<usize>,
    /// When clients died.
    pub(crate) deaths: BTreeMap<usize, Duration>,
    /// What clients wrote.
    pub(crate) writes: Vec<WriteRecord>,
    /// What keepers heard and said about places in their lines.
    pub(crate) lines: Vec<LineRecord>,
    /// The rows that were lost.
    pub(crate) losses: Vec<LossRecord>,
    /// The objects that were truncated.
    pub(crate) truncated: BTreeSet<String>,
    /// Callers with `min_hold` that did not get the lock. They may have been granted it at that
    /// moment.
    pub(crate) uncollected: Vec<Uncollected>,
    /// Objects with rows that should have been gone, and whose those are.
    pub(crate) rows_left: Vec<(String, usize)>,
    /// What was asked for after healing and did not come.
    pub(crate) unserved: Vec<String>,
    /// How many workers have seen the end.
    pub(crate) workers_done: usize,
    /// Wall clocks may be off by more than the bound.
    pub(crate) has_wrong_clocks: bool,
}

/// A client held a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    /// The client whose place it used: another one, if the hold was a sublease.
    pub(crate) keeper: usize,
    /// The slot of that place.
    pub(crate) slot: i16,
    pub(crate) object: String,
    pub(crate) mode: LockMode,
    /// The TTL of its rows.
    pub(crate) ttl: Duration,
    /// Whether its lease is renewed.
    pub(crate) renews: bool,
    /// How long it stays taken at least.
    pub(crate) min_hold: Duration,
    /// When its caller asked; `None` if it let others go first, and came to the line later.
    pub(crate) asked: Option<Duration>,
    pub(crate) from: Duration,
    /// From when on it was shared, if it was exclusive before.
    pub(crate) shared_from: Option<Duration>,
    /// Until when the guard told so by its own clock, and how that ended.
    pub(crate) until: Option<(Duration, HoldEnd)>,
}

/// A round of a contender, and how it wanted to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundOf {
    pub(crate) client: usize,
    pub(crate) mode: LockMode,
    pub(crate) round: Round,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released,
    Lost(String),
    /// The process was stopped, and the lease ended meanwhile.
    Slept,
    Died,
}

/// A token that was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// By which hold, by its place in the log.
    pub(crate) hold: usize,
    pub(crate) client: usize,
    pub(crate) object: String,
    pub(crate) asked: Duration,
    pub(crate) given: Duration,
    pub(crate) value: i64,
}

/// Something that a caller was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) client: usize,
    pub(crate) object: String,
    pub(crate) at: Duration,
    pub(crate) why: String,
}

/// A caller with `min_hold` that did not get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uncollected {
    pub(crate) client: usize,
    pub(crate) object: String,
    /// Until when its place stays taken, if it was granted.
    pub(crate) until: Duration,
}

/// A machine shut its client down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shutdown {
    pub(crate) client: usize,
    pub(crate) asked: Duration,
    /// When all that it had was given back.
    pub(crate) done: Option<Duration>,
}

impl Hold {
    /// A client's own hold, with none beside it, that has no end yet.
    pub(crate) fn exclusive(client: usize, object: &str, from: Duration) -> Self {
        Hold {
            client,
            keeper: client,
            slot: 0,
            object: object.to_owned(),
            mode: LockMode::Exclusive,
            ttl: Duration::from_secs(5),
            renews: true,
            min_hold: Duration::ZERO,
            asked: Some(from),
            from,
            shared_from: None,
            until: None,
        }
    }

    /// From when on it can be shared with others.
    fn is_shared_from(&self) -> Duration {
        let by_mode = (self.mode == LockMode::Shared).then_some(self.from);
        by_mode.or(self.shared_from).unwrap_or(Duration::MAX)
    }

    /// From when on the two could hold together although they conflict: once both are shared.
    pub(crate) fn may_join_from(&self, other: &Hold) -> Duration {
        self.is_shared_from().max(other.is_shared_from())
    }

    /// Whether two must not hold together. Of limited ones this many may.
    pub(crate) fn conflicts_with(&self, other: &Hold) -> bool {
        conflict(self.mode, other.mode)
    }
}

/// Whether two must not hold together, if any two of a kind may: of limited ones, with one limit.
pub(crate) fn conflict(one: LockMode, other: LockMode) -> bool {
    use LockMode::{Limited, Shared};
    match (one, other) {
        (Shared, Shared) => false,
        (Limited { .. }, Limited { .. }) => one != other,
        _ => true,
    }
}

impl Log {
    /// What callers and holders were told: the client, the object, when, and what.
    pub(crate) fn told(&self) -> impl Iterator<Item = (usize, &str, Duration, &str)> {
        let failures = self.failures.iter();
        let told = failures.map(|s| (s.client, s.object.as_str(), s.at, s.why.as_str()));
        let lost = self.holds.iter().filter_map(|hold| match &hold.until {
            Some((at, HoldEnd::Lost(why))) => {
                Some((hold.client, hold.object.as_str(), *at, why.as_str()))
            }
            Some((_, HoldEnd::Released | HoldEnd::Slept | HoldEnd::Died)) | None => None,
        });
        told.chain(lost)
    }

    /// Notes how a hold ended, unless that is known already.
    pub(crate) fn end(&mut self, hold: usize, at: Duration, end: HoldEnd) {
        self.holds[hold].until.get_or_insert((at, end));
    }

    /// Which clients hold an object, as far as is known.
    pub(crate) fn holders(&self, object: &str) -> Vec<usize> {
        let holds = self.holds.iter().filter(|hold| hold.object == object && hold.until.is_none());
        holds.map(|hold| hold.client).collect()
    }

    /// Those of some objects that were never truncated. Of the others a write that is late may
    /// bring back what was deleted, for the length of its TTL.
    pub(crate) fn not_truncated(&self, objects: &[String]) -> Vec<String> {
        objects.iter().filter(|object| !self.truncated.contains(*object)).cloned().collect()
    }

    /// When rows of a client were lost at an object, or deleted by force.
    pub(crate) fn breaks(&self, client: usize, object: &str) -> Vec<Duration> {
        let lost = self.losses.iter().filter(|l| l.client == client && l.object == object);
        let removed = self.removals(client, object).map(|write| write.sent);
        let mut breaks: Vec<_> = lost.map(|loss| loss.at).chain(removed).collect();
        breaks.sort_unstable();
        breaks
    }

    /// The writes that asked a client to leave an object.
    pub(crate) fn requests_to_leave(
        &self,
        client: usize,
        object: &str,
    ) -> impl Iterator<Item = &WriteRecord> {
        self.writes.iter().filter(move |write| {
            let is_asked = matches!(write.kind, WriteKind::Revoke { whom, .. } if whom == client);
            is_asked && write.object == object
        })
    }

    /// The writes that removed a client from an object by force.
    pub(crate) fn removals(
        &self,
        client: usize,
        object: &str,
    ) -> impl Iterator<Item = &WriteRecord> {
        self.writes
            .iter()
            .filter(move |write| write.object == object && write.removes_by_force() == Some(client))
    }

    /// When the place of a holder was removed by force up to some time, in the round in which it
    /// was granted. A removal that is tried again spares rounds after the one that it was meant
    /// for: their rows have later timestamps.
    pub(crate) fn removed(&self, hold: &Hold, up_to: Duration) -> Option<Duration> {
        let round = self.round_of(hold);
        let removals = self.removals(hold.keeper, &hold.object);
        let mut removals = removals.filter(|removal| removal.stamp >= round);
        removals.find(|removal| removal.sent <= up_to).map(|removal| removal.sent)
    }

    /// When the place of a holder was granted: to an earlier turn, or to itself.
    pub(crate) fn place_held_since(&self, hold: &Hold) -> Duration {
        let round = self.round_of(hold);
        let is_of_place = |other: &&Hold| {
            (other.keeper, &other.object) == (hold.keeper, &hold.object)
                && self.round_of(other) == round
        };
        let granted = self.holds.iter().filter(is_of_place).map(|other| other.from);
        granted.fold(hold.from, Duration::min)
    }

    /// The round in which the place of a holder was granted.
    fn round_of(&self, hold: &Hold) -> i64 {
        let Hold { keeper: client, object, from, .. } = hold;
        let announced = self.writes.iter().filter_map(|write| match write.kind {
            WriteKind::Put { round, .. }
                if write.client == *client && write.object == *object && write.sent <= *from =>
            {
                Some(round)
            }
            WriteKind::Put { .. } | WriteKind::Revoke { .. } | WriteKind::Delete { .. } => None,
        });
        announced.max().unwrap_or_default()
    }

    /// Notes which rows of objects are left now, of those that count by their owner and name.
    pub(crate) fn note_rows(
        &mut self,
        cluster: &SimulatedCluster,
        objects: &[String],
        now: Duration,
        counts: impl Fn(usize, &str) -> bool,
    ) {
        for object in objects {
            let rows = cluster.rows(object, now).into_iter();
            let left = rows.filter(|(owner, name)| counts(*owner, name));
            self.rows_left.extend(left.map(|(owner, _)| (object.clone(), owner)));
        }
    }

    /// The rounds of an object.
    pub(crate) fn rounds(&self, object: &str) -> Vec<RoundOf> {
        let written = self.writes.iter().filter(|write| write.object == object);
        let contenders: BTreeSet<_> = written.map(|write| (write.client, write.slot)).collect();
        let rounds = contenders.into_iter().flat_map(|(client, slot)| {
            let rounds = self.rounds_of(client, slot, object).into_iter();
            rounds.map(move |(mode, round)| RoundOf { client, mode, round })
        });
        rounds.collect()
    }

    /// The rounds of a contender at an object.
    fn rounds_of(&self, client: usize, slot: i16, object: &str) -> Vec<(LockMode, Round)> {
        let own = |write: &&WriteRecord| {
            (write.client, write.slot) == (client, slot)
                && write.object == object
                && write.removes_by_force().is_none()
        };
        let writes: Vec<_> = self.writes.iter().filter(own).collect();
        // A round is granted with its first turn, which may be a guest's.
        let of_place =
            |hold: &&Hold| (hold.keeper, hold.slot) == (client, slot) && hold.object == object;
        let mut grants: Vec<_> = self.holds.iter().filter(of_place).map(|hold| hold.from).collect();
        grants.sort_unstable();
        let death = self.deaths.get(&client).copied().unwrap_or(Duration::MAX);
        let rounds = rounds(&writes, &grants, death);
        let breaks = self.breaks(client, object);
        let broken_off =
            |(mode, round)| broken_off(round, &breaks).into_iter().map(move |round| (mode, round));
        rounds.into_iter().flat_map(broken_off).collect()
    }

    /// How many grants were turns of other clients.
    pub(crate) fn subleases(&self, object: &str) -> usize {
        let of_object = self.holds.iter().filter(|hold| hold.object == object);
        of_object.filter(|hold| hold.client != hold.keeper).count()
    }

    /// How many grants were turns after the first one of a round.
    pub(crate) fn in_turn(&self, object: &str) -> usize {
        let granted = |of: &&RoundOf| matches!(of.round.end, End::Granted(_));
        let rounds = self.rounds(object).iter().filter(granted).count();
        self.holds.iter().filter(|hold| hold.object == object).count().saturating_sub(rounds)
    }

    /// How many grants were waited for with a ticket.
    pub(crate) fn contended(&self, object: &str) -> usize {
        let contended = |of: &&RoundOf| {
            let Round { drawn, end, .. } = of.round;
            drawn.is_some() && matches!(end, End::Granted(_))
        };
        self.rounds(object).iter().filter(contended).count()
    }
}

/// The rounds of one contender, from what it wrote and when it was let in.
fn rounds(writes: &[&WriteRecord], grants: &[Duration], death: Duration) -> Vec<(LockMode, Round)> {
    let mut rounds = Vec::new();
    let announced = writes.iter().filter_map(|write| match write.kind {
        WriteKind::Put { round, mode, .. } => Some((round, (write.sent, mode))),
        WriteKind::Revoke { .. } | WriteKind::Delete { .. } => None,
    });
    // Rounds grow within a client.
    let mut first = BTreeMap::new();
    for (round, announced) in announced {
        first.entry(round).or_insert(announced);
    }
    let mut later = first.values().skip(1).map(|(sent, _)| *sent).chain([Duration::MAX]);
    for (round, (announced, mode)) in &first {
        let next = later.next().expect("there is one for each");
        let granted = grants.iter().find(|grant| **grant >= *announced && **grant < next);
        let (drawn, lapses) = standing(writes, *round);
        let deleted = writes.iter().filter(|w| matches!(w.kind, WriteKind::Delete { .. }));
        let deleted = deleted.map(|write| write.sent).find(|sent| sent >= announced);
        let left = deleted.unwrap_or(Duration::MAX).min(death).min(lapses);
        let end = granted.map_or(End::GaveUp(nanos(left)), |grant| End::Granted(nanos(*grant)));
        let (announced, drawn) = (nanos(*announced), drawn.map(nanos));
        rounds.push((*mode, Round { announced, drawn, end }));
    }
    rounds
}

/// What a round is to others when rows of it were lost or removed: from then on they need not let
/// it in first, but it must not overtake them either.
fn broken_off(round: Round, breaks: &[Duration]) -> Vec<Round> {
    let mut breaks = breaks.iter().map(|at| nanos(*at));
    let Some(broken) = breaks.find(|at| (round.announced..round.end.time()).contains(at)) else {
        return vec![round];
    };
    let drawn = round.drawn.filter(|drawn| *drawn < broken);
    let as_waiting = Round { drawn, end: End::GaveUp(broken), ..round };
    let as_newcomer = Round { drawn: None, ..round };
    vec![as_waiting, as_newcomer]
}

/// When the ticket of a round was acknowledged, and when the lease of the round was over.
fn standing(writes: &[&WriteRecord], round: i64) -> (Option<Duration>, Duration) {
    // By their stamps: what a write says, when that lapses, and when it was acknowledged first.
    let mut puts = BTreeMap::new();
    for write in writes {
        if let WriteKind::Put { round: of, ticket, ttl, .. } = write.kind
            && of == round
        {
            let lapses = write.sent + ttl - Duration::from_secs(1) - MAX_CLOCK_SKEW;
            let (.., acknowledged) =
                puts.entry(write.stamp).or_insert((ticket, lapses, Duration::MAX));
            *acknowledged = write.acknowledged.unwrap_or(Duration::MAX).min(*acknowledged);
        }
    }
    let with_ticket = puts.values().filter(|(ticket, ..)| ticket.is_some());
    let drawn = with_ticket.map(|(.., acknowledged)| *acknowledged).min();
    let mut lapses = puts.values().next().map_or(Duration::ZERO, |(_, lapses, _)| *lapses);
    for (_, renewed, acknowledged) in puts.values() {
        // What is acknowledged once the lease is over does not prolong it. What is sent may shorten
        // it.
        lapses = if *acknowledged < lapses { *renewed } else { lapses.min(*renewed) };
    }
    (drawn.filter(|drawn| *drawn < Duration::MAX), lapses)
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Line by line, in the order of time.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for Hold { client, keeper, slot, object, mode, from, until, .. } in &self.holds {
            let place = if client == keeper { String::new() } else { format!(" of {keeper}") };
            let how = if *mode == LockMode::Exclusive {
                String::new()
            } else {
                format!(" {mode:?}, slot {slot}")
            };
            lines.push((*from, format!("client {client} holds {object}{place}{how}")));
            if let Some((until, end)) = until {
                lines.push((*until, format!("client {client} held {object}{how}: {end:?}")));
            }
        }
        for WriteRecord { client, object, slot, stamp, sent, acknowledged, kind } in &self.writes {
            let place = if *slot == 0 { String::new() } else { format!(" slot {slot}") };
            let line = format!("client {client}{place} writes {object} {kind:?} at {stamp}");
            lines.push((*sent, line));
            if let Some(acknowledged) = acknowledged {
                let line = format!("client {client} is told that {object} {stamp} is written");
                lines.push((*acknowledged, line));
            }
        }
        // Guests repeat what they ask.
        for LineRecord { keeper, guest, object, at, request, kind } in &self.lines {
            let told = match kind {
                LineKind::Asks | LineKind::Returns => continue,
                LineKind::Withdraws => "withdraws",
                LineKind::Granted => "is granted a turn",
                LineKind::SentAway => "is sent away",
                LineKind::Disconnected => "is disconnected",
            };
            lines.push((*at, format!("guest {guest} of {keeper} {told}: {object} {request}")));
        }
        for Token { client, object, asked, given, value, .. } in &self.tokens {
            let line = format!("client {client} has token {value} of {object}, asked at {asked:?}");
            lines.push((*given, line));
        }
        for LossRecord { client, object, row_name, at } in &self.losses {
            lines.push((*at, format!("client {client} loses the row {row_name} of {object}")));
        }
        for Failure { client, object, at, why } in &self.failures {
            lines.push((*at, format!("client {client} does not get {object}: {why}")));
        }
        for Shutdown { client, asked, done } in &self.shutdowns {
            lines.push((*asked, format!("client {client} is shut down")));
            lines.extend(done.map(|done| (done, format!("client {client} has shut down"))));
        }
        lines.extend(self.deaths.iter().map(|(client, at)| (*at, format!("client {client} dies"))));
        lines.sort();
        for (at, line) in lines {
            writeln!(f, "{:>6} ms  {line}", at.as_millis())?;
        }
        Ok(())
    }
}

mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn write(stamp: i64, sent: u64, acknowledged: Option<u64>, kind: WriteKind) -> WriteRecord {
        let (object, acknowledged) = ("a".to_owned(), acknowledged.map(ms));
        WriteRecord { client: 0, object, slot: 0, stamp, sent: ms(sent), acknowledged, kind }
    }

    fn put(round: i64, ticket: Option<i64>) -> WriteKind {
        WriteKind::Put { round, mode: LockMode::Exclusive, ticket, ttl: ms(5_000) }
    }

    fn log(writes: &[WriteRecord], granted: &[u64]) -> Log {
        let hold = |from: &u64| Hold {
            until: Some((ms(*from + 1), HoldEnd::Released)),
            ..Hold::exclusive(0, "a", ms(*from))
        };
        let holds = granted.iter().map(hold).collect();
        Log { holds, writes: writes.to_vec(), ..Log::default() }
    }

    fn round(announced: u64, drawn: Option<u64>, end: End) -> RoundOf {
        let (announced, drawn) = (nanos(ms(announced)), drawn.map(|drawn| nanos(ms(drawn))));
        let round = Round { announced, drawn, end };
        RoundOf { client: 0, mode: LockMode::Exclusive, round }
    }

    // Goal: a round begins with the first try of its announcement, its ticket counts from the first
    // acknowledgement, and it ends with the grant or the first delete of its own rows.
    // Method: made-up writes of two rounds.
    #[test]
    fn rounds_follow_from_writes() {
        let writes = [
            write(1, 10, None, put(1, None)),
            write(1, 20, Some(25), put(1, None)),
            write(2, 30, None, put(1, Some(4))),
            write(2, 40, Some(45), put(1, Some(4))),
            write(3, 80, Some(85), WriteKind::Delete { of: 0 }),
            write(4, 90, Some(95), put(4, None)),
            write(5, 110, None, WriteKind::Delete { of: 1 }),
            write(6, 120, None, WriteKind::Delete { of: 0 }),
        ];
        let gave_up = End::GaveUp(nanos(ms(120)));
        let expected = [round(10, Some(45), End::Granted(nanos(ms(70)))), round(90, None, gave_up)];
        let log = log(&writes, &[70]);
        assert_eq!(log.rounds("a"), expected);
        assert_eq!(log.contended("a"), 1);
        assert!(log.rounds("b").is_empty());
    }

    // Goal: a client that is stopped or dies gives up when its lease is over or it dies; what is
    // acknowledged too late prolongs nothing, and a shorter TTL counts as soon as it is sent.
    // Method: made-up writes. A TTL of 5 s makes a lease of 3 s.
    #[test]
    fn leases_end_rounds() {
        let renewed = |acknowledged| {
            let writes = [
                write(1, 0, Some(5), put(1, Some(1))),
                write(2, 2_000, Some(acknowledged), put(1, Some(1))),
                write(3, 60_000, None, WriteKind::Delete { of: 0 }),
            ];
            log(&writes, &[])
        };
        let lapses = |at| [round(0, Some(5), End::GaveUp(nanos(ms(at))))];
        assert_eq!(renewed(2_999).rounds("a"), lapses(5_000));
        assert_eq!(renewed(3_000).rounds("a"), lapses(3_000));
        let with_ttl = |ttl| {
            let mode = LockMode::Exclusive;
            WriteKind::Put { round: 1, mode, ticket: Some(1), ttl: ms(ttl) }
        };
        for acknowledged in [Some(2_100), None] {
            let shortened = [
                write(1, 0, Some(5), with_ttl(8_000)),
                write(2, 2_000, acknowledged, with_ttl(5_000)),
            ];
            assert_eq!(log(&shortened, &[]).rounds("a"), lapses(5_000));
        }
        let mut killed = renewed(2_999);
        killed.deaths.insert(0, ms(4_000));
        assert_eq!(killed.rounds("a"), lapses(4_000));
    }

    // Goal: whose rows are lost or removed waits no longer as far as others are concerned, but must
    // not overtake them either.
    // Method: a made-up round, broken before its ticket is drawn, after that, and never.
    #[test]
    fn lost_rows_break_rounds_off() {
        let writes =
            [write(1, 10, Some(25), put(1, None)), write(2, 30, Some(45), put(1, Some(4)))];
        let granted = End::Granted(nanos(ms(70)));
        let newcomer = round(10, None, granted);
        let broken = |client, at| {
            let (object, row_name) = ("a".to_owned(), "entering::".to_owned());
            let losses = vec![LossRecord { client, object, row_name, at: ms(at) }];
            Log { losses, ..log(&writes, &[70]) }.rounds("a")
        };
        let given_up = |drawn, at| round(10, drawn, End::GaveUp(nanos(ms(at))));
        assert_eq!(broken(0, 40), [given_up(None, 40), newcomer]);
        assert_eq!(broken(0, 50), [given_up(Some(45), 50), newcomer]);
        assert_eq!(broken(0, 9), [round(10, Some(45), granted)]);
        assert_eq!(broken(0, 70), [round(10, Some(45), granted)]);
        assert_eq!(broken(1, 50), [round(10, Some(45), granted)]);
        let mut removed = log(&writes, &[70]);
        let by_another =
            WriteRecord { client: 1, ..write(9, 50, None, WriteKind::Delete { of: 0 }) };
        removed.writes.push(by_another);
        assert_eq!(removed.rounds("a"), [given_up(Some(45), 50), newcomer]);
    }
}
