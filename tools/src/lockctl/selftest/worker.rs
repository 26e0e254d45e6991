//! One of the processes that take locks.
//!
//! It reports what it does in lines of JSON on its standard output. It begins with the first byte
//! on its standard input, and ends when that is closed: also when the process that started it is
//! gone.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use bakery_lock::{
    CancellationToken, ContenderState, LockClient, LockError, LockGuard, PeerOptions,
};
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::acquisition::{Acquisition, Hold, Outcome, Token};
use super::name;
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::host::{HostOptions, shut_down};
use crate::lockctl::process::boot_time;
use crate::options::{duration, timeout};
use crate::output;

/// How long a caller waits before it looks whether it has a ticket: longer than a ticket takes.
const LOOK_AFTER: Duration = Duration::from_millis(30);

/// How often a holder notes that it still holds the lock.
const NOTED_EVERY: Duration = Duration::from_millis(20);

/// Take locks, and report each (`lockctl selftest` starts it)
#[derive(Clone, Debug, Args)]
pub(in crate::lockctl) struct WorkerOptions {
    /// The run that it belongs to
    #[arg(long)]
    pub(super) run: String,

    /// Its number
    #[arg(long)]
    pub(super) process: u16,

    #[command(flatten)]
    pub(super) load: LoadOptions,

    /// Where its callers' chances come from
    #[arg(long)]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(super) host: HostOptions,
}

/// What each process does.
#[derive(Clone, Debug, Args)]
pub(super) struct LoadOptions {
    /// How many callers each process has; they pass its locks on
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    pub(super) callers: u16,

    /// How many names there are; each caller takes one of them at random, again and again
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub(super) names: u16,

    /// How long a lock is held at most; each time a random part of that
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10ms")]
    pub(super) hold: Duration,

    /// How long a caller waits for a lock
    #[arg(short = 'w', long, value_name = "TIME", value_parser = timeout, default_value = "30s")]
    pub(super) wait: Duration,

    /// How long the lock's rows live without renewal: whole seconds, 5 at least
    /// [env: `BAKERY_LOCK_TTL`] [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) ttl: Option<Duration>,

    /// Let the processes pass locks on to each other by message; each listens at a port of
    /// 127.0.0.1
    #[arg(long)]
    pub(super) peers: bool,
}

/// What a process reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// It can take locks.
    Ready,
    /// A try to get a lock has ended.
    Ended(Acquisition),
    /// It has ended, after this many tries.
    Done { tries: u64 },
    /// It can't continue.
    Failed(String),
}

/// Takes locks until it is asked to end, and returns the exit code.
pub(in crate::lockctl) async fn work(
    connection: &ConnectOptions,
    options: &WorkerOptions,
) -> Result<ExitCode, Failure> {
    let (told, code) = match take_locks(connection, options).await {
        Ok(tries) => (Told::Done { tries }, ExitCode::SUCCESS),
        // It is reported there, and not once more on standard error.
        Err(failure) => (Told::Failed(output::chain(&failure)), ExitCode::FAILURE),
    };
    tell(&told)?;
    Ok(code)
}

async fn take_locks(connection: &ConnectOptions, options: &WorkerOptions) -> Result<u64, Failure> {
    let mut orders = Orders::new()?;
    let client = tokio::select! {
        client = options.client(connection) => client?,
        _ = orders.ended() => return Ok(0),
    };
    tell(&Told::Ready)?;
    let tries = if orders.begin().await { options.run(&client, &mut orders).await } else { Ok(0) };
    shut_down(&client).await;
    tries
}

impl WorkerOptions {
    async fn client(&self, connection: &ConnectOptions) -> Result<LockClient, Failure> {
        let database = connection.connect().await?;
        // The order of a process's callers is checked.
        let builder = self.host.builder(&database, connection, self.load.ttl).local_handoff(true);
        let builder = if self.load.peers {
            builder.peers(PeerOptions::new(([127, 0, 0, 1], 0).into()))
        } else {
            builder
        };
        Ok(Box::pin(builder.build()).await?)
    }

    /// Lets the callers take locks, and returns how often they tried.
    async fn run(&self, client: &LockClient, orders: &mut Orders) -> Result<u64, Failure> {
        let stop = CancellationToken::new();
        let mut callers = JoinSet::new();
        for number in 1..=self.load.callers {
            let seed = self.seed ^ (u64::from(self.process) << 32) ^ u64::from(number);
            let caller = Caller {
                client: client.clone(),
                options: self.clone(),
                number,
                chance: StdRng::seed_from_u64(seed),
                stop: stop.clone(),
            };
            callers.spawn(caller.run());
        }
        let mut tries = 0;
        loop {
            tokio::select! {
                _ = orders.ended(), if !stop.is_cancelled() => stop.cancel(),
                ended = callers.join_next() => match ended {
                    Some(ended) => tries += ended.expect("a caller does not panic")?,
                    None => return Ok(tries),
                },
            }
        }
    }
}

/// One of the callers of a process.
struct Caller {
    client: LockClient,
    options: WorkerOptions,
    number: u16,
    chance: StdRng,
    stop: CancellationToken,
}

impl Caller {
    async fn run(mut self) -> Result<u64, Failure> {
        let mut tries = 0;
        while !self.stop.is_cancelled() {
            let acquisition = self.acquire().await;
            tries += 1;
            // Failures that come at once would come thousands of times a second.
            let pause = matches!(acquisition.outcome, Outcome::Failed(_));
            tell(&Told::Ended(acquisition))?;
            if pause {
                sleep(Duration::from_millis(100)).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
        Ok(tries)
    }

    /// Gets a lock, holds it and gives it back.
    async fn acquire(&mut self) -> Acquisition {
        let number = self.chance.random_range(1..=self.options.load.names);
        let hold = self.chance.random_range(Duration::ZERO..=self.options.load.hold);
        let name = name(&self.options.run, number);
        let request = self.client.request(&name).timeout(self.options.load.wait);
        let mut queued = None;
        // Nothing else runs between this and the request: callers ask in the order of these times.
        let asked = now();
        let outcome = {
            let mut acquiring = pin!(request.acquire());
            let mut looking = pin!(self.queued(&name));
            loop {
                tokio::select! {
                    biased;
                    acquired = &mut acquiring => break self.hold(acquired, hold).await,
                    seen = &mut looking, if queued.is_none() => queued = Some(seen),
                    () = self.stop.cancelled() => break Outcome::Withdrawn,
                }
            }
        };
        Acquisition {
            name: number,
            process: self.options.process,
            caller: self.number,
            asked,
            queued: queued.flatten(),
            outcome,
            ended: now(),
        }
    }

    /// When a read had shown that this process waits with a ticket, if it does after a while.
    ///
    /// A quorum has such a ticket then: a read at QUORUM repairs what it returns.
    async fn queued(&self, name: &str) -> Option<u64> {
        sleep(LOOK_AFTER).await;
        let contenders = self.client.contenders(name).await.ok()?;
        let pid = std::process::id();
        let mut ours = contenders.iter().filter(|contender| contender.owner.pid() == Some(pid));
        let is_queued = ours.any(|contender| {
            contender.state == Some(ContenderState::Waiting) && contender.ticket.is_some()
        });
        is_queued.then(now)
    }

    async fn hold(&self, acquired: Result<LockGuard, LockError>, time: Duration) -> Outcome {
        let granted = now();
        let guard = match acquired {
            Ok(guard) => guard,
            Err(LockError::TimedOut { cause: None, .. }) => return Outcome::TimedOut,
            Err(error) => return Outcome::Failed(output::chain(&error)),
        };
        let mut hold =
            Hold { granted, until: None, token: None, released: false, errors: Vec::new() };
        hold.confirm(&guard);
        let asked = now();
        match guard.fencing_token().await {
            Ok(token) => {
                hold.token = Some(Token { asked, given: now(), value: token.value() });
            }
            Err(error) => hold.errors.push(output::chain(&error)),
        }
        let mut left = time;
        while hold.confirm(&guard) && !left.is_zero() {
            let pause = left.min(NOTED_EVERY);
            sleep(pause).await;
            left -= pause;
        }
        match guard.unlock().await {
            Ok(()) => hold.released = true,
            Err(error) => hold.errors.push(output::chain(&error)),
        }
        Outcome::Held(hold)
    }
}

impl Hold {
    /// Notes that the lock is still held, if it is.
    fn confirm(&mut self, guard: &LockGuard) -> bool {
        // Before the look: it may stand still after it for longer than the lock is held.
        let at = now();
        let is_held = guard.state().is_held();
        if is_held {
            self.until = Some(at);
        }
        is_held
    }
}

/// The time of all processes, in nanoseconds.
fn now() -> u64 {
    u64::try_from(boot_time().as_nanos()).unwrap_or(u64::MAX)
}

fn tell(told: &Told) -> Result<(), Failure> {
    let line = serde_json::to_string(told).expect("what is told can be written");
    output::print(&format!("{line}\n"))
}

/// What the process that started this one wants.
struct Orders(Receiver);

impl Orders {
    fn new() -> Result<Self, Failure> {
        let orders = io::stdin().as_fd().try_clone_to_owned().and_then(Receiver::from_owned_fd);
        orders.map(Orders).map_err(Failure::system("orders can't be read"))
    }

    /// Waits for the order to begin; false if the process that gives it is gone.
    async fn begin(&mut self) -> bool {
        self.read().await.is_ok_and(|bytes| bytes > 0)
    }

    /// Waits until there are no more orders.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but an order to begin.
    async fn ended(&mut self) -> Option<Infallible> {
        while self.begin().await {}
        None
    }

    async fn read(&mut self) -> io::Result<usize> {
        loop {
            match self.0.try_read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.0.readable().await?,
                read => return read,
            }
        }
    }
}
