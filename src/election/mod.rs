//! Elections: which of many candidates lead (design section 7).
//!
//! A recipe on top of the client. Candidates watch, they don't queue: a queue would elect the one
//! that has waited longest, and keep rows of all of them.

mod leaders;
mod leadership;

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

pub use self::leaders::Leaders;
pub use self::leadership::Leadership;
use crate::admin::contenders::ReadFailure;
use crate::admin::types::LockMode;
use crate::client::{Interruption, LockClient, LockRequest, finish};
use crate::error::LockError;
use crate::guard::LockHandle;
use crate::options::{InvalidOption, PRIORITIES};

/// How often a candidate looks for a free seat by default.
const WATCH_DEFAULT: Duration = Duration::from_millis(400);

/// A pause is shorter than the interval by up to this part of it, so that candidates that were
/// started together don't look together.
const JITTER: f64 = 0.25;

impl LockClient {
    /// An election of those who lead under `name`: of one, unless [`seats`](Election::seats) says
    /// otherwise.
    ///
    /// Each process that could lead is a candidate and calls [`campaign`](Election::campaign). All
    /// others that want to know who leads [observe](Election::observe). A leader holds the lock of
    /// `name`, so give that name to nothing else.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let election = client.election("scheduler").priority(1);
    /// let leadership = election.campaign().await?;
    /// tokio::select! {
    ///     reason = leadership.expiring() => eprintln!("another one leads soon: {reason:?}"),
    ///     () = async { /* the work of a leader */ } => leadership.resign().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        let request = self.request(name);
        let (client, seats, priority) = (self.clone(), 1, *PRIORITIES.start());
        Election { client, request, seats, priority, watch: WATCH_DEFAULT }
    }
}

/// An election: see [`LockClient::election`]. Cheap to clone.
///
/// # Who wins
///
/// A candidate looks once per [watch interval](Self::watch) whether a seat is free. One of
/// [priority](Self::priority) 1 takes it at once, and the others when it has been free for a step
/// per priority after that; a step is a quarter longer than the interval, so the best one wins
/// where all candidates are healthy and have the same interval, and any candidate wins where the
/// others are not. A leader is never displaced by a better candidate.
///
/// A leader that resigns is replaced within the interval and the steps of the best candidate; one
/// that is killed, once its rows have expired: after its TTL and the clock skew at most.
///
/// # What it costs
///
/// Each look of a candidate or an observer is one read of the whole object at QUORUM, of as many
/// contenders as lead.
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until `campaign` or `observe`"]
pub struct Election {
    client: LockClient,
    request: LockRequest,
    seats: u32,
    priority: u8,
    watch: Duration,
}

impl Election {
    /// How many lead at the same time: one by default. All candidates should name the same number:
    /// those with another one wait until none of these leads.
    ///
    /// Leaders of more than one seat have no [fencing tokens](crate::FencingToken): they work
    /// beside each other.
    pub fn seats(mut self, seats: u32) -> Self {
        self.seats = seats;
        self
    }

    /// How good this candidate is: from 1, the best and the default, to 14.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// How often to look for a free seat, or for other leaders: every 400 ms by default. All
    /// candidates should name the same interval.
    pub fn watch(mut self, interval: Duration) -> Self {
        self.watch = interval;
        self
    }

    /// As [`LockRequest::ttl`]: how long a leader that is killed or cut off keeps its seat.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// As [`LockRequest::label`]: what others see of this leader besides its host and process.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.request = self.request.label(label);
        self
    }

    /// Waits until this candidate leads, however long that takes: also while the database does not
    /// answer, while clocks differ, and while others lead with another number of
    /// [seats](Self::seats).
    ///
    /// # Errors
    ///
    /// - [`LockError::Option`]: an option is invalid. Nothing was written.
    /// - [`LockError::Refused`], [`LockError::HostRemoved`], [`LockError::TableGone`],
    ///   [`LockError::Closed`], [`LockError::Forked`]: this candidate can't lead before somebody
    ///   has done something about it, as the error says.
    /// - [`LockError::Revoked`]: an operator asked it to leave as it took the seat.
    ///
    /// In any case it does not lead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the candidacy and leaves no row.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    pub async fn campaign(&self) -> Result<Leadership, LockError> {
        self.check()?;
        let request = self.request();
        request.check()?;
        let steps = f64::from(self.priority - 1);
        let handicap = self.times(steps * (1.0 + JITTER));
        let mut free_since = None;
        loop {
            let looked = Instant::now();
            if self.has_free_seat().await? {
                // Each look counts: in between another one may have led, and resigned.
                let since = *free_since.get_or_insert(looked);
                let left = handicap.saturating_sub(since.elapsed());
                if !left.is_zero() {
                    self.client.pause(left.min(self.pause())).await;
                    continue;
                }
                match request.clone().try_acquire().await {
                    Ok(Some(guard)) => return Ok(Leadership::new(guard)),
                    Ok(None) => {}
                    Err(error) if error.is_retryable() => debug!(%error, "no seat yet"),
                    Err(error) => return Err(error),
                }
            }
            free_since = None;
            self.client.pause(self.pause()).await;
        }
    }

    /// Leads whenever it can, until `body` is done: [campaigns](Self::campaign), runs the body
    /// while this candidate leads, and gives the seat up when the body has ended. If leadership
    /// ends before that, because it is lost or revoked, the body is dropped at its current `await`,
    /// as [`LockClient::with_lock`] does, and is begun once more when this candidate leads again. A
    /// candidate that has just led lets others go first for one [watch interval](Self::watch).
    ///
    /// # Errors
    ///
    /// As for [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and ends the candidacy or the leadership.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let done = client
    ///     .election("scheduler")
    ///     .lead(async |leadership| {
    ///         // What a leader does while it leads; usually an endless loop.
    ///         leadership.name().len()
    ///     })
    ///     .await?;
    /// assert_eq!(done, 9);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<W: Future>(
        &self,
        // Not `AsyncFnMut`: futures with such a body are not seen to be `Send`.
        mut body: impl FnMut(LockHandle) -> W,
    ) -> Result<W::Output, LockError> {
        loop {
            let leadership = self.campaign().await?;
            let work = body(leadership.handle());
            match finish(leadership.into_guard(), work).await {
                Ok(output) => return Ok(output),
                Err(error) => debug!(%error, "it leads no more"),
            }
            self.client.pause(self.watch).await;
        }
    }

    /// Watches who leads: yields the present leaders first, and then all of them again each time
    /// that others lead. It takes no part in the election.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let mut leaders = client.election("scheduler").observe();
    /// for leader in leaders.try_next().await?.ok_or("the client was shut down")? {
    ///     println!("{} leads", leader.owner);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn observe(&self) -> Leaders {
        Leaders::of(self.clone())
    }

    fn check(&self) -> Result<(), InvalidOption> {
        if !PRIORITIES.contains(&self.priority) {
            return Err(InvalidOption::Priority { priority: self.priority });
        }
        if self.watch.is_zero() { Err(InvalidOption::ZeroWatch) } else { Ok(()) }
    }

    /// How the leaders hold the lock.
    fn mode(&self) -> LockMode {
        if self.seats == 1 {
            LockMode::Exclusive
        } else {
            LockMode::Limited { max_holders: self.seats }
        }
    }

    /// One alone holds the lock, and has tokens.
    fn request(&self) -> LockRequest {
        let request = self.request.clone();
        if self.seats == 1 { request } else { request.max_holders(self.seats) }
    }

    /// Whether fewer contenders than there are seats are in the table, be they leaders or
    /// candidates that are taking a seat, and none that has another number of seats. Not certain
    /// while the database does not answer.
    async fn has_free_seat(&self) -> Result<bool, LockError> {
        match self.client.read_contenders(self.request.name()).await {
            Ok(taken) => {
                let mode = self.mode();
                let is_alike = taken.iter().all(|other| other.mode == Some(mode));
                Ok(is_alike && taken.len() < self.seats as usize)
            }
            Err(failure) => {
                let error = self.no_seat(failure);
                if error.is_timeout() {
                    debug!(%error, "no look at the seats");
                    Ok(false)
                } else {
                    Err(error)
                }
            }
        }
    }

    /// The error of a candidate that can't see who has a seat.
    fn no_seat(&self, failure: ReadFailure) -> LockError {
        let name = self.request.name().to_owned();
        match failure {
            ReadFailure::Option(invalid) => LockError::Option(invalid),
            ReadFailure::Refused(cause) => LockError::Refused { name, cause },
            ReadFailure::Interrupted(Interruption::TimedOut { waited }, cause) => {
                let (user, ahead, held_by_self) = (None, Vec::new(), false);
                LockError::TimedOut { name, waited, user, ahead, held_by_self, cause }
            }
            ReadFailure::Interrupted(Interruption::Closed, _) => LockError::Closed,
            ReadFailure::Interrupted(Interruption::Forked, _) => LockError::Forked,
        }
    }

    /// How long to pause between two looks.
    fn pause(&self) -> Duration {
        let shorter = JITTER * self.client.shared().entropy.jitter();
        self.times(1.0 - shorter)
    }

    /// The watch interval, `times` times; the longest duration if there is none as long.
    fn times(&self, factor: f64) -> Duration {
        let seconds = self.watch.as_secs_f64() * factor;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}
