//! The connection to one server: opened, watched, and opened again.
//!
//! A request is sent once, on the connection that was looked at. The driver neither repeats it nor
//! connects again by itself: a new connection may lead to a server that was started again without
//! its data, and has to be looked at first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::facts::Facts;
use super::reply::{self, Reply};
use super::scripts::Script;
use crate::clock::{Clock, SystemClock};

/// How long one try of a request may take. The protocol retries, with the same stamp.
pub(super) const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection may take until the server has said what it is.
const OPENING_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause between two looks at a connection.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// In how many looks a server is asked once for all that it says about itself.
const LOOKS_PER_QUESTION: u32 = 5;

/// After this silence a connection is given up, so that nothing piles up for a server that stands
/// still.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The pause before a server is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A write that begins on a server later than this after it was sent is not applied. It is less
/// than the time for which the protocol expects late writes (`TIME_IN_FLIGHT`) by more than clocks
/// are misread.
const LATE_AFTER: Duration = Duration::from_secs(10);

/// How many requests may wait to be written.
const REQUESTS_MAX: usize = 1_024;

/// Refusals of a server that did not begin to run a script, or failed before it changed anything.
const REFUSALS: [&str; 12] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// A request that failed, and whether it may have been applied.
#[derive(Clone, Debug)]
pub(super) struct CallError {
    pub(super) may_be_applied: bool,
    pub(super) why: String,
}

impl CallError {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        CallError { may_be_applied: false, why: why.into() }
    }

    fn of(error: &RedisError) -> Self {
        let is_refused = error.code().is_some_and(|code| REFUSALS.contains(&code));
        CallError { may_be_applied: !is_refused, why: error.to_string() }
    }
}

/// What is known of a server.
#[derive(Clone, Debug)]
pub(super) enum LinkState {
    /// The first connection is being opened.
    Opening,
    /// There is no connection.
    Down(Arc<str>),
    /// There is one.
    Up(Arc<Connection>),
}

/// A connection, and what the server said about itself when it was opened.
pub(super) struct Connection {
    connection: MultiplexedConnection,
    pub(super) facts: Facts,
    hashes: Vec<String>,
    clock: Arc<SystemClock>,
    /// By how many ms the server's clock was ahead of ours, at least, when it was last read.
    ahead_millis: AtomicI64,
    doubted: Arc<Notify>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Connection {
    /// Runs a script, once.
    pub(super) async fn run(
        &self,
        script: Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Reply, CallError> {
        let hash = &self.hashes[script as usize];
        let mut request = redis::cmd("EVALSHA");
        request.arg(hash).arg(keys.len());
        for key in keys {
            request.arg(key.as_str());
        }
        for argument in arguments {
            request.arg(argument.as_slice());
        }
        let reply = Reply::of(self.ask(&request).await?);
        let reply = reply.ok_or_else(|| CallError {
            may_be_applied: true,
            why: "it answered what no script of bakery-lock does".to_owned(),
        })?;
        self.heard(reply.now_micros);
        Ok(reply)
    }

    /// Sends a request, once.
    pub(super) async fn ask(&self, request: &Cmd) -> Result<Value, CallError> {
        let mut connection = self.connection.clone();
        let answer = connection.req_packed_command(request).await;
        let answer = answer.and_then(Value::extract_error);
        answer.map_err(|error| {
            let is_of_server = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
            if !is_of_server || error.code() == Some("NOSCRIPT") {
                // One that was closed, or forgot the scripts, is opened again.
                self.doubt();
            }
            CallError::of(&error)
        })
    }

    /// Has the connection looked at now.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// The last ms, by the server's clock, at which what is sent now may begin.
    pub(super) fn late_after(&self) -> i64 {
        self.now_millis().saturating_add(millis(LATE_AFTER))
    }

    /// The server's clock, in ms since the Unix epoch, at least.
    pub(super) fn now_millis(&self) -> i64 {
        self.elapsed_millis() + self.ahead_millis.load(Ordering::Relaxed)
    }

    /// Notes the server's clock. It may show more by now, so that writes count as late rather than
    /// as early.
    fn heard(&self, micros: i64) {
        if micros > 0 {
            let ahead = micros / 1000 - self.elapsed_millis();
            self.ahead_millis.store(ahead, Ordering::Relaxed);
        }
    }

    fn elapsed_millis(&self) -> i64 {
        millis(self.clock.since_boot())
    }

    /// The server's clock, in µs since the Unix epoch.
    pub(super) async fn time(&self) -> Result<i64, CallError> {
        let value = self.ask(&redis::cmd("TIME")).await?;
        let micros = reply::time(&value).ok_or_else(|| CallError::refused("it tells no time"))?;
        self.heard(micros);
        Ok(micros)
    }
}

/// One server.
pub(super) struct Link {
    client: Client,
    /// Where it is, without a password.
    pub(super) address: String,
    state: watch::Sender<LinkState>,
    doubted: Arc<Notify>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        let address = client.get_connection_info().addr().to_string();
        let (state, _) = watch::channel(LinkState::Opening);
        Link { client, address, state, doubted: Arc::default() }
    }

    /// What is known of the server.
    pub(super) fn state(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// Changes of that.
    pub(super) fn changes(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// Keeps a connection open, and never returns.
    pub(super) async fn keep(&self) {
        let mut pause = RECONNECT_PAUSE;
        loop {
            let opened = timeout(OPENING_TIMEOUT, self.open()).await;
            let why = match opened.unwrap_or_else(|_| Err(CallError::refused("it is silent"))) {
                Ok(connection) => {
                    pause = RECONNECT_PAUSE;
                    let connection = Arc::new(connection);
                    self.state.send_replace(LinkState::Up(Arc::clone(&connection)));
                    self.watch(&connection).await
                }
                Err(error) => error.why,
            };
            debug!(address = self.address, why, "a master is not connected");
            self.state.send_replace(LinkState::Down(why.into()));
            sleep(pause).await;
            pause = (2 * pause).min(RECONNECT_PAUSE_MAX);
        }
    }

    /// Reports that the server is not connected any more.
    pub(super) fn end(&self) {
        self.state.send_replace(LinkState::Down("it was closed".into()));
    }

    async fn open(&self) -> Result<Connection, CallError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPENING_TIMEOUT))
            // A try is shorter: see `quorum.rs`.
            .set_response_timeout(Some(SILENCE_MAX))
            .set_pipeline_buffer_size(REQUESTS_MAX);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = opened.map_err(|error| CallError::of(&error))?;
        let mut connection = Connection {
            connection,
            facts: Facts::default(),
            hashes: Vec::new(),
            clock: Arc::new(SystemClock::new()),
            ahead_millis: AtomicI64::new(0),
            doubted: Arc::clone(&self.doubted),
        };
        connection.facts = Facts::read(&connection).await?;
        for script in Script::ALL {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.text());
            let hash = reply::text(&connection.ask(&load).await?);
            let hash = hash.ok_or_else(|| CallError::refused("it loads no scripts"))?;
            connection.hashes.push(hash);
        }
        connection.time().await?;
        Ok(connection)
    }

    /// Looks at a connection until it fails, or the server says something else about itself than
    /// when it was opened; returns why.
    async fn watch(&self, connection: &Connection) -> String {
        let mut looks = 0_u32;
        loop {
            looks = looks.wrapping_add(1);
            tokio::select! {
                () = sleep(LOOK_PAUSE) => {}
                () = self.doubted.notified() => {}
            }
            match look_at(connection, looks.is_multiple_of(LOOKS_PER_QUESTION)).await {
                Ok(None) => {}
                Ok(Some(changed)) => return changed.to_owned(),
                Err(CallError { why, .. }) => return why,
            }
        }
    }
}

/// What has changed on a server, if something has.
async fn look_at(
    connection: &Connection,
    asks_for_facts: bool,
) -> Result<Option<&'static str>, CallError> {
    let known = Script::ALL.map(|script| connection.hashes[script as usize].clone());
    let mut exist = redis::cmd("SCRIPT");
    exist.arg("EXISTS").arg(&known[..]);
    let there = connection.ask(&exist).await?;
    connection.time().await?;
    if !reply::are_all_there(&there) {
        return Ok(Some("it has forgotten the scripts"));
    }
    if asks_for_facts && Facts::read(connection).await? != connection.facts {
        return Ok(Some("its settings or its role have changed"));
    }
    Ok(None)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

const _: () = assert!(
    LATE_AFTER.as_millis() + 4 * TRY_TIMEOUT.as_millis()
        < crate::core::bakery::TIME_IN_FLIGHT.as_millis()
);
