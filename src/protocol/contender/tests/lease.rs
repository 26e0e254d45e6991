//! What time does: leases that end, and their renewal (design section 5).

use super::*;

#[test]
fn a_lease_that_ends_before_it_is_let_in_begins_a_new_round() {
    for (mut script, rows) in [
        (Script::announcing(exclusive()), Rows::Entering),
        (Script::looking(exclusive()), Rows::Entering),
        (Script::drawing(exclusive(), &[queued(1, 7)], 8), Rows::Both),
        (Script::settling(exclusive(), &[queued(1, 7)], 8), Rows::Both),
        (Script::waiting(exclusive()), Rows::Both),
    ] {
        script.sleeps(LEASE);
        script.deletes(rows);
        script.applied();
        // With a larger round, as the script sees to.
        script.announces();
        script.applied();
        script.reads(Read::Object);
        script.sees(&[]);
        script.is_held_for(LEASE);
        script.release();
        script.gives_back(Rows::Entering);
    }
}

#[test]
fn an_answer_after_the_lease_is_not_taken() {
    let mut announcing = Script::announcing(exclusive());
    announcing.pass(LEASE);
    announcing.applied();
    announcing.deletes(Rows::Entering);

    let mut looking = Script::looking(exclusive());
    looking.pass(LEASE);
    looking.sees(&[]);
    looking.deletes(Rows::Entering);

    let mut drawing = Script::drawing(exclusive(), &[queued(1, 7)], 8);
    drawing.pass(LEASE);
    drawing.applied();
    drawing.deletes(Rows::Both);

    let mut settling = Script::settling(exclusive(), &[queued(1, 7)], 8);
    settling.pass(LEASE);
    settling.sees(&[]);
    settling.deletes(Rows::Both);

    let mut confirming = Script::waiting(exclusive());
    confirming.sees_only(&[]);
    confirming.reads(Read::Object);
    confirming.pass(LEASE);
    confirming.sees(&[]);
    confirming.deletes(Rows::Both);
}

#[test]
fn an_answer_just_in_time_is_taken() {
    let mut script = Script::looking(exclusive());
    script.pass(LEASE - ms(1));
    script.sees(&[]);
    script.is_held_for(ms(1));
}

#[test]
fn a_ticket_does_not_outlive_the_announcement_that_it_came_too_late_to_renew() {
    let mut script = Script::looking(exclusive());
    script.pass(s(50));
    script.sees(&[choosing(1)]);
    script.draws(1);
    script.pass(s(8));
    script.applied();
    script.deletes(Rows::Both);
}

#[test]
fn a_holder_that_slept_too_long_has_lost_it_whatever_it_is_told_first() {
    for input in [Input::Tick, Input::Release] {
        let mut script = Script::held_with_ticket(exclusive());
        script.pass(LEASE);
        script.tell(input);
        script.is_lost(Loss::Expired, Rows::Both);
    }
}

#[test]
fn what_is_lost_is_never_held_again() {
    let mut script = Script::held(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.puts();
    let renewal = script.outstanding();
    script.sleeps(LEASE - RENEWAL_DUE);
    script.says(Event::Lost(Loss::Expired));
    script.deletes(Rows::Entering);
    script.tell(Input::Written { op: renewal, outcome: WriteOutcome::Applied });
    script.is_silent();
    script.applied();
    script.says(Event::Released);
}

#[test]
fn a_holder_renews_at_a_third_of_its_ttl_and_reads_back() {
    for mut script in [Script::held(exclusive()), Script::held_with_ticket(exclusive())] {
        for _ in 0..5 {
            script.renews();
            script.sees(&[]);
        }
    }
}

#[test]
fn a_waiting_one_renews_as_a_holder_does() {
    for renew in [true, false] {
        let mut script = Script::waiting(Acquire { renew, ..exclusive() });
        script.renews_while_it_waits();
        script.sees(&[]);
        // The question took 20 s, and so a second is the most that is paused.
        script.sleeps(s(1));
        script.reads(Read::Entering(id(1)));
        script.sees_only(&[]);
        script.reads(Read::Object);
        script.sees(&[]);
        script.is_held_for(LEASE - s(1));
    }
}

#[test]
fn one_that_settles_late_renews_first() {
    let mut script = Script::drawing(exclusive(), &[queued(1, 7)], 8);
    script.pass(s(30));
    script.applied();
    script.puts();
    script.applied();
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_held_for(LEASE);
}

#[test]
fn without_renewal_it_holds_for_one_lease() {
    let mut script = Script::held_with_ticket(Acquire { renew: false, ..exclusive() });
    for _ in 0..57 {
        script.pass(s(1));
        script.tell(Input::Tick);
        script.is_silent();
    }
    script.sleeps(s(1));
    script.is_lost(Loss::Expired, Rows::Both);
}

#[test]
fn a_lease_counts_from_the_first_try_of_its_renewal() {
    let mut script = Script::held_with_ticket(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.puts();
    script.pass(s(7));
    script.applied();
    script.is_renewed_for(LEASE - s(7));
    script.reads(Read::Contender(ME));
}

#[test]
fn a_renewal_of_unknown_fate_keeps_the_old_deadline_until_one_is_acknowledged() {
    let mut script = Script::held(exclusive());
    let old_deadline = script.now + LEASE;
    script.sleeps(RENEWAL_DUE);
    script.puts();
    for outcome in [WriteOutcome::Unknown, WriteOutcome::NotApplied, WriteOutcome::Unknown] {
        script.pass(s(5));
        script.written(outcome);
        script.wakes();
        script.writes_again();
    }
    assert_eq!(script.contender.deadline(), Some(old_deadline));
    script.applied();
    script.is_renewed_for(LEASE - s(15) - ms(10 + 20 + 40));
    script.reads(Read::Contender(ME));
}

#[test]
fn a_renewal_of_unknown_fate_does_not_keep_a_waiting_one_from_asking() {
    let mut script = Script::waiting(exclusive());
    script.pass(RENEWAL_DUE);
    script.sees_only(&[]);
    script.puts();
    script.written(WriteOutcome::Unknown);
    script.reads(Read::Object);
    script.sees(&[]);
    // On the old lease; the renewal goes on where it was.
    script.is_held_for(LEASE - RENEWAL_DUE);
    script.sleeps(ms(10));
    script.writes_again();
    script.applied();
    script.is_renewed_for(LEASE - ms(10));
    script.reads(Read::Contender(ME));
}

#[test]
fn a_renewal_acknowledged_after_the_old_deadline_does_not_count() {
    let mut script = Script::held(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.puts();
    script.pass(LEASE - RENEWAL_DUE);
    script.applied();
    script.is_lost(Loss::Expired, Rows::Entering);
}

#[test]
fn a_renewal_acknowledged_just_in_time_counts() {
    let mut script = Script::held(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.puts();
    script.pass(LEASE - RENEWAL_DUE - ms(1));
    script.applied();
    script.is_renewed_for(RENEWAL_DUE + ms(1));
    // The next one is overdue, and comes as soon as this one is read back.
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    script.puts();
}

#[test]
fn rows_that_do_not_read_back_end_it() {
    let mut held = Script::held(exclusive());
    held.renews();
    held.sees_only(&[]);
    held.is_lost(Loss::RowMissing, Rows::Entering);

    let mine = Script::waiting(exclusive()).claim;
    for rows in [Vec::new(), rows_of(&mine)[..1].to_vec()] {
        let mut waiting = Script::waiting(exclusive());
        waiting.renews_while_it_waits();
        waiting.sees_only(&[rows]);
        waiting.fails(Failure::RowMissing, Rows::Both);
    }
}

#[test]
fn reading_back_is_repeated_and_does_not_keep_the_rows_from_being_renewed() {
    let mut script = Script::held(exclusive());
    script.renews();
    for _ in 0..21 {
        script.pass(ms(400));
        script.read_fails(ReadFailure::Rejected);
        script.pass(ms(500));
        script.tell(Input::Tick);
        script.reads(Read::Contender(ME));
    }
    script.pass(ms(800));
    script.read_fails(ReadFailure::Failed);
    script.sleeps(RENEWAL_DUE - ms(21 * 900 + 800));
    script.puts();
    script.applied();
    script.is_renewed_for(LEASE);
    script.reads(Read::Contender(ME));
}

#[test]
fn a_refused_renewal_ends_waiting_but_not_holding() {
    let mut waiting = Script::waiting(exclusive());
    waiting.pass(RENEWAL_DUE);
    waiting.sees_only(&[queued(1, 7)]);
    waiting.puts();
    waiting.written(WriteOutcome::Rejected);
    waiting.fails(Failure::Rejected, Rows::Both);

    let mut held = Script::held(exclusive());
    held.sleeps(RENEWAL_DUE);
    held.puts();
    held.written(WriteOutcome::Rejected);
    held.sleeps(ms(10));
    held.writes_again();
    held.sleeps(LEASE - RENEWAL_DUE - ms(10));
    held.is_lost(Loss::Expired, Rows::Entering);
}

#[test]
fn a_holder_renews_before_it_is_due_when_asked() {
    let mut script = Script::held_with_ticket(exclusive());
    script.pass(s(5));
    script.tell(Input::Renew);
    script.puts();
    script.pass(s(1));
    script.applied();
    script.is_renewed_for(LEASE - s(1));
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    // The next one is due by the new lease.
    script.sleeps(RENEWAL_DUE - s(1));
    script.puts();
}

#[test]
fn a_renewal_asked_for_while_another_one_is_under_way_follows_it() {
    let mut script = Script::held(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.puts();
    script.tell(Input::Renew);
    script.is_silent();
    script.pass(s(1));
    script.applied();
    script.is_renewed_for(LEASE - s(1));
    script.puts();
    script.applied();
    script.is_renewed_for(LEASE);
    script.reads(Read::Contender(ME));
}

#[test]
fn a_holder_confirms_its_rows_when_asked() {
    for renew in [true, false] {
        let mut script = Script::held(Acquire { renew, ..exclusive() });
        script.tell(Input::Confirm);
        script.reads(Read::Contender(ME));
        script.sees(&[]);
        script.says(Event::Confirmed);
        script.is_silent();

        script.tell(Input::Confirm);
        script.reads(Read::Contender(ME));
        script.sees_only(&[]);
        script.is_lost(Loss::RowMissing, Rows::Entering);
    }
}

#[test]
fn a_confirmation_comes_from_a_read_that_began_after_it_was_asked_for() {
    let mut script = Script::held(exclusive());
    script.renews();
    script.tell(Input::Confirm);
    script.is_silent();
    script.sees(&[]);
    script.reads(Read::Contender(ME));
    script.read_fails(ReadFailure::Failed);
    script.sleeps(ms(10));
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    script.says(Event::Confirmed);
}

#[test]
fn who_does_not_hold_renews_and_confirms_nothing() {
    for input in [Input::Renew, Input::Confirm] {
        let mut script = Script::waiting(exclusive());
        script.tell(input.clone());
        script.is_silent();
        let mut idle = Script::new();
        idle.tell(input);
        idle.is_silent();
    }
}
