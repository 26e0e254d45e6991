//! What a lock of `bakery-lockd` costs, with Redis in the same run.
//!
//!     cargo bench --bench lockd -- --lockd /tmp/lockd.sock --lockd-tcp 127.0.0.1:6380 \
//!         --redis /tmp/redis.sock --redis-tcp 127.0.0.1:6379 --pid "$(pidof bakery-lockd)"
//!
//! Both run already: the daemon on three nodes, Redis without persistence. A lock is `SET NX PX`
//! and the script that most clients release it with, over blocking sockets, so that the client
//! costs as little as it can. Sides take turns.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use common::resp::{Connection, RELEASE, command, memory};

#[derive(Parser)]
struct Arguments {
    /// The daemon's socket.
    #[arg(long)]
    lockd: PathBuf,
    /// An address of the daemon.
    #[arg(long)]
    lockd_tcp: SocketAddr,
    /// The socket of Redis.
    #[arg(long)]
    redis: PathBuf,
    /// An address of Redis.
    #[arg(long)]
    redis_tcp: SocketAddr,
    /// The daemon's process, to see its memory.
    #[arg(long)]
    pid: u32,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Locks of a round.
    #[arg(long, default_value_t = 500)]
    locks: usize,
    /// Connections that pass one lock on.
    #[arg(long, default_value_t = 16)]
    contenders: usize,
    /// Connections that do nothing.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is measured of one server.
struct Side {
    name: &'static str,
    connection: Connection,
    /// Microseconds of each lock and of each release.
    locks: Vec<u64>,
    releases: Vec<u64>,
}

impl Side {
    fn new(name: &'static str, connection: Connection) -> Self {
        Side { name, connection, locks: Vec::new(), releases: Vec::new() }
    }

    fn round(
        &mut self,
        locks: usize,
        is_counted: bool,
        names: &dyn Fn(usize) -> String,
    ) -> Result<()> {
        for number in 0..locks {
            let name = names(number);
            let lock = command(&["SET", &name, "owner", "NX", "PX", "30000"]);
            let release = command(&["EVAL", RELEASE, "1", &name, "owner"]);
            let began = Instant::now();
            self.connection.call(&lock, b"+OK\r\n")?;
            let held = Instant::now();
            self.connection.call(&release, b":1\r\n")?;
            if is_counted {
                self.locks.push(nanos(held - began));
                self.releases.push(nanos(held.elapsed()));
            }
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn median(values: &mut [u64]) -> f64 {
    values.sort_unstable();
    values.get(values.len() / 2).map_or(f64::NAN, |value| *value as f64 / 1_000.0)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    again_and_again(&arguments)?;
    handoffs(&arguments)?;
    idle(&arguments)
}

/// One name, and names in turn.
fn again_and_again(arguments: &Arguments) -> Result<()> {
    for (what, names) in [("one name", 1), ("1,000 names in turn", 1_000)] {
        let mut sides = vec![
            Side::new("Redis, socket", Connection::unix(&arguments.redis)?),
            Side::new("lockd, socket", Connection::unix(&arguments.lockd)?),
            Side::new("Redis, TCP", Connection::tcp(arguments.redis_tcp)?),
            Side::new("lockd, TCP", Connection::tcp(arguments.lockd_tcp)?),
        ];
        for round in 0..=arguments.rounds {
            for side in &mut sides {
                let names = |number: usize| format!("bench{}", number % names);
                // The first one warms up.
                side.round(arguments.locks, round > 0, &names)?;
            }
        }
        println!("{what}: microseconds, medians");
        println!("{:16} {:>8} {:>8}", "", "lock", "release");
        for side in &mut sides {
            let (lock, release) = (median(&mut side.locks), median(&mut side.releases));
            println!("{:16} {lock:>8.1} {release:>8.1}", side.name);
        }
    }
    Ok(())
}

/// Locks that many connections want, which wait for them; with Redis, an element of a list that
/// they take and put back, which is no lock but as many messages.
fn handoffs(arguments: &Arguments) -> Result<()> {
    let contenders = arguments.contenders;
    println!("handoffs a second between {contenders} connections that wait");
    for (what, socket, line, names) in [
        ("Redis, BLPOP and RPUSH", &arguments.redis, Line::List, 1),
        ("lockd, LOCK and UNLOCK", &arguments.lockd, Line::Lock, 1),
        // A connection of Redis waits for one list at a time.
        ("lockd, 4 locks each", &arguments.lockd, Line::Lock, 4),
    ] {
        println!("{what:24} {:>8}", handoffs_of(socket, line, contenders, names)?);
    }
    Ok(())
}

/// What connections wait in line for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// A lock of the daemon.
    Lock,
    /// The only element of a list of Redis.
    List,
}

impl Line {
    /// The command of a connection that waits, and the one that lets the next one have it.
    fn commands(self, number: usize, name: usize) -> [Vec<u8>; 2] {
        let (name, owner) = (handoff(name), format!("owner{number:03}"));
        match self {
            Line::Lock => [
                command(&["LOCK", &name, "WAIT", "60000", "OWNER", &owner]),
                command(&["UNLOCK", &name, &owner]),
            ],
            Line::List => [command(&["BLPOP", &name, "60"]), command(&["RPUSH", &name, "token"])],
        }
    }

    /// Where the answer to the command that waits ends, if it has come; before it, there may be
    /// answers to the other one.
    fn granted(self, answers: &[u8]) -> Result<Option<usize>> {
        let text = std::str::from_utf8(answers).unwrap_or_default();
        ensure!(!text.contains("\r\n-") && !text.starts_with('-'), "{text}");
        let last = match self {
            Line::Lock => "valid_ms\r\n:",
            Line::List => "$5\r\n",
        };
        let Some(start) = text.find(last) else { return Ok(None) };
        let rest = start + last.len();
        Ok(text[rest..].find("\r\n").map(|end| rest + end + 2))
    }
}

/// The name of a lock, or of a list.
fn handoff(number: usize) -> String {
    format!("handoff{number}")
}

/// How often locks, or elements of lists, are passed on in a second.
fn handoffs_of(socket: &Path, line: Line, contenders: usize, names: usize) -> Result<u64> {
    const FOR: Duration = Duration::from_secs(10);
    let (granted, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut threads = Vec::new();
    if line == Line::List {
        // Of an earlier run.
        let mut connection = Connection::unix(socket)?;
        connection.call(&command(&["SET", &handoff(0), ""]), b"+OK\r\n")?;
        connection.call(&command(&["DEL", &handoff(0)]), b":1\r\n")?;
        let [_, pass_on] = line.commands(0, 0);
        connection.call(&pass_on, b":1\r\n")?;
    }
    for number in 0..contenders {
        let mut connection = Connection::unix(socket)?;
        let (granted, is_over) = (Arc::clone(&granted), Arc::clone(&is_over));
        threads.push(thread::spawn(move || -> Result<()> {
            let commands = (0..names).map(|name| line.commands(number, name));
            let commands: Vec<_> = commands.collect();
            // The next request is on its way together with the release.
            let both = commands.iter().map(|[wait, pass_on]| [&pass_on[..], wait].concat());
            let both: Vec<_> = both.collect();
            for [wait, _] in &commands {
                connection.write(wait)?;
            }
            // Answers come in the order of requests.
            let mut requests = both.iter().cycle();
            let (mut answers, mut next) = (Vec::new(), Vec::new());
            let mut buffer = [0; 4_096];
            while !is_over.load(Ordering::Relaxed) {
                let count = connection.read(&mut buffer)?;
                ensure!(count > 0, "the server has closed the connection");
                answers.extend_from_slice(&buffer[..count]);
                while let Some(end) = line.granted(&answers)? {
                    answers.drain(..end);
                    granted.fetch_add(1, Ordering::Relaxed);
                    next.extend_from_slice(requests.next().expect("it has no end"));
                }
                connection.write(&next)?;
                next.clear();
            }
            Ok(())
        }));
    }
    thread::sleep(Duration::from_secs(2));
    let before = granted.load(Ordering::Relaxed);
    thread::sleep(FOR);
    let grants = granted.load(Ordering::Relaxed) - before;
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("it does not panic")?;
    }
    Ok(grants / FOR.as_secs())
}

/// Connections that do nothing.
fn idle(arguments: &Arguments) -> Result<()> {
    let before = memory(arguments.pid)?;
    let mut connections = Vec::new();
    for _ in 0..arguments.idle {
        let mut connection = Connection::unix(&arguments.lockd)?;
        connection.call(b"PING\r\n", b"+PONG\r\n")?;
        connections.push(connection);
    }
    let grown = memory(arguments.pid)?.saturating_sub(before);
    println!(
        "{} idle connections: {} bytes each",
        arguments.idle,
        grown / arguments.idle.max(1) as u64
    );
    Ok(())
}
