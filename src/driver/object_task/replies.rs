//! Answers to the requests of guards.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::core::object::io::{Reply, RequestId};
use crate::error::{EnsureError, UnlockError};
use crate::fencing::{FencingError, FencingToken};
use crate::store::DatabaseError;

/// The requests of guards that are not answered yet.
#[derive(Default)]
pub(super) struct Replies {
    waiting: BTreeMap<RequestId, GuardReply>,
    last: RequestId,
}

/// Where the answer to a guard goes. It is dropped if the turn is over; the grant knows why.
pub(super) enum GuardReply {
    Release(oneshot::Sender<Result<(), UnlockError>>),
    Confirm(oneshot::Sender<Result<Duration, EnsureError>>),
    IssueToken(oneshot::Sender<Result<FencingToken, FencingError>>),
}

impl Replies {
    /// Gives a request its number.
    pub(super) fn register(&mut self, reply: GuardReply) -> RequestId {
        self.last += 1;
        self.waiting.insert(self.last, reply);
        self.last
    }

    /// Answers a request about this lock, with the last error of the database, and why no block of
    /// tokens was drawn. A guard that stopped waiting needs no answer.
    pub(super) fn answer(
        &mut self,
        name: &str,
        (request, reply): (RequestId, Reply),
        last_error: Option<&DatabaseError>,
        no_block: Option<&FencingError>,
    ) {
        let Some(reply_to) = self.waiting.remove(&request) else {
            return;
        };
        let (name, cause) = (|| name.to_owned(), || last_error.cloned());
        match (reply_to, reply) {
            (GuardReply::Release(to), Reply::Returned) => drop(to.send(Ok(()))),
            (GuardReply::Release(to), Reply::Unacknowledged { waited }) => {
                drop(to.send(Err(UnlockError::Unacknowledged {
                    name: name(),
                    waited,
                    cause: cause(),
                })));
            }
            (GuardReply::Release(to), Reply::Lost(loss)) => {
                drop(to.send(Err(UnlockError::Lost { name: name(), reason: loss.into() })));
            }
            (GuardReply::Confirm(to), Reply::Held { remaining }) => drop(to.send(Ok(remaining))),
            (GuardReply::Confirm(to), Reply::TooLong { min, remaining }) => {
                drop(to.send(Err(EnsureError::TooLong { name: name(), min, remaining })));
            }
            (GuardReply::Confirm(to), Reply::Unchangeable) => {
                drop(to.send(Err(EnsureError::Unchangeable { name: name() })));
            }
            (GuardReply::Confirm(to), Reply::Unconfirmed { waited }) => {
                drop(to.send(Err(EnsureError::Unconfirmed {
                    name: name(),
                    waited,
                    cause: cause(),
                })));
            }
            (GuardReply::IssueToken(to), Reply::Token(value)) => {
                drop(to.send(Ok(FencingToken::from_value(value))));
            }
            (GuardReply::IssueToken(to), Reply::NoToken) => {
                drop(to.send(Err(no_block.cloned().unwrap_or(FencingError::Closed))));
            }
            // The turn is over, and its grant knows why. No other reply fits its request.
            (GuardReply::Release(_) | GuardReply::Confirm(_) | GuardReply::IssueToken(_), _) => {}
        }
    }
}
