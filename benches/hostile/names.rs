//! Many locks that one daemon holds.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::resp::{Connection, command, memory};

use crate::daemon::Daemon;
use crate::service::Service;
use crate::{Arguments, SETTLING};

/// Locks that are asked for before the first answer is read.
const AHEAD: usize = 256;

/// How long others are watched while they are held: with a TTL of 60 s all are renewed in it.
const WATCHED: Duration = Duration::from_secs(25);

/// What ends the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Connection,
    Time,
}

pub(crate) fn measure(arguments: &Arguments) -> Result<()> {
    for end in [End::Connection, End::Time] {
        held(arguments, end)?;
    }
    Ok(())
}

fn held(arguments: &Arguments, end: End) -> Result<()> {
    let names = arguments.names;
    let daemon = Daemon::start(arguments, &["--ttl", &arguments.ttl])?;
    // One client, so that the daemon has time for the rest.
    let service = Service::start(&daemon.socket, 1)?;
    std::thread::sleep(SETTLING);
    let alone = service.window(Duration::from_secs(5));
    let before = memory(daemon.pid())?;
    let began = Instant::now();
    let (mut connection, again) = take(&daemon.socket, names, end)?;
    let taken = began.elapsed();
    let grown = memory(daemon.pid())?.saturating_sub(before);
    let meanwhile = service.window(WATCHED);
    let seen = daemon.figure("locks_held")?;
    service.stop()?;
    ensure!(seen >= names as u64, "only {seen} are held");
    println!(
        "{names} locks that end with {}: {:.1} s to take, {again} asked for again, {} bytes each",
        match end {
            End::Connection => "their connection",
            End::Time => "time",
        },
        taken.as_secs_f64(),
        grown / names.max(1) as u64
    );
    println!(
        "  another lock and its release: {:.0} a second, p99 {:.0} µs; before {:.0}, p99 {:.0} µs",
        meanwhile.per_second, meanwhile.slow, alone.per_second, alone.slow
    );
    if end == End::Connection {
        drop(connection);
        let released = daemon.rested()?;
        println!("  released {:.1} s after the connection ends", released.as_secs_f64());
        connection = take(&daemon.socket, names, end)?.0;
    }
    let (time, status) = daemon.end()?;
    drop(connection);
    println!("  the daemon ends {:.1} s after TERM, with them ({status})", time.as_secs_f64());
    Ok(())
}

/// Takes locks over one connection, and how often one was asked for again.
fn take(socket: &Path, names: usize, end: End) -> Result<(Connection, usize)> {
    let mut connection = Connection::unix(socket)?;
    let mut buffer = vec![0; 1 << 16];
    let mut todo: VecDeque<_> = (0..names).collect();
    let (mut asked, mut answers) = (VecDeque::new(), Answers::default());
    let (mut granted, mut again) = (0, 0);
    while granted < names {
        let mut commands = Vec::new();
        while asked.len() < AHEAD
            && let Some(number) = todo.pop_front()
        {
            let name = format!("held{number}");
            commands.extend(match end {
                End::Connection => command(&["LOCK", &name, "NOWAIT"]),
                // It is renewed meanwhile, because the table allows no rows that live as long.
                End::Time => command(&["SET", &name, "owner", "NX", "PX", "3600000"]),
            });
            asked.push_back(number);
        }
        connection.write(&commands)?;
        let count = connection.read(&mut buffer)?;
        ensure!(count > 0, "the daemon has closed the connection");
        for is_granted in answers.read(&buffer[..count])? {
            let number = asked.pop_front().context("an answer to nothing")?;
            if is_granted {
                granted += 1;
            } else {
                again += 1;
                todo.push_back(number);
            }
        }
    }
    Ok((connection, again))
}

/// Answers to requests for locks.
#[derive(Default)]
struct Answers {
    /// What has come of the next line.
    line: Vec<u8>,
    is_in_map: bool,
}

impl Answers {
    /// For each answer that is complete, whether the lock was granted. Without a quorum it was not.
    fn read(&mut self, bytes: &[u8]) -> Result<Vec<bool>> {
        let mut answers = Vec::new();
        for byte in bytes {
            self.line.push(*byte);
            if *byte != b'\n' {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            match line[0] {
                b'*' => self.is_in_map = true,
                b':' if self.is_in_map => {
                    // The last value.
                    self.is_in_map = false;
                    answers.push(true);
                }
                _ if self.is_in_map => {}
                b'+' => answers.push(true),
                _ => {
                    ensure!(line.starts_with(b"-NOLOCK"), "{}", line.escape_ascii());
                    answers.push(false);
                }
            }
        }
        Ok(answers)
    }
}
