//! Well-behaved clients: each takes and releases a lock of its own, over and over.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use common::resp::{Connection, RELEASE, command};

/// The clients.
pub(crate) struct Service {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    locks: AtomicU64,
    is_over: AtomicBool,
    /// Microseconds of each lock and its release, in a window.
    times: Mutex<Vec<f64>>,
}

/// What was seen in a window.
pub(crate) struct Seen {
    /// Locks that were taken and released in a second.
    pub(crate) per_second: f64,
    /// Microseconds that one of a hundred exceeds.
    pub(crate) slow: f64,
}

impl Service {
    pub(crate) fn start(socket: &Path, clients: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for number in 0..clients {
            let connection = Connection::unix(socket)?;
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || serve(connection, number, &shared)));
        }
        Ok(Service { shared, threads })
    }

    pub(crate) fn window(&self, time: Duration) -> Seen {
        let times = || self.shared.times.lock().unwrap_or_else(PoisonError::into_inner);
        times().clear();
        let (before, began) = (self.shared.locks.load(Ordering::Relaxed), Instant::now());
        thread::sleep(time);
        let locks = self.shared.locks.load(Ordering::Relaxed) - before;
        let per_second = locks as f64 / began.elapsed().as_secs_f64();
        let mut times = std::mem::take(&mut *times());
        times.sort_by(f64::total_cmp);
        let slow = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        Seen { per_second, slow }
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it does not panic")?;
        }
        Ok(())
    }
}

fn serve(mut connection: Connection, number: usize, shared: &Shared) -> Result<()> {
    let name = format!("service{number}");
    let lock = command(&["SET", &name, "owner", "NX", "PX", "30000"]);
    let release = command(&["EVAL", RELEASE, "1", &name, "owner"]);
    while !shared.is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        // The database may be slow as well.
        if !connection.is_answered(&lock, b"+OK\r\n", Some(b"-NOLOCK"))? {
            continue;
        }
        connection.call(&release, b":1\r\n")?;
        let time = began.elapsed().as_secs_f64() * 1e6;
        shared.locks.fetch_add(1, Ordering::Relaxed);
        shared.times.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }
    Ok(())
}
