//! The requests to the database and to other clients that are under way, each one try.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::{Instrument, Span, debug};

use crate::core::bakery::{Claim, OpId, Read, ReadFailure, Seen, Write, WriteOutcome};
use crate::core::object::io::Input;
use crate::core::turns::KeeperId;
use crate::driver::drawing::FenceOfClaim;
use crate::driver::shared::Shared;
use crate::fence::FencingError;
use crate::network::Network;
use crate::store::{DatabaseError, Outcome};

/// The requests that are under way, one of each kind. There are few, so all are polled.
#[derive(Default)]
pub(super) struct Operations(Vec<(Kind, Request)>);

type Request = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For the contender of this slot.
    Contender(i16),
    /// For the keeper of this slot, which wants to know who waits in the table.
    Glance(i16),
    /// For callers that yield.
    Look,
    /// For a sweep.
    Sweep,
    /// For a block of tokens.
    Block,
    /// For a keeper that is to be asked.
    Connect,
}

/// The answer to a request.
pub(super) struct Answer {
    /// What it means for the object.
    pub(super) input: Input,
    /// What is reported to people: why the request failed, if it did.
    pub(super) setback: Setback,
}

/// Why a request failed.
pub(super) enum Setback {
    /// The last request of a contender failed like this, or did not.
    Database(Option<DatabaseError>),
    /// No block of tokens was drawn.
    NoBlock(FencingError),
    /// Nothing to report.
    None,
}

impl Operations {
    /// Begins a request. An earlier one of its kind is of no use any more.
    pub(super) fn begin(
        &mut self,
        kind: Kind,
        span: &Span,
        request: impl Future<Output = Answer> + Send + 'static,
    ) {
        self.0.retain(|(other, _)| *other != kind);
        self.0.push((kind, Box::pin(request.instrument(span.clone()))));
    }

    /// Waits for the next answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Answer {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Answer> {
        for index in 0..self.0.len() {
            if let Poll::Ready(answer) = self.0[index].1.as_mut().poll(context) {
                drop(self.0.remove(index));
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    }
}

/// What the requests about an object need.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) shared: Arc<Shared>,
    pub(super) object: Arc<str>,
}

impl Database {
    pub(super) async fn write(self, slot: i16, op: OpId, write: Write) -> Answer {
        let result = self.shared.store.rows.write(&self.object, &write).await;
        let outcome = result.as_ref().map_or_else(write_outcome, |()| WriteOutcome::Applied);
        if let (WriteOutcome::Unknown, Err(error)) = (outcome, &result) {
            debug!(?error, "whether a write is applied is unknown; it is made again");
        }
        let input = Input::Written { slot, op, outcome };
        Answer { input, setback: Setback::Database(result.err()) }
    }

    pub(super) async fn read(self, slot: i16, op: OpId, read: Read) -> Answer {
        let (seen, error) = self.try_read(read).await;
        let input = Input::Read { slot, op, read, seen };
        Answer { input, setback: Setback::Database(error) }
    }

    pub(super) async fn look(self) -> Answer {
        let (seen, error) = self.try_read(Read::Object).await;
        Answer { input: Input::Looked(seen), setback: Setback::Database(error) }
    }

    /// A read of one replica. One that fails shows nothing.
    pub(super) async fn glance(self, slot: i16) -> Answer {
        let rows = self.shared.store.rows.glance(&self.object).await.unwrap_or_default();
        Answer { input: Input::Glanced { slot, rows }, setback: Setback::None }
    }

    pub(super) async fn sweep_read(self) -> Answer {
        let (seen, error) = self.try_read(Read::Object).await;
        note_sweep(error.as_ref());
        Answer { input: Input::SweepRead(seen.ok()), setback: Setback::None }
    }

    pub(super) async fn sweep_write(self, write: Write) -> Answer {
        let error = self.shared.store.rows.write(&self.object, &write).await.err();
        note_sweep(error.as_ref());
        Answer { input: Input::SweepWritten(error.is_none()), setback: Setback::None }
    }

    pub(super) async fn draw_block(self, claim: Claim, max_clock_skew: Duration) -> Answer {
        let round = claim.round;
        let Database { shared, object: name } = self;
        let drawn = FenceOfClaim { shared, name, claim, max_clock_skew }.draw_block().await;
        match drawn {
            Ok(block) => {
                Answer { input: Input::Block { round, block: Some(block) }, setback: Setback::None }
            }
            Err(error) => {
                debug!(%error, "no block of tokens");
                let input = Input::Block { round, block: None };
                Answer { input, setback: Setback::NoBlock(error) }
            }
        }
    }

    async fn try_read(&self, read: Read) -> (Result<Seen, ReadFailure>, Option<DatabaseError>) {
        match self.shared.store.rows.read(&self.object, read).await {
            Ok(seen) => (Ok(seen), None),
            Err(error) => (Err(read_failure(&error)), Some(error)),
        }
    }
}

/// Connects to a keeper.
pub(super) async fn connect(network: Arc<dyn Network>, keeper: KeeperId) -> Answer {
    let is_reachable = network.connect(keeper).await;
    Answer { input: Input::Connected { keeper, is_reachable }, setback: Setback::None }
}

fn note_sweep(error: Option<&DatabaseError>) {
    if let Some(error) = error {
        debug!(%error, "a sweep was given up");
    }
}

fn write_outcome(error: &DatabaseError) -> WriteOutcome {
    match error.outcome() {
        Outcome::Applied => WriteOutcome::Applied,
        Outcome::NotApplied if error.is_permanent() => WriteOutcome::Rejected,
        Outcome::NotApplied => WriteOutcome::NotApplied,
        Outcome::Unknown => WriteOutcome::Unknown,
    }
}

fn read_failure(error: &DatabaseError) -> ReadFailure {
    if error.is_permanent() { ReadFailure::Rejected } else { ReadFailure::Failed }
}
