//! The stream of an election's leaders.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::time::sleep;
use uuid::Uuid;

use super::{Election, WATCH_DEFAULT};
use crate::contender::Contender;
use crate::error::TableError;

/// Who leads, from [`Election::observe`]: the stream yields all leaders each time that they are
/// others than before, and never ends.
///
/// It reads the table once per [watch interval](Election::watch). A leader is shown from its first
/// renewal on, which follows its election at once, until its rows are gone: one that was killed is
/// shown until they expire. Of leaders that follow each other within an interval, it may show the
/// last one only.
#[must_use = "streams do nothing unless polled"]
pub struct Leaders {
    election: Election,
    /// Those that it yielded last.
    last: Option<Vec<Seat>>,
    look: Pin<Box<dyn Future<Output = Look> + Send>>,
}

type Look = Result<Vec<Contender>, TableError>;

/// A client's seat, and its round: another term of the same client is another one.
type Seat = (Uuid, i16, Option<i64>);

impl Leaders {
    pub(super) fn of(election: Election) -> Self {
        let look = Box::pin(look(election.clone()));
        Leaders { election, last: None, look }
    }

    /// The present leaders, once they are others than the last time.
    ///
    /// # Errors
    ///
    /// See [`TableError`]; [`TableError::Option`] for an option that is invalid. The next call
    /// looks again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    pub async fn next(&mut self) -> Result<Vec<Contender>, TableError> {
        let next = poll_fn(|cx| self.poll_leaders(cx));
        next.await
    }

    fn poll_leaders(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        loop {
            let seen = ready!(self.look.as_mut().poll(cx));
            let election = self.election.clone();
            self.look = Box::pin(async move {
                // An interval of zero is refused, and not over and over at once.
                let pause = election.pause();
                sleep(if pause.is_zero() { WATCH_DEFAULT } else { pause }).await;
                look(election).await
            });
            let leaders = match seen {
                Ok(leaders) => leaders,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let seats = leaders.iter().map(|leader| (leader.client, leader.slot, leader.round));
            let mut seats: Vec<_> = seats.collect();
            seats.sort_unstable();
            if self.last.as_ref() != Some(&seats) {
                self.last = Some(seats);
                return Poll::Ready(Ok(leaders));
            }
        }
    }
}

/// The contenders whose rows tell that they hold the lock. Others are taking a seat.
async fn look(election: Election) -> Look {
    election.check()?;
    let mut contenders = election.client.contenders(election.request.name()).await?;
    contenders.retain(|contender| contender.held_since.is_some());
    Ok(contenders)
}

impl Stream for Leaders {
    type Item = Result<Vec<Contender>, TableError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_leaders(cx).map(Some)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leaders { election, last, .. } = self;
        f.debug_struct("Leaders").field("election", election).field("last", last).finish()
    }
}
