//! Where a promise is broken on purpose two may hold, but not without cause and not for long.
//!
//! How long follows from how a holder notices. An operation takes `d` at most while messages flow.
//!
//! **Rows were lost.** Let X have been granted before Y. Each of the two tells in its rows that it
//! holds once it renews them, which is due a third of its TTL after the last write of them: a read
//! of its own rows and the write, so 2 `d` after that. From then on each read of the whole object
//! shows it. The other one begins such a read after its next renewal: another third later and 3 `d`
//! for two reads and a write. Then one of the two is lost, two thirds of a TTL and 5 `d` after the
//! grant of Y. A holder that loses rows in between tells nothing any more, so all begins again. A
//! write that is held up takes longer by as much.
//!
//! **One was removed by force.** The request to leave was acknowledged before the other one was let
//! in. It reads its own rows after a third of a TTL at most, and again after each write: 3 `d`.
//! Most often it is X. It is Y where the read that lets Y in began before its removal, and is
//! answered, or looked at by a process that was stopped, once X has been let in.
//!
//! **One had been asked to leave.** It looks at nothing any more, and is lost with its lease. The
//! request may have been sent before the grant, by less than 2 `d`: the read that let it in did not
//! show it yet.
//!
//! **Messages do not flow, or a process is stopped.** Then leases end what no holder finds out.
//! Where rows were lost, Y tells that it holds or is lost within its lease; X may begin one more
//! renewal within its own lease and hold on for another one, but no third one before it has read
//! the whole object. Which of the two is the earlier one is open. A holder that was removed may be
//! stopped between a read and the write after it, and so begin one more lease within its last one.
//!
//! **A guest uses the place of its keeper.** So the rows are those of the keeper, with the TTL of a
//! turn before. The keeper notices as above, and tells its guest by a message. A guest that hears
//! nothing has its turn for no longer than the keeper's lease (rule R1), which bounds the rest.
//!
//! **A holder that does not renew** looks at nothing, and leaves when its lease is over.

use std::time::Duration;

use super::log::{Hold, Log};
use super::plan::{Breach, MAX_CLOCK_SKEW, Plan};

/// Whole milliseconds are all that a timer knows, so each step may take one more.
const ROUNDING: Duration = Duration::from_millis(10);

/// Two clients that held an object together for too long, or without cause.
pub(crate) fn check(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    overlaps(log, object).into_iter().find_map(|overlap| {
        let Overlap { earlier, later } = overlap;
        let Some(bound) = overlap.bound(plan, log) else {
            return Some(format!(
                "two clients hold {object} without cause: {earlier:?} and {later:?}"
            ));
        };
        let longest = overlap.longest(plan, log);
        (longest > bound).then(|| {
            format!(
                "two clients hold {object} for {longest:?}, above {bound:?}: {earlier:?} and \
                 {later:?}"
            )
        })
    })
}

/// All pairs of clients that held together and must not.
pub(crate) fn overlaps<'a>(log: &'a Log, object: &str) -> Vec<Overlap<'a>> {
    let mut holds: Vec<_> = log.holds.iter().filter(|hold| hold.object == object).collect();
    holds.sort_by_key(|hold| hold.from);
    let mut overlaps = Vec::new();
    for (place, later) in holds.iter().enumerate() {
        let before = holds[..place].iter();
        let before = before.filter(|earlier| later.from < until(earlier));
        let before = before.filter(|earlier| earlier.conflicts_with(later));
        let before = before.filter(|earlier| later.from < earlier.may_join_from(later));
        // A hold that was over at once overlaps nothing.
        let before = before.filter(|_| later.from < until(later));
        overlaps.extend(before.map(|earlier| Overlap { earlier, later }));
    }
    overlaps
}

/// Two clients that held together and must not.
#[derive(Debug)]
pub(crate) struct Overlap<'a> {
    earlier: &'a Hold,
    later: &'a Hold,
}

impl Overlap<'_> {
    /// From when to when.
    pub(crate) fn period(&self) -> (Duration, Duration) {
        let together = self.earlier.may_join_from(self.later);
        (self.later.from, until(self.earlier).min(until(self.later)).min(together))
    }

    /// The longest while of it in which no row of the two was lost.
    fn longest(&self, plan: &Plan, log: &Log) -> Duration {
        let (begins, ends) = self.period();
        let mut since = begins;
        let mut longest = Duration::ZERO;
        let losses = log.losses.iter().filter(|loss| {
            let of_them = [self.earlier.keeper, self.later.keeper].contains(&loss.client);
            of_them && loss.object == self.later.object && plan.breach == Breach::LostRows
        });
        for loss in losses.filter(|loss| (begins..ends).contains(&loss.at)) {
            longest = longest.max(loss.at - since);
            since = loss.at;
        }
        longest.max(ends - since)
    }

    /// How long such a while may be; `None` if nothing explains it.
    fn bound(&self, plan: &Plan, log: &Log) -> Option<Duration> {
        let both = [self.earlier, self.later];
        match plan.breach {
            Breach::None => None,
            Breach::LostRows => {
                let object = &self.later.object;
                let mut losses = log.losses.iter().filter(|loss| loss.object == *object);
                losses.any(|loss| loss.at <= self.later.from).then(|| {
                    let orphans =
                        both.into_iter().map(|hold| self.until_orphan_ends(plan, log, hold));
                    orphans.fold(self.until_found(plan, log), Duration::max)
                })
            }
            Breach::Force => {
                let removed =
                    both.into_iter().filter(|hold| log.removed(hold, self.later.from).is_some());
                let noticed = removed.map(|hold| {
                    self.until_noticed(plan, log, hold).max(self.until_orphan_ends(plan, log, hold))
                });
                noticed.min()
            }
        }
    }

    /// How long it takes until one of the two holders finds the other one.
    fn until_found(&self, plan: &Plan, log: &Log) -> Duration {
        let both = [self.earlier, self.later];
        let without_renewal = both.into_iter().filter(|hold| !hold.renews);
        if let Some(ends) = without_renewal.map(|hold| self.until_lease_ends(hold)).min() {
            return ends;
        }
        if plan.lets_messages_flow() {
            let [one, other] = both.map(|hold| ttl_of_place(plan, hold) / 3);
            let message = both.map(|hold| until_told(plan, hold)).into_iter().max();
            let found = one + other + plan.round_trip() * 5 + plan.held_up();
            let expiring =
                both.into_iter().filter(|hold| times_asked(plan, log, hold, until(hold)) > 0);
            let lease = expiring.map(|hold| lease(ttl_of_place(plan, hold))).max();
            return found + message.unwrap_or_default() + lease.unwrap_or_default() + ROUNDING;
        }
        let [one, other] = both.map(|hold| lease(ttl_of_place(plan, hold)));
        one + other + one.max(other)
    }

    /// How long it takes until a holder finds that it was removed.
    fn until_noticed(&self, plan: &Plan, log: &Log, removed: &Hold) -> Duration {
        if !removed.renews {
            self.until_lease_ends(removed)
        } else if plan.lets_messages_flow() && times_asked(plan, log, removed, self.later.from) > 1
        {
            lease(ttl_of_place(plan, removed)) + until_told(plan, removed) + ROUNDING
        } else if plan.lets_messages_flow() {
            let noticed = ttl_of_place(plan, removed) / 3 + plan.round_trip() * 3;
            noticed + until_told(plan, removed) + ROUNDING
        } else {
            lease(ttl_of_place(plan, removed)) * 2
        }
    }

    /// When the turn of a guest ends whose keeper died: none tells it, and it lasts no longer than
    /// the keeper's lease could. Zero for others.
    fn until_orphan_ends(&self, plan: &Plan, log: &Log, hold: &Hold) -> Duration {
        let died = log.deaths.get(&hold.keeper).filter(|died| **died < until(hold));
        let died = died.filter(|_| hold.client != hold.keeper);
        let ends = died.map(|died| *died + lease(ttl_of_place(plan, hold)) + ROUNDING);
        ends.map_or(Duration::ZERO, |ends| ends.saturating_sub(self.later.from))
    }

    /// When the lease of a holder ends that does not renew it.
    fn until_lease_ends(&self, hold: &Hold) -> Duration {
        (hold.from + lease(hold.ttl)).saturating_sub(self.later.from)
    }
}

fn lease(ttl: Duration) -> Duration {
    ttl - Duration::from_secs(1) - MAX_CLOCK_SKEW
}

/// How often a holder was asked to leave up to some time, in this turn of its place or an earlier
/// one, by requests that the read that let it in need not show. To remove it asks it too.
fn times_asked(plan: &Plan, log: &Log, hold: &Hold, up_to: Duration) -> usize {
    let since = log.place_held_since(hold).saturating_sub(plan.round_trip() * 2);
    let requests = log.requests_to_leave(hold.keeper, &hold.object);
    requests.filter(|request| (since..up_to).contains(&request.sent)).count()
}

/// The TTL of the rows that a holder uses, which for a guest's are its keeper's.
fn ttl_of_place(plan: &Plan, hold: &Hold) -> Duration {
    if hold.client == hold.keeper { hold.ttl } else { plan.longest_ttl() }
}

/// How long it takes until a holder knows what its keeper knows.
fn until_told(plan: &Plan, hold: &Hold) -> Duration {
    if hold.client == hold.keeper { Duration::ZERO } else { plan.way_between_clients() }
}

fn until(hold: &Hold) -> Duration {
    let (until, _) = hold.until.as_ref().expect("a hold has an end when the run has");
    *until
}

mod tests {
    use bakery_lock::LockMode;
    use bakery_lock::testing::{LossRecord, WriteKind, WriteRecord};

    use super::super::log::HoldEnd;
    use super::super::plan::{Deed, Disks};
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn hold(client: usize, from: u64, until: u64) -> Hold {
        let until = Some((ms(until), HoldEnd::Released));
        Hold { ttl: ms(6_000), until, ..Hold::exclusive(client, "a", ms(from)) }
    }

    fn loss(client: usize, at: u64) -> LossRecord {
        let (object, row_name) = ("a".to_owned(), "entering::".to_owned());
        LossRecord { client, object, row_name, at: ms(at) }
    }

    fn write(client: usize, sent: u64, stamp: i64, kind: WriteKind) -> WriteRecord {
        let (object, sent, acknowledged) = ("a".to_owned(), ms(sent), None);
        WriteRecord { client, object, slot: 0, stamp, sent, acknowledged, kind }
    }

    fn put(round: i64) -> WriteKind {
        WriteKind::Put { round, mode: LockMode::Exclusive, ticket: None, ttl: ms(6_000) }
    }

    /// All messages arrive in time, and take 10 ms there and back.
    fn plan(breach: Breach) -> Plan {
        let mut plan = Plan::with_breach(1, breach);
        plan.deeds.clear();
        plan.conditions.latency = 5;
        plan.let_messages_flow();
        plan
    }

    // Goal: of clients that hold together where rows were lost, the check finds pairs that do so
    // for longer than two thirds of a TTL and five requests, since rows of theirs were lost last.
    // Method: made-up histories, at the bound and above it. A third of the TTL is 2 s.
    #[test]
    fn long_overlaps_after_a_loss_are_found() {
        let plan = plan(Breach::LostRows);
        let found = |losses: &[(usize, u64)], ends| {
            let losses = losses.iter().map(|(client, at)| loss(*client, *at)).collect();
            let holds = vec![hold(0, 0, ends), hold(1, 1_000, 20_000)];
            check(&plan, &Log { holds, losses, ..Log::default() }, "a").is_some()
        };
        let bound = 4_000 + 50 + 10;
        assert!(found(&[], 1_001), "rows of neither were lost");
        assert!(!found(&[], 1_000), "one ends as the other begins");
        assert!(!found(&[(0, 900)], 1_000 + bound));
        assert!(found(&[(0, 900)], 1_001 + bound));
        assert!(!found(&[(0, 900), (1, 3_000)], 3_000 + bound));
        assert!(found(&[(0, 900), (1, 3_000)], 3_001 + bound));
        assert!(found(&[(0, 900), (2, 3_000)], 3_000 + bound), "rows of a third one do not matter");
        assert!(found(&[(0, 900), (1, 1_001 + bound)], 1_002 + bound), "the loss came too late");
        // One that was asked to leave looks at nothing, and has its lease of 4 s.
        let asked = |ends| {
            let holds = vec![hold(0, 0, ends), hold(1, 1_000, 20_000)];
            let writes = vec![write(2, 1_500, 5, WriteKind::Revoke { whom: 0, round: 5 })];
            let log = Log { holds, writes, losses: vec![loss(0, 900)], ..Log::default() };
            check(&plan, &log, "a").is_some()
        };
        assert!(!asked(5_000 + bound));
        assert!(asked(5_001 + bound));
    }

    // Goal: where a holder is removed by force, a third of a TTL and three requests are the bound,
    // and the removal of another client, or from an earlier round, explains nothing.
    // Method: as above.
    #[test]
    fn long_overlaps_after_a_removal_are_found() {
        let plan = plan(Breach::Force);
        let with_stamp = |removed, sent, stamp, ends| {
            let removal = write(3, sent, stamp, WriteKind::Delete { of: removed });
            let announced = |client| write(client, 100, 5, put(5));
            let writes = vec![announced(0), announced(1), removal];
            let holds = vec![hold(0, 200, ends), hold(1, 1_000, 20_000)];
            check(&plan, &Log { holds, writes, ..Log::default() }, "a").is_some()
        };
        let found = |removed, sent, ends| with_stamp(removed, sent, 6, ends);
        let bound = 2_000 + 30 + 10;
        assert!(!found(0, 900, 1_000 + bound));
        assert!(found(0, 900, 1_001 + bound));
        assert!(found(0, 1_001, 1_002), "it was removed later");
        assert!(found(2, 900, 1_001), "another client was removed");
        assert!(!with_stamp(0, 900, 5, 1_001));
        assert!(with_stamp(0, 900, 4, 1_001), "it was an earlier round, tried again");
        assert!(!found(1, 900, 1_000 + bound), "it was let in by what it had read before");
        assert!(found(1, 900, 1_001 + bound));
    }

    // Goal: a holder that was asked to leave, and is removed after that, has its lease at most.
    // Method: as above. A lease is 4 s long.
    #[test]
    fn holder_that_was_asked_to_leave_ends_with_its_lease() {
        let plan = plan(Breach::Force);
        let found = |asked: &[u64], ends| {
            let ask = |sent: &u64| write(3, *sent, 5, WriteKind::Revoke { whom: 0, round: 5 });
            let removal = write(3, 900, 6, WriteKind::Delete { of: 0 });
            let announced = [0, 1].map(|client| write(client, 100, 5, put(5)));
            let writes = announced.into_iter().chain(asked.iter().map(ask)).chain([removal]);
            let holds = vec![hold(0, 200, ends), hold(1, 1_000, 20_000)];
            check(&plan, &Log { holds, writes: writes.collect(), ..Log::default() }, "a").is_some()
        };
        assert!(!found(&[300, 890], 5_010));
        assert!(found(&[300, 890], 5_011));
        assert!(found(&[890], 5_010), "it was asked as it was removed");
        assert!(!found(&[180, 890], 5_010), "the read that let it in need not show it");
        assert!(found(&[179, 890], 5_010), "it was let in without that request");
    }

    // Goal: the same of a later turn of a place whose holder was asked to leave in an earlier one.
    // Method: as above.
    #[test]
    fn turn_of_revoked_place_ends_with_its_lease() {
        let plan = plan(Breach::Force);
        let found = |rounds: [i64; 2], ends| {
            let ask = |sent| write(3, sent, 5, WriteKind::Revoke { whom: 0, round: 5 });
            let removal = write(3, 900, 7, WriteKind::Delete { of: 0 });
            let [first, second] = rounds;
            let writes = vec![
                write(0, 100, first, put(first)),
                write(0, 450, second, put(second)),
                write(1, 100, 5, put(5)),
                ask(300),
                ask(890),
                removal,
            ];
            let holds = vec![hold(0, 200, 400), hold(0, 500, ends), hold(1, 1_000, 20_000)];
            check(&plan, &Log { holds, writes, ..Log::default() }, "a").is_some()
        };
        assert!(!found([5, 5], 5_010));
        assert!(found([5, 5], 5_011));
        assert!(found([5, 6], 5_010), "it asked for another place");
    }

    // Goal: a guest whose keeper died has its turn for the keeper's lease at most.
    // Method: as above. The longest lease is that of the plan's longest TTL.
    #[test]
    fn guest_outlives_its_keeper_for_its_lease() {
        let plan = plan(Breach::Force);
        let found = |keeper_died: bool, ends| {
            let removal = write(3, 900, 2, WriteKind::Delete { of: 0 });
            let writes = vec![write(0, 100, 1, put(1)), write(1, 100, 1, put(1)), removal];
            let guest = Hold { keeper: 0, ..hold(2, 200, ends) };
            let holds = vec![guest, hold(1, 1_000, 20_000)];
            let deaths = keeper_died.then_some((0, ms(800))).into_iter().collect();
            check(&plan, &Log { holds, writes, deaths, ..Log::default() }, "a").is_some()
        };
        let ends = 800 + u64::try_from(lease(plan.longest_ttl()).as_millis()).expect("it is short");
        assert!(!found(true, ends + 10));
        assert!(found(true, ends + 11));
        assert!(found(false, ends + 10), "a keeper that lives tells its guest");
    }

    // Goal: leases are the bound where messages are lost, and that of a holder that does not renew
    // everywhere.
    // Method: as above. A lease is 4 s long.
    #[test]
    fn leases_bound_what_is_not_found_out() {
        let found = |plan: &Plan, renews, ends| {
            let holds = vec![Hold { renews, ..hold(0, 500, ends) }, hold(1, 1_000, 40_000)];
            check(plan, &Log { holds, losses: vec![loss(0, 900)], ..Log::default() }, "a").is_some()
        };
        let mut plan = plan(Breach::LostRows);
        assert!(!found(&plan, false, 4_500));
        assert!(found(&plan, false, 4_501));
        plan.deeds.push((ms(1), Deed::Pause { machine: 0 }));
        assert!(!found(&plan, true, 13_000));
        assert!(found(&plan, true, 13_001));
        assert!(found(&plan, false, 4_501));
    }

    // Goal: without a breach two never hold.
    // Method: the shortest overlap there is.
    #[test]
    fn without_a_breach_nothing_explains_an_overlap() {
        let holds = vec![hold(0, 0, 1_001), hold(1, 1_000, 2_000)];
        let log = Log { holds, losses: vec![loss(0, 900)], ..Log::default() };
        assert!(check(&Plan::new(1, Disks::Synced), &log, "a").is_some());
    }
}
