//! Callers that let those go first that share the object, without rows of their own (design section
//! 7, patient writers).

use std::collections::VecDeque;
use std::time::Duration;

use super::callers::Callers;
use super::io::{Caller, CallerId, Now, Output};
use crate::core::bakery::{Mode, Patience, Seen, SeenContender, Snapshot};

/// The longer the last caller has waited, the longer is the pause before the object is read again:
/// that lengthens the wait by at most one part in this many.
const PAUSE_PER_WAIT: u32 = 16;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause after a read that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The callers that let those go first that share the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Yielding {
    callers: Callers<Yields>,
    look: Look,
    /// Who shared the object, as last seen.
    sharers: Vec<SeenContender>,
}

/// A caller that yields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Yields {
    /// Its deadline is when it stops yielding.
    caller: Box<Caller>,
    /// When its timeout passes.
    deadline: Duration,
}

impl AsRef<Caller> for Yields {
    fn as_ref(&self) -> &Caller {
        &self.caller
    }
}

impl Yields {
    fn stop(mut self) -> Box<Caller> {
        self.caller.deadline = self.deadline;
        self.caller
    }
}

/// The next read of the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Look {
    #[default]
    None,
    Due(Duration),
    UnderWay,
}

impl Yielding {
    /// Adds a caller that yields for this long at most.
    pub(super) fn insert(
        &mut self,
        now: Now,
        limit: Duration,
        mut caller: Box<Caller>,
        outputs: &mut VecDeque<Output>,
    ) {
        let deadline = caller.deadline;
        caller.deadline = now.elapsed.saturating_add(limit).min(deadline);
        self.callers.insert(Yields { caller, deadline });
        self.begin_look(outputs);
    }

    fn begin_look(&mut self, outputs: &mut VecDeque<Output>) {
        if self.look != Look::UnderWay {
            self.look = Look::UnderWay;
            outputs.push_back(Output::Look);
        }
    }

    /// Handles a read of the whole object; `None` if it failed. Returns whether none shares it any
    /// more, so that all callers stop yielding.
    pub(super) fn looked(&mut self, now: Now, seen: Option<&Seen>) -> bool {
        let Some(last) = self.callers.last() else {
            self.look = Look::None;
            return false;
        };
        let pause = match seen {
            Some(_) => {
                let waited = now.elapsed.saturating_sub(last.caller.asked);
                let pause = (waited / PAUSE_PER_WAIT).clamp(PAUSE_MIN, PAUSE_MAX);
                pause.mul_f64(0.75 + now.jitter / 2.0)
            }
            None => RETRY_PAUSE,
        };
        self.look = Look::Due(now.elapsed + pause);
        if let Some(seen) = seen {
            let contenders = Snapshot::of(&seen.rows).contenders().into_iter();
            self.sharers = contenders.filter(|seen| seen.mode == Some(Mode::Shared)).collect();
        }
        seen.is_some() && self.sharers.is_empty()
    }

    /// Who shared the object, as last seen.
    pub(super) fn sharers(&self) -> &[SeenContender] {
        &self.sharers
    }

    /// Looks again, if that is due.
    pub(super) fn tick(&mut self, now: Now, outputs: &mut VecDeque<Output>) {
        if matches!(self.look, Look::Due(due) if due <= now.elapsed) {
            self.begin_look(outputs);
        }
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let look = if let Look::Due(due) = self.look { Some(due) } else { None };
        look.into_iter().chain(self.callers.deadline()).min()
    }

    /// Takes out the caller with this number, if it is there.
    pub(super) fn take(&mut self, number: CallerId) -> Option<Box<Caller>> {
        let taken = self.callers.take(number);
        self.taken(taken)
    }

    /// Takes out a caller that has yielded for long enough, or whose timeout has passed.
    pub(super) fn take_due(&mut self, now: Now) -> Option<Box<Caller>> {
        let taken = self.callers.take_expired(now.elapsed);
        self.taken(taken)
    }

    /// Takes out the caller that asked first.
    pub(super) fn take_first(&mut self) -> Option<Box<Caller>> {
        let taken = self.callers.take_first();
        self.taken(taken)
    }

    fn taken(&mut self, taken: Option<Yields>) -> Option<Box<Caller>> {
        if self.callers.is_empty() && self.look != Look::UnderWay {
            self.look = Look::None;
        }
        taken.map(Yields::stop)
    }

    /// The callers that don't wait.
    pub(super) fn tries(&self) -> Vec<CallerId> {
        let callers = self.callers.iter().map(|yields| &yields.caller);
        let tries = callers.filter(|caller| caller.acquire.patience == Patience::Try);
        tries.map(|caller| caller.number).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }
}
