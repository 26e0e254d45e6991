//! The requests to the database and to other clients that are under way, each one try.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::{Instrument, Span, debug};

use crate::context::ClientContext;
use crate::core::bakery::{Claim, OpId, Read, ReadFailure, Seen, Write, WriteOutcome};
use crate::core::object::io::Input;
use crate::core::turns::KeeperId;
use crate::fencing::FencingError;
use crate::guard::token_issuer::ObjectFence;
use crate::peers::Network;
use crate::store::{DatabaseError, Outcome};

/// The requests that are under way, one of each kind. There are few, so all are polled.
#[derive(Default)]
pub(super) struct Operations {
    under_way: Vec<(Kind, Request)>,
    /// One was begun and not polled yet.
    has_begun: bool,
}

type Request = Pin<Box<dyn Future<Output = Completed> + Send>>;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For the contender of this slot.
    Contender(i16),
    /// For the keeper of this slot, which wants to know who waits in the table.
    OneReplicaRead(i16),
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
pub(super) struct Completed {
    /// What it means for the object.
    pub(super) input: Input,
    /// What is reported to people: why the request failed, if it did.
    pub(super) last_error: LastError,
}

/// Why a request failed.
pub(super) enum LastError {
    /// The last request of a contender failed like this, or did not.
    Database(Option<DatabaseError>),
    /// No block of tokens was issued.
    Block(FencingError),
    /// Nothing to report.
    None,
}

impl Operations {
    /// Begins a request. An earlier one of its kind is of no use any more.
    pub(super) fn begin(
        &mut self,
        kind: Kind,
        span: &Span,
        request: impl Future<Output = Completed> + Send + 'static,
    ) {
        self.under_way.retain(|(other, _)| *other != kind);
        self.under_way.push((kind, Box::pin(request.instrument(span.clone()))));
        self.has_begun = true;
    }

    /// Whether one was begun that waits to be polled.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The next answer.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Completed> {
        self.has_begun = false;
        for index in 0..self.under_way.len() {
            if let Poll::Ready(answer) = self.under_way[index].1.as_mut().poll(context) {
                drop(self.under_way.remove(index));
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    }
}

/// What the requests about an object need.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) shared: Arc<ClientContext>,
    pub(super) object: Arc<str>,
}

impl Database {
    pub(super) async fn write(self, slot: i16, op: OpId, write: Write) -> Completed {
        let result = self.shared.store.rows.write(&self.object, &write).await;
        let outcome = result.as_ref().map_or_else(write_outcome, |()| WriteOutcome::Applied);
        if let (WriteOutcome::Unknown, Err(error)) = (outcome, &result) {
            debug!(?error, "whether a write is applied is unknown; it is made again");
        }
        let input = Input::Written { slot, op, outcome };
        Completed { input, last_error: LastError::Database(result.err()) }
    }

    pub(super) async fn read(self, slot: i16, op: OpId, read: Box<Read>) -> Completed {
        let (seen, error) = self.try_read(*read).await;
        let input = Input::Read { slot, op, read, seen };
        Completed { input, last_error: LastError::Database(error) }
    }

    /// # Panics
    ///
    /// If the store does not exchange: its contenders ask for none.
    pub(super) async fn exchange(
        self,
        slot: i16,
        op: OpId,
        write: Write,
        read: Box<Read>,
    ) -> Completed {
        let rows = self.shared.store.rows.exchanges().expect("contenders know what the store can");
        let (input, error) = match rows.exchange(&self.object, &write, *read).await {
            Ok(seen) => (Input::Read { slot, op, read, seen: Ok(seen) }, None),
            Err(error) if error.outcome() == Outcome::Applied => {
                let seen = Err(read_failure(&error));
                (Input::Read { slot, op, read, seen }, Some(error))
            }
            Err(error) => {
                debug!(?error, "an exchange failed; it is made again");
                (Input::Written { slot, op, outcome: write_outcome(&error) }, Some(error))
            }
        };
        Completed { input, last_error: LastError::Database(error) }
    }

    pub(super) async fn look(self) -> Completed {
        let (seen, error) = self.try_read(Read::Object).await;
        Completed { input: Input::Looked(seen), last_error: LastError::Database(error) }
    }

    /// A read of one replica. One that fails shows nothing.
    pub(super) async fn read_one_replica(self, slot: i16, is_idle: bool) -> Completed {
        let Database { shared, object } = self;
        let rows = if is_idle {
            shared.look_at_idle(&object).await
        } else {
            shared.store.rows.read_one_replica(&object).await.unwrap_or_default()
        };
        Completed { input: Input::OneReplicaRead { slot, rows }, last_error: LastError::None }
    }

    pub(super) async fn sweep_read(self) -> Completed {
        let (seen, error) = self.try_read(Read::Object).await;
        note_sweep(error.as_ref());
        Completed { input: Input::SweepRead(seen.ok()), last_error: LastError::None }
    }

    pub(super) async fn sweep_write(self, write: Write) -> Completed {
        let error = self.shared.store.rows.write(&self.object, &write).await.err();
        note_sweep(error.as_ref());
        Completed { input: Input::SweepWritten(error.is_none()), last_error: LastError::None }
    }

    pub(super) async fn issue_block(self, claim: Claim, max_clock_skew: Duration) -> Completed {
        let round = claim.round;
        let Database { shared, object: name } = self;
        let issued = ObjectFence { shared, name, claim, max_clock_skew }.issue_block().await;
        match issued {
            Ok(block) => Completed {
                input: Input::Block { round, block: Some(block) },
                last_error: LastError::None,
            },
            Err(error) => {
                debug!(%error, "no block of tokens");
                let input = Input::Block { round, block: None };
                Completed { input, last_error: LastError::Block(error) }
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
pub(super) async fn connect(network: Arc<dyn Network>, keeper: KeeperId) -> Completed {
    let is_reachable = network.connect(keeper).await;
    Completed { input: Input::Connected { keeper, is_reachable }, last_error: LastError::None }
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
