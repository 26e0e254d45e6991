//! Hostile clients.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use common::resp::{RELEASE, command};

/// Clients of a kind that has several.
const SEVERAL: usize = 4;

/// What a hostile client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sends commands with long answers, and reads few of them.
    SlowReaders,
    /// Announces an argument of 1 GB, and begins to send it.
    BigBulk,
    /// Takes one lock after the other, without waiting for the answers.
    Names,
    /// Sends commands that need no lock, without waiting for the answers.
    Pings,
    /// The same with locks of one name.
    Locks,
    /// Connects, asks something, and leaves.
    Connections,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::SlowReaders,
        Kind::BigBulk,
        Kind::Names,
        Kind::Pings,
        Kind::Locks,
        Kind::Connections,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::SlowReaders => "slow-readers",
            Kind::BigBulk => "big-bulk",
            Kind::Names => "names",
            Kind::Pings => "pipeline",
            Kind::Locks => "pipeline-of-locks",
            Kind::Connections => "connections",
        }
    }

    pub(crate) fn start(self, socket: &Path) -> Result<Hostile> {
        let mut hostile = Hostile::default();
        match self {
            Kind::SlowReaders => {
                let commands = b"INFO\r\n".repeat(1_000);
                let pause = Duration::from_millis(10);
                for _ in 0..SEVERAL {
                    hostile.pipeline(socket, 4_096, pause, cycling(commands.clone()))?;
                }
            }
            Kind::BigBulk => hostile.again(socket, announce),
            Kind::Names => {
                let mut number = 0;
                let commands = move || {
                    number += 1;
                    command(&["LOCK", &format!("hostile{number}"), "NOWAIT"])
                };
                hostile.pipeline(socket, 1 << 16, Duration::ZERO, commands)?;
            }
            Kind::Pings => {
                let commands = command(&["PING"]).repeat(1_000);
                hostile.pipeline(socket, 1 << 16, Duration::ZERO, cycling(commands))?;
            }
            Kind::Locks => {
                let lock = command(&["SET", "hostile", "owner", "NX", "PX", "30000"]);
                let release = command(&["EVAL", RELEASE, "1", "hostile", "owner"]);
                let commands = [lock, release].concat().repeat(100);
                hostile.pipeline(socket, 1 << 16, Duration::ZERO, cycling(commands))?;
            }
            Kind::Connections => {
                for _ in 0..SEVERAL {
                    hostile.again(socket, visit);
                }
            }
        }
        Ok(hostile)
    }
}

fn cycling(commands: Vec<u8>) -> impl FnMut() -> Vec<u8> + Send + 'static {
    move || commands.clone()
}

/// A hostile client that runs.
#[derive(Default)]
pub(crate) struct Hostile {
    shared: Arc<Shared>,
    streams: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Lines that it has read, or connections that it has made.
    work: AtomicU64,
}

impl Hostile {
    /// What it has got done.
    pub(crate) fn work(&self) -> u64 {
        self.shared.work.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            // The daemon may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads {
            thread.join().expect("it does not panic");
        }
    }

    /// Writes as fast as the daemon reads, and reads answers in pieces, with a pause after each.
    fn pipeline(
        &mut self,
        socket: &Path,
        piece: usize,
        pause: Duration,
        mut commands: impl FnMut() -> Vec<u8> + Send + 'static,
    ) -> Result<()> {
        let mut writes = UnixStream::connect(socket)?;
        let mut reads = writes.try_clone()?;
        self.streams.push(writes.try_clone()?);
        self.threads.push(thread::spawn(move || {
            let mut buffer = Vec::new();
            loop {
                buffer.clear();
                while buffer.len() < 1 << 14 {
                    buffer.extend(commands());
                }
                if writes.write_all(&buffer).is_err() {
                    return;
                }
            }
        }));
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn(move || {
            let mut buffer = vec![0; piece];
            while let Ok(count) = reads.read(&mut buffer) {
                if count == 0 {
                    return;
                }
                let lines = buffer[..count].iter().filter(|byte| **byte == b'\n').count();
                shared.work.fetch_add(lines as u64, Ordering::Relaxed);
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
        }));
        Ok(())
    }

    /// Does something over and over.
    fn again(&mut self, socket: &Path, visit: fn(&Path) -> std::io::Result<()>) {
        let (shared, socket): (_, PathBuf) = (Arc::clone(&self.shared), socket.to_owned());
        self.threads.push(thread::spawn(move || {
            while !shared.is_over.load(Ordering::Relaxed) {
                match visit(&socket) {
                    // The daemon closes the connection of one that asks for too much.
                    Ok(()) => {}
                    Err(error) if is_closed(error.kind()) => {}
                    Err(error) => panic!("{error}"),
                }
                shared.work.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&kind)
}

fn announce(socket: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"*1\r\n$1000000000\r\n")?;
    let piece = vec![b'a'; 1 << 16];
    loop {
        stream.write_all(&piece)?;
    }
}

fn visit(socket: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"PING\r\n")?;
    stream.read_exact(&mut [0; 7])
}
