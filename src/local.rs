//! The callers of one object within one client, first come first served.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{Span, debug};

use crate::error::LockError;
use crate::guard::LockGuard;
use crate::hold::HoldTerms;
use crate::protocol::Acquire;

/// What a caller gets: a guard, `None` when it only tried and the lock was taken, or an error.
pub(crate) type Reply = Result<Option<LockGuard>, LockError>;

/// Somebody who waits for a lock.
#[derive(Debug)]
pub(crate) struct Caller {
    /// How it wants to acquire.
    pub(crate) acquire: Acquire,
    /// How long it may hold.
    pub(crate) hold_terms: Option<HoldTerms>,
    /// When it asked.
    pub(crate) asked: Duration,
    /// Until when it waits.
    pub(crate) deadline: Duration,
    /// Where the answer goes. The guard itself travels in it, so that a caller who left in the
    /// meantime leaves no lock behind.
    pub(crate) reply: oneshot::Sender<Reply>,
    /// The root span of the acquisition.
    pub(crate) span: Span,
}

impl Caller {
    /// Answers the caller.
    pub(crate) fn answer(self, answer: Reply) {
        if let Err(error) = &answer {
            debug!(parent: &self.span, %error, "not obtained");
        }
        // Who stopped waiting doesn't mind; a guard in the answer is dropped and given back.
        let _ = self.reply.send(answer);
    }
}

/// The queue of callers. One contender stands for all of them: the first is the one it acquires
/// for, and when that one leaves, the next may take over its place.
#[derive(Debug, Default)]
pub(crate) struct CallerQueue {
    callers: VecDeque<Caller>,
}

impl CallerQueue {
    /// Puts a caller at the end.
    pub(crate) fn push(&mut self, caller: Caller) {
        self.callers.push_back(caller);
    }

    /// Who is served next.
    pub(crate) fn first(&self) -> Option<&Caller> {
        self.callers.front()
    }

    /// Takes out who is served next.
    pub(crate) fn pop(&mut self) -> Option<Caller> {
        self.callers.pop_front()
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// When the next caller has waited long enough.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.callers.iter().map(|caller| caller.deadline).min()
    }

    /// Takes out those who have waited long enough at `now`.
    pub(crate) fn take_expired(&mut self, now: Duration) -> Vec<Caller> {
        let callers = std::mem::take(&mut self.callers);
        let (expired, waiting) = callers.into_iter().partition(|caller| caller.deadline <= now);
        self.callers = waiting;
        Vec::from_iter::<VecDeque<Caller>>(expired)
    }

    /// Removes callers whose future was dropped; ready when there was one.
    pub(crate) fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.callers.len();
        self.callers.retain_mut(|caller| caller.reply.poll_closed(cx).is_pending());
        if self.callers.len() < before { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{LeaseTerms, Mode, Patience};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn caller(deadline: u64) -> (Caller, oneshot::Receiver<Reply>) {
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
        (Caller { acquire, hold_terms: None, asked: s(0), deadline, reply, span }, answer)
    }

    #[test]
    fn callers_are_served_in_the_order_in_which_they_came() {
        let mut queue = CallerQueue::default();
        let answers: Vec<_> = [9, 3, 6]
            .map(|deadline| {
                let (caller, answer) = caller(deadline);
                queue.push(caller);
                answer
            })
            .into();
        assert_eq!(queue.deadline(), Some(s(3)));
        let expired: Vec<_> = queue.take_expired(s(6)).iter().map(|c| c.deadline).collect();
        assert_eq!(expired, [s(3), s(6)]);
        assert_eq!(queue.pop().map(|caller| caller.deadline), Some(s(9)));
        assert!(queue.is_empty() && answers.len() == 3);
    }

    #[test]
    fn a_dropped_caller_is_removed() {
        let mut queue = CallerQueue::default();
        let (stays, _answer) = caller(3);
        let (leaves, answer) = caller(6);
        queue.push(stays);
        queue.push(leaves);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(queue.poll_cancelled(&mut cx).is_pending());
        drop(answer);
        assert!(queue.poll_cancelled(&mut cx).is_ready());
        assert_eq!(queue.pop().map(|caller| caller.deadline), Some(s(3)));
        assert!(queue.is_empty());
    }
}
