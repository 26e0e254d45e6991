//! Very many locks that one daemon holds.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use common::resp::{Connection, command, memory};

use crate::daemon::Daemon;
use crate::service::Service;
use crate::{Arguments, SETTLING};

/// Locks that are asked for before the first answer is read.
const AHEAD: usize = 256;

/// How long others are watched while they are held: renewals come every 20 s.
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
    let daemon = Daemon::start(arguments, &[])?;
    // One client, so that the daemon has time for the rest.
    let service = Service::start(&daemon.socket, 1)?;
    std::thread::sleep(SETTLING);
    let alone = service.window(Duration::from_secs(5));
    let before = memory(daemon.pid())?;
    let began = Instant::now();
    let connection = take(&daemon.socket, names, end)?;
    let taken = began.elapsed();
    let grown = memory(daemon.pid())?.saturating_sub(before);
    let beside = service.window(WATCHED);
    let seen = daemon.figure("locks_held")?;
    service.stop()?;
    ensure!(seen >= names as u64, "only {seen} are held");
    println!(
        "{names} locks that end with {}: {:.1} s to take, {} bytes each",
        match end {
            End::Connection => "their connection",
            End::Time => "time",
        },
        taken.as_secs_f64(),
        grown / names.max(1) as u64
    );
    println!(
        "  another lock and its release: {:.0} a second, p99 {:.0} µs; before {:.0}, p99 {:.0} µs",
        beside.per_second, beside.slow, alone.per_second, alone.slow
    );
    if end == End::Connection {
        let began = Instant::now();
        drop(connection);
        daemon.quiet_at(0)?;
        println!("  released {:.1} s after the connection ends", began.elapsed().as_secs_f64());
        let _again = take(&daemon.socket, names, end)?;
        report_end(daemon)
    } else {
        report_end(daemon)
    }
}

fn report_end(daemon: Daemon) -> Result<()> {
    let (time, status) = daemon.end()?;
    println!("  the daemon ends {:.1} s after TERM, with them ({status})", time.as_secs_f64());
    Ok(())
}

/// Takes locks over one connection.
fn take(socket: &Path, names: usize, end: End) -> Result<Connection> {
    let mut connection = Connection::unix(socket)?;
    let mut buffer = vec![0; 1 << 16];
    let (mut asked, mut granted) = (0, 0);
    let mut last = Vec::new();
    while granted < names {
        let mut commands = Vec::new();
        while asked < names && asked - granted < AHEAD {
            let name = format!("held{asked}");
            commands.extend(match end {
                End::Connection => command(&["LOCK", &name, "NOWAIT"]),
                // It is renewed meanwhile, because the table allows no rows that live as long.
                End::Time => command(&["SET", &name, "owner", "NX", "PX", "3600000"]),
            });
            asked += 1;
        }
        connection.write(&commands)?;
        let count = connection.read(&mut buffer)?;
        ensure!(count > 0, "the daemon has closed the connection");
        last.extend_from_slice(&buffer[..count]);
        // An answer ends with a number, or is a line.
        let whole = last.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&last[..whole]).into_owned();
        last.drain(..whole);
        ensure!(!text.starts_with('-') && !text.contains("\n-"), "{text}");
        let mark = if end == End::Connection { ':' } else { '+' };
        granted += text.lines().filter(|line| line.starts_with(mark)).count();
    }
    Ok(connection)
}
