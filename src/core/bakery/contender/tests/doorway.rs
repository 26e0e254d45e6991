//! From announcing oneself to the first read with a ticket (design section 4, steps 1 to 4).

use super::super::super::sweep::MARK_MAX;
use super::*;

#[test]
fn fast_path_is_one_write_and_one_read() {
    let mut script = Script::announcing(exclusive());
    script.pass(ms(2));
    script.applied();
    script.reads(Read::Object);
    script.pass(ms(2));
    script.sees(&[]);
    script.is_held_for(TTL - s(1) - SKEW - ms(4));
    assert_eq!(script.ops.len(), 2);
    script.release();
    script.gives_back();
}

#[test]
fn any_contender_that_is_seen_makes_it_draw() {
    for (others, ticket) in [(choosing(1), 1), (queued(1, 1), 2), (unreadable(1), 1)] {
        let mut script = Script::looking(exclusive());
        script.sees(&[others]);
        script.draws(ticket);
    }
}

#[test]
fn ticket_is_above_all_that_are_seen() {
    for others in [[queued(1, 41), choosing(2)], [queued(1, 40), queued(2, 41)]] {
        let mut script = Script::looking(exclusive());
        script.sees(&others);
        script.draws(42);
    }
}

#[test]
fn lone_ticket_is_admitted_on_the_lease() {
    let mut script = Script::looking(exclusive());
    script.pass(s(3));
    script.sees(&[choosing(1)]);
    script.draws(1);
    script.pass(s(2));
    script.applied();
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_held_for(TTL - s(1) - SKEW - s(2));
    script.release();
    script.gives_back();
}

#[test]
fn only_choosing_or_earlier_contenders_block() {
    for others in [queued(6, 8), queued(1, 9)] {
        let mut script = Script::settling(exclusive(), &[queued(1, 7)], 8);
        script.sees(&[others]);
        script.is_let_in();
    }
    for (others, question) in [
        (queued(1, 7), front(&[1])),
        (queued(1, 8), front(&[1])),
        (choosing(1), front(&[1])),
        (choosing(9), front(&[9])),
        (unreadable(9), Read::Object),
    ] {
        let mut script = Script::settling(exclusive(), &[queued(1, 7)], 8);
        script.sees(&[others]);
        script.reads(question);
    }
}

#[test]
fn without_its_own_rows_it_is_never_let_in() {
    let mine = Script::looking(exclusive()).claim;
    let other_round = Claim { round: mine.round - 1, ..mine.clone() };
    let odd = StoredRow { round: None, ..StoredRow::entering(&mine) };
    for own in [Vec::new(), rows_of(&other_round), vec![odd]] {
        let mut script = Script::looking(exclusive());
        script.sees_only(&[own]);
        script.fails(Failure::RowMissing);
    }
    let mine = Script::settling(exclusive(), &[queued(1, 7)], 8).claim;
    let [no_ticket, other_ticket] =
        [None, Some(9)].map(|ticket| rows_of(&Claim { ticket, ..mine.clone() }));
    for own in [Vec::new(), no_ticket, other_ticket] {
        let mut script = Script::settling(exclusive(), &[queued(1, 7)], 8);
        script.sees_only(&[own]);
        script.fails(Failure::RowMissing);
    }
}

fn marked(mark: i64) -> Statics {
    Statics { mark: Some(mark), ..Statics::default() }
}

#[test]
fn mark_at_or_after_round_restarts_acquisition_above_it() {
    const HOUR: i64 = 3_600_000_000;
    for (above, enters) in [(-1, true), (0, false), (1, false), (HOUR, false)] {
        for hidden in [false, true] {
            let mut script = Script::looking(exclusive());
            let mark = script.claim.round + above;
            let mine = if hidden { Vec::new() } else { rows_of(&script.claim) };
            script.sees_statics(&[mine], marked(mark));
            if enters {
                if hidden {
                    script.fails(Failure::RowMissing);
                } else {
                    script.is_let_in();
                }
                continue;
            }
            script.deletes();
            script.applied();
            script.announces();
            assert!(script.claim.round > mark, "the sweep hides no row of the new round");
            script.applied();
            script.reads(Read::Object);
            let mine = rows_of(&script.claim);
            script.sees_statics(&[mine], marked(mark));
            script.is_let_in();
        }
    }
    // Once it has looked, it is seen by the client that sweeps, so a mark does not concern it.
    let mut script = Script::settling(exclusive(), &[queued(1, 7)], 8);
    let (mine, mark) = (rows_of(&script.claim), script.claim.round);
    script.sees_statics(&[mine], marked(mark));
    script.is_let_in();
}

#[test]
fn mark_that_no_clock_shows_fails_acquisition() {
    const YEAR: i64 = 365 * 24 * 3_600_000_000;
    let round = Script::looking(exclusive()).claim.round;
    for (mark, fails) in [
        (round + YEAR, false),
        (round + 100 * YEAR, false),
        (MARK_MAX, false),
        (MARK_MAX + 1, true),
        (i64::MAX, true),
    ] {
        let mut script = Script::looking(exclusive());
        script.sees_statics(&[], Statics { mark: Some(mark), ..Statics::default() });
        if fails {
            let ahead = Duration::from_micros((mark - script.told).unsigned_abs());
            script.fails(Failure::MarkOutOfReach { ahead });
        } else {
            script.deletes();
            script.applied();
            script.announces();
            assert!(script.claim.round > mark, "the new round is above it");
        }
    }
}

#[test]
fn largest_number_there_is_leaves_no_ticket() {
    for (largest, ticket) in [(i64::MIN, 1), (-1, 1), (i64::MAX - 1, i64::MAX)] {
        let mut script = Script::looking(exclusive());
        script.sees(&[queued(1, largest)]);
        script.draws(ticket);
    }
    let mut script = Script::looking(exclusive());
    script.sees(&[queued(1, i64::MAX)]);
    script.fails(Failure::NoTicketLeft);
}

#[test]
fn contender_with_another_limit_is_waited_for() {
    let limited = |most| Acquire { mode: Mode::Limited(most), ..exclusive() };
    let other = |mode, ticket| vec![rows_of(&Claim { mode, ..claim(1, 1, ticket) })];
    for ticket in [None, Some(3)] {
        let mut same = Script::looking(limited(2));
        same.sees(&other(Mode::Limited(2), ticket));
        same.is_let_in();
        let modes = [Mode::Limited(2), Mode::Limited(4), Mode::Exclusive, Mode::Shared];
        for mode in modes {
            let mut script = Script::looking(Acquire { mode, ..exclusive() });
            script.sees(&other(Mode::Limited(3), ticket));
            script.draws(ticket.unwrap_or(0) + 1);
        }
    }
}

#[test]
fn shared_and_limited_holders_coexist() {
    let others = |mode, hosts: &[i32]| {
        let claims = hosts.iter().map(|&host| Claim { mode, ..claim(host, 1, Some(3)) });
        claims.map(|claim| rows_of(&claim)).collect::<Vec<_>>()
    };
    let (shared, limited) = (Mode::Shared, Mode::Limited(2));
    let cases = [
        (shared, others(shared, &[1, 2, 3]), true),
        (shared, others(limited, &[1]), false),
        (shared, others(Mode::Exclusive, &[1]), false),
        (limited, others(limited, &[1]), true),
        (limited, others(limited, &[1, 2]), false),
        (limited, others(Mode::Exclusive, &[1]), false),
    ];
    for (mode, others, free) in cases {
        let mut script = Script::looking(Acquire { mode, ..exclusive() });
        script.sees(&others);
        if free {
            script.is_let_in();
        } else {
            script.draws(4);
        }
    }
}

#[test]
fn slow_look_is_sent_back_once() {
    const SECOND: i64 = 1_000_000;
    let mut script = Script::looking(exclusive());
    let began = script.stamp;
    script.stamp += 10 * SECOND;
    let mine = rows_of(&script.claim);
    script.sees_statics(&[mine], marked(began + 5 * SECOND));
    script.deletes();
    script.applied();
    script.announces();
    script.applied();
    script.reads(Read::Object);
    script.stamp += 10 * SECOND;
    let mine = rows_of(&script.claim);
    script.sees_statics(&[mine], marked(began + 15 * SECOND));
    script.is_let_in();
}
