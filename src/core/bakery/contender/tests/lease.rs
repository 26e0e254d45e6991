//! What time does: leases that end, and their renewal (design section 5).

use super::*;

#[test]
fn lease_that_ends_while_waiting_begins_a_new_round() {
    for mut script in Script::acquiring() {
        script.sleeps(LEASE);
        script.deletes();
        script.applied();
        // With a larger round, as the script sees to.
        script.announces();
        script.applied();
        script.reads(Read::Object);
        script.sees(&[]);
        script.is_held_for(LEASE);
        script.release();
        script.gives_back();
    }
}

#[test]
fn answer_after_the_lease_is_not_taken() {
    let mut announcing = Script::announcing(exclusive());
    announcing.pass(LEASE);
    announcing.applied();
    announcing.deletes();

    let mut looking = Script::looking(exclusive());
    looking.pass(LEASE);
    looking.sees(&[]);
    looking.deletes();

    let mut drawing = Script::drawing(exclusive(), &[queued(1, 7)], 8);
    drawing.pass(LEASE);
    drawing.applied();
    drawing.deletes();

    let mut settling = Script::settling(exclusive(), &[queued(1, 7)], 8);
    settling.pass(LEASE);
    settling.sees(&[]);
    settling.deletes();

    let mut confirming = Script::waiting(exclusive());
    confirming.pass(LEASE);
    confirming.sees(&[]);
    confirming.deletes();
}

#[test]
fn answer_just_in_time_is_taken() {
    let mut script = Script::looking(exclusive());
    script.pass(LEASE - ms(1));
    script.sees(&[]);
    script.is_held_for(ms(1));
}

#[test]
fn late_ticket_does_not_outlive_its_announcement() {
    let mut script = Script::looking(exclusive());
    script.pass(s(50));
    script.sees(&[choosing(1)]);
    script.draws(1);
    script.pass(s(8));
    script.applied();
    script.deletes();
}

#[test]
fn holder_that_slept_too_long_is_lost() {
    for input in [ContenderInput::Tick, ContenderInput::Release] {
        let mut script = Script::held_with_ticket(exclusive());
        script.pass(LEASE);
        script.tell(input);
        script.is_lost(Loss::Expired);
    }
}

#[test]
fn lost_guard_is_never_held_again() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    let renewal = script.outstanding();
    script.sleeps(LEASE - RENEWAL_DUE);
    script.loses(Loss::Expired);
    script.deletes();
    script.tell(ContenderInput::Written { op: renewal, outcome: WriteOutcome::Applied });
    script.is_silent();
    script.applied();
    script.says(ContenderEvent::Released);
}

#[test]
fn holder_renews_at_a_third_of_its_ttl_and_reads_back() {
    for mut script in [Script::held(exclusive()), Script::held_with_ticket(exclusive())] {
        for _ in 0..5 {
            script.renews();
            script.sees(&[]);
        }
    }
}

#[test]
fn waiting_one_renews_as_a_holder_does() {
    for renew in [true, false] {
        let mut script = Script::waiting(Acquire { renew, ..exclusive() });
        script.renews_while_it_waits();
        script.sees(&[]);
        // The question took 20 s, and so a second is the most that is paused.
        script.sleeps(s(1));
        script.reads(front(&[1]));
        script.sees(&[]);
        script.is_held_for(LEASE - s(1));
    }
}

#[test]
fn one_that_settles_late_renews_first() {
    let mut script = Script::drawing(exclusive(), &[queued(1, 7)], 8);
    script.pass(s(30));
    script.applied();
    script.checks();
    script.puts();
    script.applied();
    script.checks();
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_held_for(LEASE);
}

#[test]
fn without_renewal_it_holds_for_one_lease() {
    let mut script = Script::held_with_ticket(Acquire { renew: false, ..exclusive() });
    for _ in 0..57 {
        script.pass(s(1));
        script.tell(ContenderInput::Tick);
        script.is_silent();
    }
    script.sleeps(s(1));
    script.is_lost(Loss::Expired);
}

#[test]
fn lease_counts_from_the_first_try_of_its_renewal() {
    let mut script = Script::held_with_ticket(exclusive());
    script.begins_to_renew();
    script.pass(s(7));
    script.applied();
    script.is_renewed_for(LEASE - s(7));
    script.reads(Read::Object);
}

#[test]
fn unknown_renewal_keeps_the_old_deadline() {
    let mut script = Script::held(exclusive());
    let old_deadline = script.now + LEASE;
    script.begins_to_renew();
    for outcome in [WriteOutcome::Unknown, WriteOutcome::NotApplied, WriteOutcome::Unknown] {
        script.pass(s(5));
        script.written(outcome);
        script.wakes();
        script.writes_again();
    }
    assert_eq!(script.contender.deadline(), Some(old_deadline));
    script.applied();
    script.is_renewed_for(LEASE - s(15) - ms(10 + 20 + 40));
    script.reads(Read::Object);
}

#[test]
fn unknown_renewal_does_not_stop_a_waiter() {
    let mut script = Script::waiting(exclusive());
    let began = script.now;
    script.pass(RENEWAL_DUE);
    script.sees(&[queued(1, 7)]);
    script.checks();
    script.puts();
    script.written(WriteOutcome::Unknown);
    let question = loop {
        script.wakes();
        match script.said.pop_front() {
            // The renewal is tried again.
            Some(ContenderOutput::Write { .. }) => script.written(WriteOutcome::Unknown),
            Some(ContenderOutput::Read { read, .. }) => break read,
            other => panic!("a question was expected, not {other:?}"),
        }
    };
    assert_eq!(question, front(&[1]));
    script.sees(&[]);
    // On the old lease. The renewal begins again, because the rows of a holder say since when.
    script.is_held_for(LEASE - (script.now - began));
    script.wakes();
    script.renews_now();
}

#[test]
fn late_renewal_does_not_count() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    script.pass(LEASE - RENEWAL_DUE);
    script.applied();
    script.is_lost(Loss::Expired);
}

#[test]
fn renewal_acknowledged_just_in_time_counts() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    script.pass(LEASE - RENEWAL_DUE - ms(1));
    script.applied();
    script.is_renewed_for(RENEWAL_DUE + ms(1));
    // The next one is overdue, and comes as soon as this one is read back.
    script.reads(Read::Object);
    script.sees(&[]);
    script.checks();
    script.puts();
}

#[test]
fn holder_without_rows_is_lost_and_writes_none() {
    let fresh: fn() -> Script = || Script::held_with_ticket(exclusive());
    let mine = fresh().claim;
    let other_round = Claim { round: mine.round - 1, ..mine.clone() };
    let without_ticket = rows_of(&Claim { ticket: None, ..mine });
    for rows in [Vec::new(), rows_of(&other_round), without_ticket] {
        let mut before = fresh();
        before.sleeps(RENEWAL_DUE);
        before.reads(Read::Contender(ME));
        before.sees_only(std::slice::from_ref(&rows));
        before.is_lost(Loss::RowMissing);

        let mut after = fresh();
        after.renews();
        after.sees_only(&[rows]);
        after.is_lost(Loss::RowMissing);
    }
}

#[test]
fn waiter_whose_rows_are_gone_begins_a_new_round() {
    let before = |script: &mut Script| {
        script.pass(RENEWAL_DUE);
        script.sees(&[queued(1, 7)]);
        script.reads(Read::Contender(ME));
    };
    let after = |script: &mut Script| script.renews_while_it_waits();
    let mine = Script::waiting(exclusive()).claim;
    for rows in [Vec::new(), rows_of(&Claim { ticket: None, ..mine })] {
        for comes_to_read in [&before as &dyn Fn(&mut Script), &after] {
            let mut script = Script::waiting(exclusive());
            comes_to_read(&mut script);
            script.sees_only(std::slice::from_ref(&rows));
            script.deletes();
            script.applied();
            script.announces();
        }
    }
}

#[test]
fn no_renewal_goes_without_a_read() {
    let mut before = Script::held(exclusive());
    before.sleeps(RENEWAL_DUE);
    before.reads(Read::Contender(ME));
    for failure in [ReadFailure::Failed, ReadFailure::Rejected, ReadFailure::Failed] {
        before.pass(s(5));
        before.read_fails(failure);
        before.wakes();
        before.reads(Read::Contender(ME));
    }
    // A holder that can't read loses its lease like one that can't write.
    before.pass(LEASE - RENEWAL_DUE);
    before.read_fails(ReadFailure::Failed);
    before.is_lost(Loss::Expired);

    let mut after = Script::held(exclusive());
    after.renews();
    for _ in 0..40 {
        after.pass(s(1));
        after.read_fails(ReadFailure::Rejected);
        after.wakes();
        after.reads(Read::Object);
    }
    after.sees(&[]);
    // The next renewal is overdue by now.
    after.checks();
    after.puts();
}

#[test]
fn of_two_holders_the_earlier_one_is_lost() {
    let held = |since: i64| {
        let mine = Script::held(exclusive());
        let granted = mine.told / 1000;
        (mine, granted + since)
    };
    // Equal times are ordered by the contender; the script's own is host 5.
    for (since, host, is_lost) in
        [(1, 1, true), (0, 6, true), (0, 1, false), (-1, 6, false), (i64::MIN / 2, 9, false)]
    {
        let (mut script, theirs) = held(since);
        script.renews();
        let other = Claim { held_since: Some(theirs), ..claim(host, 1, Some(3)) };
        script.sees(&[rows_of(&other)]);
        if is_lost {
            let holder = format!("host {host}");
            script.is_lost(Loss::Conflict { holder });
        } else {
            script.is_silent();
        }
    }
}

#[test]
fn only_holders_that_conflict_take_a_lock_away() {
    let later = |mode, host| Claim { mode, held_since: Some(i64::MAX), ..claim(host, 1, None) };
    let holds_beside = |mine: Mode, theirs: &[Mode]| {
        let mut script = Script::held(Acquire { mode: mine, ..exclusive() });
        script.renews();
        let others = (10..).zip(theirs).map(|(host, theirs)| rows_of(&later(*theirs, host)));
        script.sees(&others.collect::<Vec<_>>());
        script.said.is_empty()
    };
    let limited = Mode::Limited(2);
    assert!(!holds_beside(Mode::Exclusive, &[Mode::Shared]));
    assert!(!holds_beside(Mode::Shared, &[Mode::Exclusive]));
    assert!(holds_beside(Mode::Shared, &[Mode::Shared, Mode::Shared]));
    assert!(holds_beside(limited, &[limited]));
    assert!(!holds_beside(limited, &[limited, limited]));
    assert!(!holds_beside(limited, &[Mode::Shared]));
    // A waiter takes nothing away, nor does a holder of an earlier round.
    let mut script = Script::held(exclusive());
    script.renews();
    let earlier = Claim { round: 5_000_000, held_since: Some(4_999), ..claim(9, 1, None) };
    script.sees(&[choosing(1), queued(2, 3), rows_of(&earlier)]);
    script.is_silent();
}

#[test]
fn refused_renewal_ends_waiting_but_not_holding() {
    let mut waiting = Script::waiting(exclusive());
    waiting.pass(RENEWAL_DUE);
    waiting.sees(&[queued(1, 7)]);
    waiting.checks();
    waiting.puts();
    waiting.written(WriteOutcome::Rejected);
    waiting.fails(Failure::Rejected);

    let mut unread = Script::waiting(exclusive());
    unread.pass(RENEWAL_DUE);
    unread.sees(&[queued(1, 7)]);
    unread.reads(Read::Contender(ME));
    unread.read_fails(ReadFailure::Rejected);
    unread.fails(Failure::Rejected);

    let mut held = Script::held(exclusive());
    held.begins_to_renew();
    held.written(WriteOutcome::Rejected);
    held.sleeps(ms(10));
    held.writes_again();
    held.sleeps(LEASE - RENEWAL_DUE - ms(10));
    held.is_lost(Loss::Expired);
}

#[test]
fn holder_renews_before_it_is_due_when_asked() {
    let mut script = Script::held_with_ticket(exclusive());
    script.pass(s(5));
    script.tell(ContenderInput::Renew);
    script.checks();
    script.puts();
    script.pass(s(1));
    script.applied();
    script.is_renewed_for(LEASE - s(1));
    script.reads(Read::Object);
    script.sees(&[]);
    // The next one is due by the new lease.
    script.sleeps(RENEWAL_DUE - s(1));
    script.checks();
    script.puts();
}

#[test]
fn renewal_request_follows_one_under_way() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    script.tell(ContenderInput::Renew);
    script.is_silent();
    script.pass(s(1));
    script.applied();
    script.is_renewed_for(LEASE - s(1));
    // The first one is read back all the same.
    script.reads(Read::Object);
    script.sees(&[]);
    script.renews_now();
}

#[test]
fn renewal_request_joins_one_that_has_not_written() {
    let mut script = Script::held(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.reads(Read::Contender(ME));
    script.tell(ContenderInput::Renew);
    script.is_silent();
    script.sees(&[]);
    script.puts();
    script.applied();
    script.is_renewed_for(LEASE);
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_silent();
}

#[test]
fn holder_confirms_its_rows_when_asked() {
    for renew in [true, false] {
        let mut script = Script::held(Acquire { renew, ..exclusive() });
        script.tell(ContenderInput::Confirm);
        script.reads(Read::Contender(ME));
        script.sees(&[]);
        script.says(ContenderEvent::Confirmed);
        script.is_silent();

        script.tell(ContenderInput::Confirm);
        script.reads(Read::Contender(ME));
        script.sees_only(&[]);
        script.is_lost(Loss::RowMissing);
    }
}

#[test]
fn confirmation_comes_from_a_later_read() {
    let mut script = Script::held(exclusive());
    script.renews();
    script.tell(ContenderInput::Confirm);
    script.is_silent();
    script.sees(&[]);
    script.reads(Read::Contender(ME));
    script.read_fails(ReadFailure::Failed);
    script.sleeps(ms(10));
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    script.says(ContenderEvent::Confirmed);
    script.is_silent();

    // The read of a renewal does as well, where it begins later.
    let mut renewing = Script::held(exclusive());
    renewing.begins_to_renew();
    renewing.tell(ContenderInput::Confirm);
    renewing.is_silent();
    renewing.applied();
    renewing.is_renewed_for(LEASE);
    renewing.reads(Read::Object);
    renewing.sees(&[]);
    renewing.says(ContenderEvent::Confirmed);
    renewing.is_silent();
}

#[test]
fn only_holders_renew_and_confirm() {
    for input in [ContenderInput::Renew, ContenderInput::Confirm] {
        let mut script = Script::waiting(exclusive());
        script.tell(input.clone());
        script.is_silent();
        let mut idle = Script::new();
        idle.tell(input);
        idle.is_silent();
    }
}
