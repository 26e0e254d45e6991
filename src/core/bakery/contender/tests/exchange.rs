//! Stores that write and read in one round trip (rule M11 of the design of masters).

use super::*;

impl Script {
    /// Announced, but not yet acknowledged.
    fn exchanging(acquire: Acquire) -> Self {
        let mut script = Script::new();
        script.contender = script.contender.exchanging(true);
        script.tell(ContenderInput::Acquire(acquire));
        script.exchanges(Read::Object);
        script.announces();
        script
    }

    /// In the queue behind host 1, which has ticket 7, and asking whether it is still there.
    fn waiting_and_exchanging() -> Self {
        let mut script = Script::exchanging(exclusive());
        script.sees(&[queued(1, 7)]);
        script.exchanges(Read::Object);
        script.draws(8);
        script.sees(&[queued(1, 7)]);
        script.asks_again(front(&[1]));
        script
    }

    /// Reads this, with a write that the script expects next.
    #[track_caller]
    fn exchanges(&mut self, expected: Read) {
        match self.said.pop_front() {
            Some(ContenderOutput::Exchange { op, write, read }) => {
                assert_eq!(read, expected);
                self.said.push_front(ContenderOutput::Write { op, write });
            }
            other => panic!("an exchange was expected, not {other:?}"),
        }
    }

    /// Reads this, and writes its rows once more.
    #[track_caller]
    fn asks_again(&mut self, expected: Read) {
        self.exchanges(expected);
        self.writes_again();
    }
}

#[test]
fn free_object_is_held_after_one_operation() {
    let mut script = Script::exchanging(exclusive());
    script.pass(ms(5));
    script.sees(&[]);
    script.is_held_for(LEASE - ms(5));
    script.is_silent();
    script.release();
    script.gives_back();
}

#[test]
fn waiter_writes_its_rows_with_each_question() {
    let mut script = Script::waiting_and_exchanging();
    script.sees(&[]);
    script.is_let_in();
    script.release();
    script.gives_back();
}

#[test]
fn renewed_waiter_writes_its_newest_rows() {
    let mut script = Script::waiting_and_exchanging();
    script.pass(RENEWAL_DUE);
    script.sees(&[queued(1, 7)]);
    script.checks();
    script.puts();
    script.applied();
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    script.wakes();
    script.asks_again(front(&[1]));
}

#[test]
fn questions_write_acknowledged_rows_only() {
    let mut script = Script::waiting_and_exchanging();
    let drawn = script.writes.last().cloned();
    script.pass(RENEWAL_DUE);
    script.sees(&[queued(1, 7)]);
    script.checks();
    script.puts();
    script.written(WriteOutcome::Unknown);
    loop {
        script.wakes();
        match script.said.pop_front() {
            // The renewal is tried again.
            Some(ContenderOutput::Write { .. }) => script.written(WriteOutcome::Unknown),
            Some(ContenderOutput::Exchange { write, .. }) => {
                return assert_eq!(Some(write), drawn);
            }
            other => panic!("a question was expected, not {other:?}"),
        }
    }
}

#[test]
fn failed_exchange_is_repeated_with_its_stamp() {
    for outcome in [WriteOutcome::Unknown, WriteOutcome::NotApplied] {
        let mut script = Script::exchanging(exclusive());
        script.written(outcome);
        script.sleeps(ms(10));
        script.asks_again(Read::Object);
        script.read_fails(ReadFailure::Failed);
        script.wakes();
        script.asks_again(Read::Object);
        script.sees(&[queued(1, 7)]);
        script.exchanges(Read::Object);
        script.draws(8);
        script.written(outcome);
        script.sleeps(ms(10));
        script.asks_again(Read::Object);
        script.sees(&[queued(1, 7)]);
        script.asks_again(front(&[1]));
        script.written(outcome);
        script.sleeps(ms(10));
        script.asks_again(front(&[1]));
    }
}

#[test]
fn refused_exchange_deletes_what_was_written() {
    let mut refused = Script::exchanging(exclusive());
    refused.written(WriteOutcome::Rejected);
    refused.says(ContenderEvent::Failed(Failure::Rejected));
    refused.says(ContenderEvent::Released);
    assert!(refused.contender.is_idle());

    let mut written = Script::exchanging(exclusive());
    written.read_fails(ReadFailure::Rejected);
    written.fails(Failure::Rejected);

    let mut asked = Script::waiting_and_exchanging();
    asked.written(WriteOutcome::Rejected);
    asked.fails(Failure::Rejected);
}

#[test]
fn rows_count_as_sent_with_the_last_question() {
    let mut script = Script::waiting_and_exchanging();
    script.pass(s(10));
    script.sees(&[queued(1, 7)]);
    script.wakes();
    script.asks_again(front(&[1]));
    let gone_by = terms().gone_by(script.now);
    script.release();
    script.deletes();
    assert_eq!(script.contender.gone_by, gone_by);
}
