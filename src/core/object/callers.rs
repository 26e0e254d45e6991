//! The callers that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::io::{Caller, CallerId};

/// The callers that wait, each alone or with what belongs to it. Their order is the keeper's.
///
/// Thousands may wait, and each wake-up asks what is due, so no query looks at all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callers<C = Box<Caller>> {
    callers: BTreeMap<CallerId, C>,
    /// The numbers again, by deadline.
    deadlines: BTreeSet<(Duration, CallerId)>,
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
    pub(crate) fn get(&self, number: CallerId) -> Option<&C> {
        self.callers.get(&number)
    }

    /// Takes out the caller with this number, if it is there.
    pub(crate) fn take(&mut self, number: CallerId) -> Option<C> {
        let waiting = self.callers.remove(&number)?;
        self.deadlines.remove(&(waiting.as_ref().deadline, number));
        Some(waiting)
    }

    /// The caller that asked first.
    pub(crate) fn first(&self) -> Option<&C> {
        self.callers.first_key_value().map(|(_, waiting)| waiting)
    }

    /// The caller that asked last.
    pub(crate) fn last(&self) -> Option<&C> {
        self.callers.last_key_value().map(|(_, waiting)| waiting)
    }

    /// All callers, in the order in which they asked.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.callers.values()
    }

    /// Takes out the caller that asked first.
    pub(crate) fn take_first(&mut self) -> Option<C> {
        let (number, _) = self.callers.first_key_value()?;
        self.take(*number)
    }

    /// Takes out all callers, in the order in which they asked.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = C> + use<C> {
        self.deadlines.clear();
        std::mem::take(&mut self.callers).into_values()
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

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::core::bakery::{Acquire, LeaseTerms, Mode, Patience};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn caller(number: CallerId, deadline: u64) -> Caller {
        let acquire = Acquire {
            mode: Mode::Exclusive,
            terms: LeaseTerms::new(s(60), s(1)),
            patience: Patience::Wait,
            renew: true,
            gives_up: None,
            owner: "snap".into(),
        };
        let (min_hold, at_least, asked, deadline) = (s(0), s(0), s(0), s(deadline));
        let (hold_terms, yields) = (None, None);
        Caller { number, acquire, hold_terms, yields, min_hold, at_least, asked, deadline }
    }

    /// Callers with these deadlines, numbered down from 9.
    fn callers(deadlines: &[u64]) -> Callers {
        let mut callers = Callers::default();
        for (number, deadline) in (0..=9).rev().zip(deadlines) {
            callers.insert(Box::new(caller(number, *deadline)));
        }
        callers
    }

    fn expired(callers: &mut Callers, now: Duration) -> Vec<CallerId> {
        std::iter::from_fn(|| callers.take_expired(now)).map(|caller| caller.number).collect()
    }

    #[test]
    fn callers_that_waited_long_enough_are_taken_out() {
        let mut callers = callers(&[9, 3, 6, 7]);
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
        for number in 0..MANY {
            callers.insert(Watched(caller(number, 1 + number % 7), Rc::clone(&looks)));
            assert!(callers.deadline().is_some() && callers.take_expired(s(0)).is_none());
        }
        for number in (0..MANY).step_by(2) {
            assert!(callers.take(number).is_some());
        }
        let expired = std::iter::from_fn(|| callers.take_expired(s(7))).count();
        assert_eq!((expired, looks.get()), (16_000, 2 * 32_000));
    }

    #[test]
    fn caller_is_taken_once() {
        let mut callers = callers(&[9, 3, 6]);
        assert_eq!(callers.take(8).map(|caller| caller.deadline), Some(s(3)));
        assert!(callers.take(8).is_none() && callers.take(5).is_none());
        assert_eq!(callers.deadline(), Some(s(6)));
        assert_eq!(callers.first().map(|caller| caller.number), Some(7));
        let numbers: Vec<_> = callers.take_all().map(|caller| caller.number).collect();
        assert_eq!(numbers, [7, 9]);
        assert!(callers.deadline().is_none() && callers.is_empty());
    }
}
