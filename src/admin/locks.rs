//! All locks in use: those that clients hold or wait for.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::time::Instant;

use crate::admin::types::ContenderInfo;
use crate::client::LockClient;
use crate::context::retry::until_answered;
use crate::error::TableError;
use crate::store::{Cursor, Page, Part, TimedRow};

/// The longest pause between two reads.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl LockClient {
    /// All locks that clients hold or wait for now, in no useful order.
    ///
    /// The stream reads the whole lock table: part by part, each with the client's consistency, one
    /// read at a time, and pauses after each read for as long as it took. Every lock is read at
    /// another moment: one that is taken or released meanwhile may be missing or there. A table is
    /// read in 256 parts at least, and objects that were locked with a
    /// [fencing token](crate::LockHandle::fencing_token) within the last 30 days are read too, so
    /// this is nothing to do every minute. [`contenders`](Self::contenders) reads one lock.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let mut seen = 0;
    /// let _guard = client.lock("users::snap").await?;
    /// let mut locks = client.locks();
    /// while let Some(lock) = locks.try_next().await? {
    ///     let owners = lock.contenders.iter().map(|contender| contender.owner.as_str());
    ///     println!("{}: {}", lock.name, owners.collect::<Vec<_>>().join(", "));
    ///     # seen += 1;
    /// }
    /// # assert_eq!(seen, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks(&self) -> Locks {
        let parts = self.shared().store.rows.parts();
        Locks {
            client: self.clone(),
            total: parts.len(),
            parts: parts.into(),
            next: None,
            read: None,
            pause: Duration::ZERO,
            incomplete: Vec::new(),
            found: VecDeque::new(),
            is_over: false,
        }
    }
}

/// A lock that clients hold or wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInUse {
    /// What is locked.
    pub name: String,
    /// Its holders and waiters, as [`LockClient::contenders`] returns them; one at least.
    pub contenders: Vec<ContenderInfo>,
}

/// The stream of [`LockClient::locks`].
#[must_use = "streams do nothing unless polled"]
pub struct Locks {
    client: LockClient,
    /// Those not read yet, and the one that is being read.
    parts: VecDeque<Part>,
    total: usize,
    /// Where to continue in the first part; `None` at its beginning.
    next: Option<Cursor>,
    read: Option<Pin<Box<dyn Future<Output = Reading> + Send>>>,
    /// Before the next read.
    pause: Duration,
    /// Rows of an object with more to come.
    incomplete: Vec<(String, TimedRow)>,
    found: VecDeque<LockInUse>,
    /// The client has ended: there is nothing more to read.
    is_over: bool,
}

struct Reading {
    page: Result<Page, TableError>,
    took: Duration,
}

impl Locks {
    /// The next lock; `None` after the last one.
    ///
    /// # Errors
    ///
    /// See [`TableError`]. The next call makes the failed read again; after
    /// [`Closed`](TableError::Closed) and [`Forked`](TableError::Forked) it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no lock.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    pub async fn try_next(&mut self) -> Result<Option<LockInUse>, TableError> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await.transpose()
    }

    /// How much of the table is read: the number of parts, and of all parts.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.total - self.parts.len(), self.total)
    }

    /// Takes the rows of a page that arrived now.
    fn take(&mut self, page: Page) {
        for (object, row) in page.rows {
            if self.incomplete.last().is_some_and(|(last, _)| *last != object) {
                self.complete();
            }
            self.incomplete.push((object, row));
        }
        self.next = page.next;
        if self.next.is_none() {
            self.complete();
            self.parts.pop_front();
        }
    }

    /// Takes what was read of the last object for all of it.
    fn complete(&mut self) {
        let mut rows = std::mem::take(&mut self.incomplete);
        let Some((name, _)) = rows.first_mut() else {
            return;
        };
        // Others have their locks in the same table.
        let Some(name) = name.strip_prefix(&*self.client.shared().prefix).map(str::to_owned) else {
            return;
        };
        let now = self.client.shared().clock.unix_micros();
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        let contenders = ContenderInfo::all(rows, now, self.client.inner.max_clock_skew);
        // What is left of a lock may be a request to leave, to a client that has left.
        if !contenders.is_empty() {
            self.found.push_back(LockInUse { name, contenders });
        }
    }
}

impl Stream for Locks {
    type Item = Result<LockInUse, TableError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(lock) = self.found.pop_front() {
                return Poll::Ready(Some(Ok(lock)));
            }
            let Some(part) = self.parts.front().copied().filter(|_| !self.is_over) else {
                return Poll::Ready(None);
            };
            let Locks { client, next, read, pause, .. } = &mut *self;
            let reading = read.get_or_insert_with(|| {
                Box::pin(read_page(client.clone(), part, next.clone(), *pause))
            });
            let Reading { page, took } = ready!(reading.as_mut().poll(cx));
            self.read = None;
            self.pause = took.min(PAUSE_MAX);
            match page {
                Ok(page) => self.take(page),
                Err(error) => {
                    self.is_over = error.ends_reads();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

async fn read_page(
    client: LockClient,
    part: Part,
    next: Option<Cursor>,
    pause: Duration,
) -> Reading {
    client.pause(pause).await;
    let began = Instant::now();
    let mut last_error = None;
    let table = &client.shared().store.rows;
    let page = until_answered(|| table.read_page(part, next.as_ref()), &mut last_error);
    let page = match client.unless_interrupted(page).await {
        Ok(page) => page.map_err(|cause| TableError::Refused { name: None, cause }),
        Err(interruption) => Err(interruption.on_table(None, last_error)),
    };
    Reading { page, took: began.elapsed() }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, parts) = self.progress();
        f.debug_struct("Locks").field("read", &read).field("parts", &parts).finish_non_exhaustive()
    }
}
