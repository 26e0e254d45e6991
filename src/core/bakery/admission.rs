//! Admission: derives from rows the queue, the blockers, and the contenders that are let in.
//!
//! The rule of admission is here and nowhere else (design section 4). [`snapshot`] is what a read
//! shows, and which contenders it shows in the way; [`blockers`] are those, until they have left.

mod blockers;
mod snapshot;

pub(crate) use self::blockers::Blockers;
pub(crate) use self::snapshot::{Denial, SeenContender, Snapshot};
use super::row::{ContenderId, Mode};
use super::seeded_bug::SeededBug;

/// Whether a contender of `mode` is let in while contenders of these modes still block it.
///
/// Only conflicting contenders block. For a limited one, only those with the same limit are
/// counted: a single other one keeps it out, however few holders there are. Two limits would each
/// count by their own number.
pub(crate) fn admits(mode: Mode, blockers: impl IntoIterator<Item = Option<Mode>>) -> bool {
    let mut limited = 0;
    for blocker in blockers {
        match (mode, blocker) {
            (Mode::Limited(mine), Some(Mode::Limited(theirs))) if mine == theirs => limited += 1,
            (Mode::Limited(_), Some(Mode::Exclusive))
                if SeededBug::LimitedCountsExclusive.is_planted() =>
            {
                limited += 1;
            }
            (Mode::Exclusive | Mode::Shared | Mode::Limited(_), _) => return false,
        }
    }
    match mode {
        Mode::Exclusive | Mode::Shared => true,
        Mode::Limited(most) => limited < most,
    }
}

/// Whether a contender of mode `theirs` can keep out one of mode `mine`. An unreadable one can.
fn conflicts(mine: Mode, theirs: Option<Mode>) -> bool {
    !matches!((mine, theirs), (Mode::Shared, Some(Mode::Shared)))
}

/// A place in the queue: the smaller one is let in earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueuePosition {
    /// The ticket.
    pub(crate) ticket: i64,
    /// Breaks ties.
    pub(crate) contender: ContenderId,
}

/// What the rows of one contender together say about it. Without an `entering::` row it is absent
/// and has no standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// It announced itself without a ticket of that round: it chooses, or holds on the fast path.
    Choosing {
        /// Its round.
        round: i64,
        /// How it wants to hold the object.
        mode: Mode,
    },
    /// It is in the queue, or holds.
    Queued {
        /// Its round.
        round: i64,
        /// How it wants to hold the object.
        mode: Mode,
        /// Its ticket.
        ticket: i64,
    },
    /// One of its rows can't be interpreted.
    Unreadable,
}

impl Standing {
    /// The round, if known.
    pub(crate) fn round(self) -> Option<i64> {
        match self {
            Standing::Choosing { round, .. } | Standing::Queued { round, .. } => Some(round),
            Standing::Unreadable => None,
        }
    }

    /// The mode, if known.
    pub(crate) fn mode(self) -> Option<Mode> {
        match self {
            Standing::Choosing { mode, .. } | Standing::Queued { mode, .. } => Some(mode),
            Standing::Unreadable => None,
        }
    }

    /// The ticket, once one was drawn for the round.
    pub(crate) fn ticket(self) -> Option<i64> {
        match self {
            Standing::Queued { ticket, .. } => Some(ticket),
            Standing::Choosing { .. } | Standing::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::{Claim, StoredRow};
    use super::*;

    const ME: ContenderId = id(1);

    const fn id(host: i32) -> ContenderId {
        ContenderId { host, client: 0, slot: 0 }
    }

    fn claim(host: i32, round: i64, ticket: Option<i64>, mode: Mode) -> Claim {
        let owner = format!("h{host}").into();
        Claim { contender: id(host), round, mode, ticket, owner, held_since: None }
    }

    fn rows(claims: &[Claim]) -> Vec<StoredRow> {
        claims.iter().map(StoredRow::entering).collect()
    }

    fn hosts(blockers: &Blockers) -> Vec<i32> {
        blockers.iter().map(|(contender, _)| contender.host).collect()
    }

    #[test]
    fn admission_by_mode() {
        use Mode::{Exclusive, Limited, Shared};
        let cases: &[(Mode, &[Option<Mode>], bool)] = &[
            (Exclusive, &[], true),
            (Exclusive, &[Some(Shared)], false),
            (Exclusive, &[Some(Limited(2))], false),
            (Exclusive, &[None], false),
            (Shared, &[], true),
            (Shared, &[Some(Exclusive)], false),
            (Shared, &[Some(Limited(2))], false),
            (Shared, &[None], false),
            (Limited(2), &[], true),
            (Limited(2), &[Some(Limited(2))], true),
            (Limited(2), &[Some(Limited(2)), Some(Limited(2))], false),
            (Limited(2), &[Some(Limited(3))], false),
            (Limited(3), &[Some(Limited(3)), Some(Limited(2))], false),
            (Limited(2), &[Some(Exclusive)], false),
            (Limited(2), &[Some(Shared)], false),
            (Limited(2), &[None], false),
        ];
        for (mode, blockers, expected) in cases {
            assert_eq!(admits(*mode, blockers.iter().copied()), *expected, "{mode:?} {blockers:?}");
        }
    }

    #[test]
    fn shared_ones_do_not_block_each_other() {
        let snapshot = Snapshot::of(&rows(&[
            claim(2, 5, None, Mode::Shared),
            claim(3, 5, None, Mode::Exclusive),
        ]));
        assert_eq!(hosts(&snapshot.blockers_before_ticket(ME, Mode::Shared)), [3]);
        assert_eq!(hosts(&snapshot.blockers_before_ticket(ME, Mode::Exclusive)), [2, 3]);
    }

    #[test]
    fn standing_follows_from_the_row() {
        let mode = Mode::Exclusive;
        let row = |ticket| StoredRow::entering(&claim(2, 5, ticket, mode));
        let standing = |rows: &[StoredRow]| Snapshot::of(rows).standing(id(2));
        assert_eq!(standing(&[row(None)]), Some(Standing::Choosing { round: 5, mode }));
        let queued = row(Some(3));
        let expected = Some(Standing::Queued { round: 5, mode, ticket: 3 });
        assert_eq!(standing(std::slice::from_ref(&queued)), expected);
        let unknown = StoredRow { row_name: "tickets::".to_owned(), ..queued.clone() };
        assert_eq!(standing(&[unknown.clone(), queued.clone()]), Some(Standing::Unreadable));
        assert_eq!(standing(&[queued, unknown]), Some(Standing::Unreadable));
        assert_eq!(standing(&[]), None);
    }

    #[test]
    fn contenders_are_told_in_the_order_of_the_queue() {
        let mode = Mode::Exclusive;
        let claims =
            [claim(2, 9, Some(3), mode), claim(3, 9, Some(2), mode), claim(4, 9, None, mode)];
        let told = Snapshot::of(&rows(&claims)).contenders();
        let seen = |claim: &Claim, holds| SeenContender { holds, ..SeenContender::from(claim) };
        let [second, first, choosing] = &claims;
        let (holds, waits) = (Some(true), Some(false));
        assert_eq!(told, [seen(choosing, waits), seen(first, holds), seen(second, waits)]);
    }

    #[test]
    fn holders_are_told_from_waiters() {
        use Mode::{Exclusive, Limited, Shared};
        let holding = |claim: Claim| Claim { held_since: Some(claim.since_millis()), ..claim };
        let holders = |claims: &[Claim]| -> Vec<_> {
            let all = Snapshot::of(&rows(claims)).contenders();
            let holders = all.iter().filter(|seen| seen.holds.expect("all can be read"));
            holders.map(|seen| seen.contender.host).collect()
        };
        let exclusive = |host, round, ticket| claim(host, round, ticket, Exclusive);
        // On the fast path, with one that came later; then without the holder.
        assert_eq!(holders(&[exclusive(1, 5, None), exclusive(2, 6, Some(1))]), [1]);
        assert_eq!(holders(&[exclusive(1, 5, None), exclusive(2, 6, None)]), [1]);
        assert_eq!(holders(&[exclusive(2, 6, Some(1))]), [2]);
        // A newcomer is in the doorway.
        assert_eq!(holders(&[exclusive(2, 6, Some(1)), exclusive(3, 7, None)]), [2]);
        // The rows of a holder outweigh all else.
        assert_eq!(holders(&[exclusive(1, 5, None), holding(exclusive(2, 6, Some(1)))]), [2]);
        assert_eq!(holders(&[exclusive(1, 5, Some(1)), holding(exclusive(2, 6, Some(2)))]), [2]);
        // Those that hold together.
        let shared = |host, round, ticket| claim(host, round, ticket, Shared);
        let both = [shared(1, 5, None), shared(2, 6, None)];
        assert_eq!(holders(&both), [1, 2]);
        let [one, two] = both;
        let writer = exclusive(3, 7, Some(1));
        assert_eq!(holders(&[one, two, writer, shared(4, 8, Some(2))]), [1, 2]);
        let limited = |host, round, ticket| claim(host, round, ticket, Limited(2));
        let three = [limited(1, 5, None), limited(2, 6, None), limited(3, 7, Some(1))];
        assert_eq!(holders(&three), [1, 2]);

        let odd = StoredRow { mode: None, ..rows(&[exclusive(1, 9, None)])[0].clone() };
        let with_odd = [vec![odd], rows(&[exclusive(2, 5, Some(1))])].concat();
        let told = Snapshot::of(&with_odd).contenders();
        let holds: Vec<_> = told.iter().map(|seen| (seen.contender.host, seen.holds)).collect();
        assert_eq!(holds, [(1, None), (2, Some(false))], "what can't be read blocks");
    }

    // Goal: of two holders whose rows conflict, exactly one finds that the other is later, whatever
    // their clocks showed.
    // Method: all pairs of some times, none of which is older than its round.
    #[test]
    fn exactly_one_of_two_holders_gives_way() {
        for round in [i64::MIN, 0, 5_000] {
            let times = [round / 1_000, 5, 6, 3_600_000, i64::MAX];
            for (mine, theirs) in times.iter().flat_map(|mine| times.map(|theirs| (*mine, theirs)))
            {
                let held = |host, since| Claim {
                    held_since: Some(since),
                    ..claim(host, round, None, Mode::Exclusive)
                };
                let both = [held(2, mine), held(3, theirs)];
                let snapshot = Snapshot::of(&rows(&both));
                let lost = both.map(|it| snapshot.later_holder(&it).is_some());
                assert_eq!(lost, [mine <= theirs, theirs < mine], "{mine} {theirs} in {round}");
            }
        }
    }

    #[test]
    fn blockers_are_those_choosing_or_before_me() {
        let mode = Mode::Exclusive;
        let snapshot = Snapshot::of(&rows(&[
            claim(1, 9, Some(5), mode),
            claim(0, 9, Some(5), mode),
            claim(2, 9, Some(5), mode),
            claim(3, 9, Some(4), mode),
            claim(4, 9, Some(6), mode),
            claim(5, 9, None, mode),
        ]));
        let mine = QueuePosition { ticket: 5, contender: ME };
        assert_eq!(hosts(&snapshot.blockers_of(mine, mode)), [0, 3, 5]);
        assert_eq!(hosts(&snapshot.blockers_before_ticket(ME, mode)), [0, 2, 3, 4, 5]);
    }

    #[test]
    fn look_removes_exactly_the_pair_it_looked_at() {
        let mode = Mode::Exclusive;
        let mine = QueuePosition { ticket: 5, contender: ME };
        let before = [claim(2, 9, Some(3), mode), claim(3, 9, None, mode)];
        let left = |rows: &[StoredRow]| {
            let mut blockers = Snapshot::of(&tests::rows(&before)).blockers_of(mine, mode);
            blockers.look(id(3), &Snapshot::of(rows), mine, mode);
            hosts(&blockers)
        };
        assert_eq!(left(&[]), [2], "absent");
        assert_eq!(left(&rows(&[claim(3, 10, None, mode)])), [2], "another round");
        assert_eq!(left(&rows(&[claim(3, 9, Some(6), mode)])), [2], "a ticket after mine");
        assert_eq!(left(&rows(&[claim(3, 9, Some(4), mode)])), [2, 3], "a ticket before mine");
        assert_eq!(left(&rows(&[claim(3, 9, None, mode)])), [2, 3], "still choosing");
        let odd = StoredRow { round: None, ..rows(&[claim(3, 9, None, mode)])[0].clone() };
        assert_eq!(left(&[odd]), [2, 3], "unreadable");
    }

    #[test]
    fn confirming_read_only_removes_blockers() {
        let mode = Mode::Exclusive;
        let mine = QueuePosition { ticket: 5, contender: ME };
        let before = [claim(2, 9, Some(3), mode), claim(3, 9, None, mode), claim(4, 9, None, mode)];
        let mut blockers = Snapshot::of(&rows(&before)).blockers_of(mine, mode);
        let now = [claim(3, 9, None, mode), claim(4, 11, None, mode), claim(6, 1, Some(1), mode)];
        let now = Snapshot::of(&rows(&now));
        assert!(blockers.confirm(&now, mine, mode), "two left");
        assert_eq!(hosts(&blockers), [3]);
        assert!(!blockers.admit(mode));
        assert!(!blockers.confirm(&now, mine, mode), "none left since");
        assert!(blockers.confirm(&Snapshot::default(), mine, mode));
        assert!(blockers.admit(mode));
    }

    #[test]
    fn known_ticket_survives_a_look_at_the_entering_row() {
        let mode = Mode::Exclusive;
        let mine = QueuePosition { ticket: 5, contender: ME };
        let queued = rows(&[claim(2, 9, Some(3), mode)]);
        let mut blockers = Snapshot::of(&queued).blockers_of(mine, mode);
        assert!(!blockers.look(id(2), &Snapshot::of(&queued[..1]), mine, mode));
        assert_eq!(blockers.iter().next().and_then(|(_, standing)| standing.ticket()), Some(3));
        assert_eq!(blockers.contenders()[0].owner, "h2");
    }
}
