//! Giving back, and giving up: legal in every state (design sections 4 and 8).

use super::*;

/// The last moment at which a row that is sent now may still be there: 60 s of TTL, 1 s of skew and
/// 15 s on the way.
const GONE: Duration = s(76);

/// Every state that has rows, with its operation outstanding.
fn states() -> Vec<Script> {
    let mut renewing = Script::held_with_ticket(exclusive());
    renewing.begins_to_renew();
    let mut verifying = Script::held(exclusive());
    verifying.renews();
    let held = [Script::held(exclusive()), Script::held_with_ticket(exclusive())];
    Script::acquiring().into_iter().chain(held).chain([renewing, verifying]).collect()
}

#[test]
fn every_state_can_be_left_and_late_answers_change_nothing() {
    for mut script in states() {
        let superseded = script.outstanding();
        script.release();
        script.deletes();
        for outcome in [WriteOutcome::Applied, WriteOutcome::Unknown, WriteOutcome::Rejected] {
            script.tell(ContenderInput::Written { op: superseded, outcome });
        }
        let mine = rows_of(&script.claim);
        for answer in [Ok(mine), Ok(Vec::new()), Err(ReadFailure::Rejected)] {
            let statics = Statics::default();
            script.tell(ContenderInput::Read { op: superseded, rows: answer, statics });
        }
        script.is_silent();
        script.applied();
        script.says(ContenderEvent::Released);
        // The place is as good as new.
        script.acquire(exclusive());
        script.applied();
        script.reads(Read::Object);
        script.sees(&[]);
        script.is_let_in();
        script.release();
        script.gives_back();
    }
}

#[test]
fn release_of_a_waiter_is_reported_above_the_last_one() {
    let mut script = Script::waiting(exclusive());
    // By a clock that is ahead.
    let stamp = script.stamp + 1_000_000;
    let before = LastRelease { client: 9, round: 3, handoff: ms(4), stamp };
    let mine = rows_of(&script.claim);
    script.sees_statics(&[mine], Statics { last_release: Some(before), mark: None });
    script.is_let_in();
    script.release();
    let released = script.deletes().expect("it waited");
    assert_eq!((released.client, released.round), (ME.client, script.claim.round));
    assert_eq!(released.stamp, before.stamp + 1);

    let mut first = Script::waiting(exclusive());
    first.sees(&[]);
    first.is_let_in();
    first.release();
    let released = first.deletes().expect("it waited");
    assert_eq!(released.stamp, first.writes.last().expect("it was deleted").stamp);
}

#[test]
fn others_tell_nothing_of_their_release() {
    let mut shared = Script::waiting(Acquire { mode: Mode::Shared, ..exclusive() });
    shared.sees(&[]);
    shared.is_let_in();
    for mut script in [
        Script::held(exclusive()),
        Script::held_with_ticket(exclusive()),
        Script::waiting(exclusive()),
        shared,
    ] {
        script.release();
        assert_eq!(script.deletes(), None);
    }
}

#[test]
fn state_that_waits_to_try_again_can_be_left() {
    let mut announcing = Script::announcing(exclusive());
    announcing.written(WriteOutcome::Unknown);
    announcing.release();
    announcing.gives_back();

    let mut drawing = Script::drawing(exclusive(), &[queued(1, 7)], 8);
    drawing.written(WriteOutcome::NotApplied);
    drawing.release();
    drawing.gives_back();

    let mut waiting = Script::waiting(exclusive());
    waiting.sees(&[queued(1, 7)]);
    waiting.release();
    waiting.gives_back();
}

#[test]
fn delete_keeps_its_stamp_until_acknowledged() {
    for mut script in states() {
        script.release();
        script.deletes();
        for outcome in [WriteOutcome::Unknown, WriteOutcome::NotApplied, WriteOutcome::Rejected] {
            script.written(outcome);
            script.wakes();
            script.writes_again();
        }
        script.applied();
        script.says(ContenderEvent::Released);
    }
}

#[test]
fn delete_is_repeated_until_rows_expire() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    let last_sent = script.now;
    script.pass(s(1));
    script.release();
    script.deletes();
    let mut tries = 1;
    loop {
        script.pass(ms(100));
        script.written(WriteOutcome::Unknown);
        script.wakes();
        if script.contender.is_idle() {
            break;
        }
        script.writes_again();
        tries += 1;
    }
    script.says(ContenderEvent::Released);
    assert_eq!(script.now - last_sent, GONE);
    assert!((100..150).contains(&tries), "{tries} tries in {GONE:?}");
}

#[test]
fn delete_that_is_never_answered_ends_with_the_rows() {
    for mut script in states() {
        script.release();
        script.deletes();
        script.wakes();
        script.says(ContenderEvent::Released);
        assert!(script.contender.is_idle());
    }
}

#[test]
fn stale_ticket_is_not_deleted_again() {
    let mut script = Script::waiting(exclusive());
    script.release();
    script.gives_back();
    script.acquire(exclusive());
    script.release();
    script.gives_back();
}

#[test]
fn restart_can_be_cancelled() {
    let restarting = || {
        let mut script = Script::looking(exclusive());
        script.sleeps(s(58));
        script.deletes();
        script
    };
    let mut before_it_begins = restarting();
    before_it_begins.release();
    before_it_begins.applied();
    before_it_begins.says(ContenderEvent::Released);

    let mut once_begun = restarting();
    once_begun.applied();
    once_begun.announces();
    once_begun.release();
    once_begun.gives_back();
}

#[test]
fn restart_waits_until_the_old_rows_are_gone() {
    let mut script = Script::looking(exclusive());
    script.sleeps(s(58));
    script.deletes();
    script.sleeps(GONE - s(58));
    script.announces();
    script.applied();
    script.reads(Read::Object);
}

#[test]
fn contender_that_slept_past_every_ttl_still_deletes() {
    for input in [ContenderInput::Tick, ContenderInput::Release] {
        let mut held = Script::held_with_ticket(exclusive());
        held.pass(s(3_600));
        held.tell(input);
        held.loses(Loss::Expired);
        held.deletes();
        held.sleeps(TIME_IN_FLIGHT);
        held.says(ContenderEvent::Released);
    }
    // A restart that is due already, and is cancelled at once.
    let mut restarting = Script::looking(exclusive());
    restarting.sleeps(s(58));
    restarting.deletes();
    restarting.pass(s(3_600));
    restarting.release();
    restarting.gives_back();
}

#[test]
fn release_may_be_repeated() {
    let mut script = Script::held(Acquire { renew: false, ..exclusive() });
    script.sleeps(s(58));
    script.loses(Loss::Expired);
    script.deletes();
    script.release();
    script.is_silent();
    script.applied();
    script.says(ContenderEvent::Released);
}

#[test]
fn idle_one_has_nothing_to_give_back() {
    let mut script = Script::new();
    script.release();
    script.says(ContenderEvent::Released);
    script.acquire(exclusive());
}

#[test]
fn release_that_time_ends_is_reported_once() {
    let mut script = Script::held(exclusive());
    script.release();
    script.deletes();
    script.written(WriteOutcome::Unknown);
    // The machine sleeps until the rows are gone in any case.
    script.now += TTL * 10;
    script.release();
    script.says(ContenderEvent::Released);
    script.is_silent();
    script.acquire(exclusive());
}
