//! What a runner waits for.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use super::holder::Holder;
use super::{Command, Runner};
use crate::clock::SLEEP_MAX;
use crate::protocol::Input;
use crate::store::DatabaseError;

/// Why the runner woke up.
pub(super) enum Wake {
    /// A fork copied this task into another process. The rows are the parent's business there, and
    /// so are the connections.
    Forked,
    Command(Option<Command>),
    Answer(Input, Option<DatabaseError>),
    Timer,
}

impl Runner {
    /// Waits until there is something to do.
    pub(super) async fn wake(&mut self) -> Wake {
        let sleep = self.sleep();
        let process = self.shared.process;
        // Before all else at each poll, so that a fork sends nothing.
        let forked =
            poll_fn(|_| if process.is_current() { Poll::Pending } else { Poll::Ready(()) });
        let flight = self.flight.as_mut();
        let answer = async {
            match flight {
                Some(flight) => flight.await,
                None => pending().await,
            }
        };
        let sleep = async {
            match sleep {
                Some(sleep) => tokio::time::sleep(sleep).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = forked => Wake::Forked,
            (input, error) = answer => Wake::Answer(input, error),
            // After the answer: they may come faster than they are done, and a renewal must not
            // wait for that. What is due is done after each command as well.
            command = self.commands.recv() => Wake::Command(command),
            () = sleep => Wake::Timer,
        }
    }

    /// How long nothing is due.
    fn sleep(&self) -> Option<Duration> {
        let releasing = self.releasing.iter().map(|releasing| releasing.asked);
        let confirming = self.holder.as_ref().and_then(Holder::first_asked);
        let asked = releasing.chain(confirming).min();
        let answers_due = asked.map(|asked| asked.saturating_add(self.shared.acquire_timeout));
        let hold_ends = self.holder.as_ref().and_then(|holder| holder.grant.hold_ends());
        let at_risk_from = self.holder.as_ref().and_then(Holder::at_risk_from);
        let (contender, callers) = (self.contender.deadline(), self.callers.deadline());
        let deadlines = [contender, callers, answers_due, hold_ends, at_risk_from];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_sub(self.shared.clock.elapsed()).min(SLEEP_MAX))
    }
}
