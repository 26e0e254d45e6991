//! The callers of one object within one client.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{Span, debug};

use crate::core::bakery::Acquire;
use crate::core::turns::HoldTerms;
use crate::engine::guard::LockGuard;
use crate::error::LockError;

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
    /// How long the lock stays taken from its grant on, even if it is released before.
    pub(crate) min_hold: Duration,
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

impl AsRef<Caller> for Caller {
    fn as_ref(&self) -> &Caller {
        self
    }
}

/// The callers that wait, each alone or with what it waits for. Their order is the keeper's.
///
/// Thousands may wait, and they are queried at each wake-up, so no query looks at all of them.
#[derive(Debug)]
pub(crate) struct Callers<C = Caller> {
    /// By number.
    callers: BTreeMap<u64, C>,
    /// The numbers again, by deadline.
    deadlines: BTreeSet<(Duration, u64)>,
}

impl<C> Default for Callers<C> {
    fn default() -> Self {
        Callers { callers: BTreeMap::new(), deadlines: BTreeSet::new() }
    }
}

impl<C: AsRef<Caller>> Callers<C> {
    /// Adds a caller.
    pub(crate) fn insert(&mut self, waiting: C) {
        let Caller { number, deadline, .. } = *waiting.as_ref();
        self.deadlines.insert((deadline, number));
        self.callers.insert(number, waiting);
    }

    /// The caller with this number.
    pub(crate) fn get(&self, number: u64) -> Option<&C> {
        self.callers.get(&number)
    }

    /// Takes out the caller with this number, if it is there.
    pub(crate) fn take(&mut self, number: u64) -> Option<C> {
        let waiting = self.callers.remove(&number)?;
        self.deadlines.remove(&(waiting.as_ref().deadline, number));
        Some(waiting)
    }

    /// Takes out the caller that asked first.
    pub(crate) fn take_first(&mut self) -> Option<C> {
        let (number, _) = self.callers.first_key_value()?;
        self.take(*number)
    }

    /// Takes out all callers, in the order in which they asked.
    pub(crate) fn take_all(&mut self) -> Vec<C> {
        self.deadlines.clear();
        std::mem::take(&mut self.callers).into_values().collect()
    }

    /// Takes out the caller whose timeout passed first, if one has at `now`.
    pub(crate) fn take_expired(&mut self, now: Duration) -> Option<C> {
        let (_, number) = *self.deadlines.first().filter(|(due, _)| *due <= now)?;
        self.take(number)
    }

    /// When the next timeout of a caller passes.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::core::bakery::{LeaseTerms, Mode, Patience};

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
            gives_up: None,
            owner: "snap".to_owned(),
        };
        let deadline = s(deadline);
        let span = Span::none();
        let (hold_terms, min_hold, asked) = (None, s(0), s(0));
        (Caller { number, acquire, hold_terms, min_hold, asked, deadline, reply, span }, answer)
    }

    /// Callers with these deadlines, numbered down from 9.
    fn callers(deadlines: &[u64]) -> (Callers, Vec<oneshot::Receiver<Reply>>) {
        let mut callers = Callers::default();
        let mut answers = Vec::new();
        for (number, deadline) in (0..=9).rev().zip(deadlines) {
            let (caller, answer) = caller(number, *deadline);
            callers.insert(caller);
            answers.push(answer);
        }
        (callers, answers)
    }

    fn expired(callers: &mut Callers, now: Duration) -> Vec<u64> {
        std::iter::from_fn(|| callers.take_expired(now)).map(|caller| caller.number).collect()
    }

    #[test]
    fn callers_that_waited_long_enough_are_taken_out() {
        let (mut callers, _answers) = callers(&[9, 3, 6, 7]);
        assert_eq!(callers.deadline(), Some(s(3)));
        assert!(expired(&mut callers, s(2)).is_empty());
        assert_eq!(expired(&mut callers, s(6)), [8, 7]);
        assert_eq!(callers.deadline(), Some(s(7)));
        assert!(callers.get(8).is_none() && callers.get(9).is_some());
    }

    /// A caller, and how often anything looked at it.
    struct Watched(Caller, Rc<Cell<usize>>);

    impl AsRef<Caller> for Watched {
        fn as_ref(&self) -> &Caller {
            self.1.set(self.1.get() + 1);
            &self.0
        }
    }

    // Goal: callers that wait cost the same, however many there are.
    // Method: of many, ask for the next deadline each time that one comes, let some leave and
    // others expire, and count the looks at callers.
    #[test]
    fn each_caller_is_looked_at_twice() {
        const MANY: u64 = 32_000;
        let looks = Rc::new(Cell::new(0));
        let mut callers = Callers::default();
        let mut answers = Vec::new();
        for number in 0..MANY {
            let (caller, answer) = caller(number, 1 + number % 7);
            callers.insert(Watched(caller, Rc::clone(&looks)));
            answers.push(answer);
            assert!(callers.deadline().is_some() && callers.take_expired(s(0)).is_none());
        }
        for number in (0..MANY).step_by(2) {
            assert!(callers.take(number).is_some());
        }
        let expired = std::iter::from_fn(|| callers.take_expired(s(7))).count();
        assert_eq!((expired, looks.get()), (16_000, 2 * 32_000));
    }

    #[test]
    fn a_caller_is_taken_once() {
        let (mut callers, _answers) = callers(&[9, 3, 6]);
        assert_eq!(callers.take(8).map(|caller| caller.deadline), Some(s(3)));
        assert!(callers.take(8).is_none() && callers.take(5).is_none());
        assert_eq!(callers.deadline(), Some(s(6)));
        let numbers: Vec<_> = callers.take_all().iter().map(|caller| caller.number).collect();
        assert_eq!(numbers, [7, 9]);
        assert!(callers.deadline().is_none() && callers.take_all().is_empty());
    }

    #[test]
    fn a_caller_whose_future_was_dropped_does_not_wait() {
        let (caller, answer) = caller(1, 3);
        assert!(caller.is_waiting());
        drop(answer);
        assert!(!caller.is_waiting());
    }
}
