//! The callers that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::messages::{Caller, CallerId};

/// The callers that wait. Their order is the keeper's.
///
/// Thousands may wait, and each wake-up asks what is due, so no query looks at all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Callers {
    callers: BTreeMap<CallerId, Caller>,
    /// The numbers again, by deadline.
    deadlines: BTreeSet<(Duration, CallerId)>,
}

impl Callers {
    pub(super) fn insert(&mut self, caller: Caller) {
        self.deadlines.insert((caller.deadline, caller.number));
        self.callers.insert(caller.number, caller);
    }

    pub(super) fn get(&self, number: CallerId) -> Option<&Caller> {
        self.callers.get(&number)
    }

    /// Takes out the caller with this number, if it is there.
    pub(super) fn take(&mut self, number: CallerId) -> Option<Caller> {
        let caller = self.callers.remove(&number)?;
        self.deadlines.remove(&(caller.deadline, number));
        Some(caller)
    }

    /// The caller that asked first.
    pub(super) fn first(&self) -> Option<&Caller> {
        self.callers.first_key_value().map(|(_, caller)| caller)
    }

    /// Takes out the caller that asked first.
    pub(super) fn take_first(&mut self) -> Option<Caller> {
        let (number, _) = self.callers.first_key_value()?;
        self.take(*number)
    }

    /// Takes out the caller whose timeout passed first, if one has.
    pub(super) fn take_expired(&mut self, now: Duration) -> Option<Caller> {
        let (_, number) = *self.deadlines.first().filter(|(due, _)| *due <= now)?;
        self.take(number)
    }

    /// When the next timeout of a caller passes.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }
}
