//! The callers of one object within one client, first come first served.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{Span, debug};

use crate::engine::guard::LockGuard;
use crate::engine::hold_limit::HoldTerms;
use crate::error::LockError;
use crate::protocol::Acquire;

/// The answer to a caller: a guard, `None` for a try that found the lock taken, or an error.
pub(crate) type Reply = Result<Option<LockGuard>, LockError>;

/// A caller that waits for a lock.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Its number among the client's callers.
    pub(crate) number: u64,
    /// The acquisition it requests.
    pub(crate) acquire: Acquire,
    /// How long it may hold the lock.
    pub(crate) hold_terms: Option<HoldTerms>,
    /// When it asked.
    pub(crate) asked: Duration,
    /// When its timeout passes.
    pub(crate) deadline: Duration,
    /// Where the answer goes. The answer carries the guard itself, so that a caller that left in
    /// the meantime leaves no lock behind.
    pub(crate) reply: oneshot::Sender<Reply>,
    /// The root span of the acquisition.
    pub(crate) span: Span,
}

impl Caller {
    /// Whether it still waits for the answer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Answers the caller.
    pub(crate) fn answer(self, answer: Reply) {
        if let Err(error) = &answer {
            debug!(parent: &self.span, %error, "not obtained");
        }
        // A caller that stopped waiting needs no answer; a guard in it is dropped and so released.
        let _ = self.reply.send(answer);
    }
}

/// The queue of callers. One contender stands for all of them: it acquires for the first caller,
/// and if that one leaves, the next may take over its place.
///
/// Thousands may wait, and the runner queries the queue at each wake-up, so no query looks at all
/// of them.
#[derive(Debug, Default)]
pub(crate) struct CallerQueue {
    /// By place, in order of arrival.
    callers: BTreeMap<u64, Caller>,
    next_place: u64,
    /// The places again, by deadline.
    deadlines: BTreeSet<(Duration, u64)>,
    /// The place of each caller's number.
    places: BTreeMap<u64, u64>,
}

impl CallerQueue {
    /// Puts a caller at the end.
    pub(crate) fn push(&mut self, caller: Caller) {
        let place = self.next_place;
        self.next_place += 1;
        self.deadlines.insert((caller.deadline, place));
        self.places.insert(caller.number, place);
        self.callers.insert(place, caller);
    }

    /// The next caller to serve.
    pub(crate) fn first(&self) -> Option<&Caller> {
        self.callers.first_key_value().map(|(_, caller)| caller)
    }

    /// Takes out the next caller to serve.
    pub(crate) fn pop(&mut self) -> Option<Caller> {
        let (place, _) = self.callers.first_key_value()?;
        self.take(*place)
    }

    /// Whether no caller waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// When the next timeout of a caller passes.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes out the callers whose timeout has passed at `now`.
    pub(crate) fn take_expired(&mut self, now: Duration) -> Vec<Caller> {
        let mut expired = Vec::new();
        while let Some((_, place)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            expired.extend(self.take(*place));
        }
        expired
    }

    /// Removes the caller with this number, if it is there.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(place) = self.places.get(&number).copied() {
            self.take(place);
        }
    }

    fn take(&mut self, place: u64) -> Option<Caller> {
        let caller = self.callers.remove(&place)?;
        self.deadlines.remove(&(caller.deadline, place));
        self.places.remove(&caller.number);
        Some(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{LeaseTerms, Mode, Patience};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn caller(number: u64, deadline: u64) -> (Caller, oneshot::Receiver<Reply>) {
        let (reply, answer) = oneshot::channel();
        let acquire = Acquire {
            mode: Mode::Exclusive,
            terms: LeaseTerms::new(s(60), s(1)),
            patience: Patience::Wait,
            renew: true,
            owner: "snap".to_owned(),
        };
        let deadline = s(deadline);
        let span = Span::none();
        let (hold_terms, asked) = (None, s(0));
        (Caller { number, acquire, hold_terms, asked, deadline, reply, span }, answer)
    }

    /// A queue of callers with these deadlines, numbered down from 9: a number says nothing about
    /// the order.
    fn queue(deadlines: &[u64]) -> (CallerQueue, Vec<oneshot::Receiver<Reply>>) {
        let mut queue = CallerQueue::default();
        let mut answers = Vec::new();
        for (number, deadline) in (0..=9).rev().zip(deadlines) {
            let (caller, answer) = caller(number, *deadline);
            queue.push(caller);
            answers.push(answer);
        }
        (queue, answers)
    }

    fn deadlines(callers: &[Caller]) -> Vec<Duration> {
        callers.iter().map(|caller| caller.deadline).collect()
    }

    /// The deadlines of all remaining callers, in the order of service.
    fn rest(mut queue: CallerQueue) -> Vec<Duration> {
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert!(queue.is_empty() && queue.first().is_none() && queue.deadline().is_none());
        assert!(queue.places.is_empty(), "{:?}", queue.places);
        deadlines(&rest)
    }

    #[test]
    fn callers_are_served_in_the_order_in_which_they_came() {
        let (mut queue, _answers) = queue(&[9, 3, 6, 3]);
        assert!(!queue.is_empty());
        assert_eq!(queue.deadline(), Some(s(3)));
        assert_eq!(queue.first().map(|caller| caller.deadline), Some(s(9)));
        assert!(queue.take_expired(s(2)).is_empty());
        assert_eq!(queue.pop().map(|caller| caller.deadline), Some(s(9)));
        assert_eq!(rest(queue), [s(3), s(6), s(3)]);
    }

    #[test]
    fn callers_that_waited_long_enough_are_taken_out() {
        let (mut queue, _answers) = queue(&[9, 3, 6, 7]);
        assert_eq!(deadlines(&queue.take_expired(s(6))), [s(3), s(6)]);
        assert_eq!(queue.deadline(), Some(s(7)));
        assert_eq!(rest(queue), [s(9), s(7)]);
    }

    #[test]
    fn a_caller_that_left_is_removed() {
        let (mut queue, _answers) = queue(&[9, 3, 6]);
        for number in [8, 8, 5] {
            // The second one, the same again, and one that never came.
            queue.remove(number);
        }
        assert_eq!(queue.deadline(), Some(s(6)));
        assert_eq!(rest(queue), [s(9), s(6)]);
    }

    #[test]
    fn a_caller_whose_future_was_dropped_does_not_wait() {
        let (caller, answer) = caller(1, 3);
        assert!(caller.is_waiting());
        drop(answer);
        assert!(!caller.is_waiting());
    }
}
