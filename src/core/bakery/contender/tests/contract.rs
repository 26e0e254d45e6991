//! What the runner relies on: retries, back-off, refusals, misuse (design sections 5 and 8).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[test]
fn unknown_write_is_repeated_with_its_stamp_and_rows() {
    for outcome in [WriteOutcome::Unknown, WriteOutcome::NotApplied] {
        let mut announcing = Script::announcing(exclusive());
        announcing.written(outcome);
        announcing.sleeps(ms(10));
        announcing.writes_again();
        announcing.applied();
        announcing.reads(Read::Object);
        announcing.sees(&[]);
        // The lease counts from the first try.
        announcing.is_held_for(s(58) - ms(10));

        let mut drawing = Script::drawing(exclusive(), &[queued(1, 7)], 8);
        drawing.written(outcome);
        drawing.sleeps(ms(10));
        drawing.writes_again();
        drawing.applied();
        drawing.reads(Read::Object);
        drawing.sees(&[]);
        drawing.is_held_for(s(58) - ms(10));
    }
}

#[test]
fn rejected_write_fails_acquisition() {
    let mut announcing = Script::announcing(exclusive());
    announcing.written(WriteOutcome::Unknown);
    announcing.sleeps(ms(10));
    announcing.writes_again();
    announcing.written(WriteOutcome::Rejected);
    // What was tried before may still be applied.
    announcing.fails(Failure::Rejected);

    // A first try that is refused leaves nothing to delete.
    let mut nothing_sent = Script::announcing(exclusive());
    nothing_sent.written(WriteOutcome::Rejected);
    nothing_sent.says(ContenderEvent::Failed(Failure::Rejected));
    nothing_sent.says(ContenderEvent::Released);
    nothing_sent.is_silent();
    assert!(nothing_sent.contender.is_idle());

    let mut drawing = Script::drawing(exclusive(), &[queued(1, 7)], 8);
    drawing.written(WriteOutcome::Rejected);
    drawing.fails(Failure::Rejected);
}

#[test]
fn pauses_after_failures_grow_are_bounded_and_spread() {
    for (jitter, share) in [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)] {
        let mut script = Script::announcing(exclusive());
        script.jitter = jitter;
        for pause in [10, 20, 40, 80, 160, 320, 500, 500, 500] {
            script.written(WriteOutcome::Unknown);
            script.sleeps(ms(pause).mul_f64(share));
            script.writes_again();
        }
        // What succeeds is forgiven.
        script.applied();
        script.reads(Read::Object);
        for pause in [10, 20, 40, 80, 160, 320, 500, 500] {
            script.read_fails(ReadFailure::Failed);
            script.sleeps(ms(pause).mul_f64(share));
            script.reads(Read::Object);
        }
    }
}

#[test]
fn pauses_grow_after_slow_failed_reads() {
    let mut looking = Script::looking(exclusive());
    for pause in [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 4_800, 4_800] {
        looking.pass(ms(300));
        looking.read_fails(ReadFailure::Failed);
        looking.sleeps(ms(pause));
        looking.reads(Read::Object);
    }
}

#[test]
fn operation_that_is_never_answered_does_not_hang_it() {
    let mut script = Script::waiting(exclusive());
    for _ in 0..3 {
        script.sleeps(s(58));
        script.deletes();
        script.applied();
        script.announces();
        script.applied();
        script.reads(Read::Object);
        script.sees(&[queued(1, 7)]);
        script.draws(8);
    }
}

#[test]
fn one_acquisition_at_a_time() {
    for mut script in Script::acquiring().into_iter().chain([Script::held(exclusive())]) {
        let acquire = ContenderInput::Acquire(exclusive());
        let second = catch_unwind(AssertUnwindSafe(|| script.handle(acquire)));
        let message = second.expect_err("a second acquisition is a bug of the caller");
        assert_eq!(message.downcast_ref(), Some(&"one acquisition at a time"));
        script.check_contract();
        script.release();
        assert!(matches!(script.writes_something().change, Change::Delete { .. }));
    }
}

#[test]
fn answer_of_the_wrong_kind_is_a_bug_of_the_caller() {
    let mut announcing = Script::announcing(exclusive());
    let (rows, statics) = (Ok(Vec::new()), Statics::default());
    let read = ContenderInput::Read { op: announcing.outstanding(), rows, statics };
    catch_unwind(AssertUnwindSafe(|| announcing.handle(read))).expect_err("it was a write");

    let mut looking = Script::looking(exclusive());
    let outcome = WriteOutcome::Applied;
    let written = ContenderInput::Written { op: looking.outstanding(), outcome };
    catch_unwind(AssertUnwindSafe(|| looking.handle(written))).expect_err("it was a read");
}

#[test]
fn renewal_confirms_the_hold() {
    let waiting = Script::waiting(exclusive());
    assert_eq!(waiting.contender.held_claim(), None);
    for mut script in [Script::held(exclusive()), Script::held_with_ticket(exclusive())] {
        let claim = Claim { held_since: script.held_since, ..script.claim.clone() };
        assert_eq!(script.contender.held_claim(), Some(&claim));
        script.release();
        assert_eq!(script.contender.held_claim(), None);
        script.gives_back();
    }
}

#[test]
fn contenders_ahead_come_from_the_last_read_of_all() {
    let ahead = |script: &Script| {
        let ahead = script.contender.ahead().iter();
        ahead.map(|ahead| (ahead.owner.clone(), ahead.ticket)).collect::<Vec<_>>()
    };
    let host = |host, ticket| (format!("host {host}"), ticket);
    let mut script = Script::looking(exclusive());
    script.sees(&[queued(1, 7), choosing(2), queued(3, 6)]);
    script.draws(8);
    assert_eq!(ahead(&script), [host(2, None), host(3, Some(6)), host(1, Some(7))]);
    script.applied();
    script.reads(Read::Object);
    script.sees(&[queued(1, 7)]);
    script.reads(front(&[1]));
    assert_eq!(ahead(&script), [host(1, Some(7))]);
    // A new round still knows; a new acquisition does not.
    script.sleeps(s(58));
    script.deletes();
    script.applied();
    script.announces();
    assert_eq!(ahead(&script), [host(1, Some(7))]);
    script.release();
    script.gives_back();
    script.acquire(exclusive());
    assert_eq!(ahead(&script), []);
}
