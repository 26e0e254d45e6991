//! The stream of an election's leaders.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use uuid::Uuid;

use super::Election;
use crate::admin::types::ContenderInfo;
use crate::error::TableError;

/// Who leads, from [`Election::observe`]: the stream yields all leaders each time that they are
/// others than before. It ends once the client has ended.
///
/// It reads the table once per [watch interval](Election::watch). A leader is shown from its first
/// renewal on, which follows its election at once, until its rows are gone: one that was killed is
/// shown until they expire. Of leaders that follow each other within an interval, it may show the
/// last one only.
#[must_use = "streams do nothing unless polled"]
pub struct Leaders {
    election: Election,
    /// Those that it yielded last.
    last: Option<Vec<LeaderKey>>,
    /// `None` once each further look would fail.
    look: Option<Pin<Box<dyn Future<Output = Look> + Send>>>,
}

type Look = Result<Vec<ContenderInfo>, TableError>;

/// A client's key, and its round: another term of the same client is another one.
type LeaderKey = (Uuid, i16, Option<i64>);

impl Leaders {
    pub(super) fn of(election: Election) -> Self {
        let first = Box::pin(look(election.clone()));
        Leaders { election, last: None, look: Some(first) }
    }

    /// The present leaders, once they are others than the last time; `None` once the stream has
    /// ended.
    ///
    /// # Errors
    ///
    /// See [`TableError`]. The next call looks again; after [`Closed`](TableError::Closed),
    /// [`Forked`](TableError::Forked) and [`Option`](TableError::Option), an option that is
    /// invalid, it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    pub async fn try_next(&mut self) -> Result<Option<Vec<ContenderInfo>>, TableError> {
        poll_fn(|cx| self.poll_leaders(cx)).await.transpose()
    }

    fn poll_leaders(&mut self, cx: &mut Context<'_>) -> Poll<Option<Look>> {
        loop {
            let Some(looking) = &mut self.look else {
                return Poll::Ready(None);
            };
            let seen = ready!(looking.as_mut().poll(cx));
            self.look = if seen.as_ref().is_err_and(TableError::ends_reads) {
                None
            } else {
                Some(Box::pin(look_after_pause(self.election.clone())))
            };
            let leaders = match seen {
                Ok(leaders) => leaders,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let keys = leaders.iter().map(|leader| (leader.client, leader.slot, leader.round));
            let mut keys: Vec<_> = keys.collect();
            keys.sort_unstable();
            if self.last.as_ref() != Some(&keys) {
                self.last = Some(keys);
                return Poll::Ready(Some(Ok(leaders)));
            }
        }
    }
}

async fn look_after_pause(election: Election) -> Look {
    election.client.pause(election.pause()).await;
    look(election).await
}

/// The contenders whose rows show that they hold the lock. Others are taking a key.
async fn look(election: Election) -> Look {
    election.check()?;
    let mut contenders = election.client.contenders_in_table(election.request.name()).await?;
    contenders.retain(|contender| contender.held_since.is_some());
    Ok(contenders)
}

impl Stream for Leaders {
    type Item = Result<Vec<ContenderInfo>, TableError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_leaders(cx)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leaders { election, last, .. } = self;
        f.debug_struct("Leaders").field("election", election).field("last", last).finish()
    }
}
