//! One run: its processes, and what they report.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::time::{Instant, sleep_until, timeout};

use super::acquisition::Acquisition;
use super::worker::{Told, WorkerOptions};
use super::workers::{Heard, Workers, ending};
use super::{PREFIX, SelftestOptions};
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::lockctl::progress::progress_bar;
use crate::output;
use crate::signals::Signals;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

/// A run and its history.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) seed: u64,
    pub(super) names: u16,
    workers: Workers,
    /// Those that can take locks.
    ready: BTreeSet<u16>,
    /// Those that ended without being asked to, or not in time.
    pub(super) dead: BTreeSet<u16>,
    /// What they died of, and what else went wrong with them.
    pub(super) failures: Vec<String>,
    /// How often each one tried, by its own count.
    pub(super) tries: BTreeMap<u16, u64>,
    pub(super) history: Vec<Acquisition>,
    grants: u64,
    /// For how long locks were taken.
    pub(super) time: Duration,
}

impl Run {
    /// Starts the processes.
    pub(super) fn start(
        connection: &ConnectOptions,
        options: &SelftestOptions,
    ) -> Result<Self, Failure> {
        // Not from the seed: two runs of one seed must not share names.
        let id = format!("{:016x}", rand::random::<u64>());
        let seed = options.seed.unwrap_or_else(rand::random);
        let worker = |process| WorkerOptions {
            run: id.clone(),
            process,
            load: options.load.clone(),
            seed,
            host: options.host.clone(),
        };
        let workers = Workers::start(connection, (1..=options.processes).map(worker))
            .map_err(Failure::system("a process that takes locks can't be started"))?;
        Ok(Run {
            id,
            seed,
            names: options.load.names,
            workers,
            ready: BTreeSet::new(),
            dead: BTreeSet::new(),
            failures: Vec::new(),
            tries: BTreeMap::new(),
            history: Vec::new(),
            grants: 0,
            time: Duration::ZERO,
        })
    }

    /// The process id of a process.
    pub(super) fn pid(&self, process: u16) -> u32 {
        self.workers.pids[usize::from(process) - 1]
    }

    #[cfg(test)]
    pub(super) fn set_pids(&mut self, pids: Vec<u32>) {
        self.workers.pids = pids;
    }

    /// What all names of the run begin with.
    pub(super) fn prefix(&self) -> String {
        format!("{PREFIX}{}::", self.id)
    }

    /// Lets the processes take locks for so long, or until all have died.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, what was reported until then is kept.
    pub(super) async fn take_locks(&mut self, length: Duration) -> Result<(), Failure> {
        while self.ready.len() + self.dead.len() < self.workers.pids.len() {
            let Some((process, heard)) = self.workers.next().await else { return Ok(()) };
            self.hear(process, heard);
        }
        output::note(&format!(
            "lockctl: {} processes take locks {}1 to {} for {length:?}; seed {}",
            self.ready.len(),
            self.prefix(),
            self.names,
            self.seed
        ));
        self.workers.begin().await;
        let bar = Bar::new(length);
        let mut tick = tokio::time::interval(TICK);
        let end = Instant::now() + length;
        let began = Instant::now();
        loop {
            self.time = began.elapsed();
            tokio::select! {
                () = sleep_until(end) => break,
                _ = tick.tick() => bar.show(self),
                heard = self.workers.next() => match heard {
                    Some((process, heard)) => self.hear(process, heard),
                    None => break,
                },
            }
        }
        self.time = began.elapsed();
        Ok(())
    }

    /// Has the processes end, and reads what they still report. Those that take longer are killed,
    /// and so are all at a signal.
    pub(super) async fn end(&mut self, patience: Duration, signals: &mut Signals) {
        self.workers.end();
        let ending = async {
            timeout(patience, self.hear_the_rest()).await.map_err(|_| Failure::No("late".into()))
        };
        if signals.or(ending).await.is_err() {
            self.workers.kill().await;
            // What was heard before.
            self.hear_the_rest().await;
            let started = 1..=u16::try_from(self.workers.pids.len()).unwrap_or(u16::MAX);
            for process in started {
                if !self.tries.contains_key(&process) {
                    self.die(process, "it did not end in time, and was killed");
                }
            }
        }
    }

    async fn hear_the_rest(&mut self) {
        while let Some((process, heard)) = self.workers.next().await {
            self.hear(process, heard);
        }
    }

    fn hear(&mut self, process: u16, heard: Heard) {
        match heard {
            Heard::Told(Told::Ready) => {
                self.ready.insert(process);
            }
            Heard::Told(Told::Ended(acquisition)) => {
                self.grants += u64::from(acquisition.hold().is_some());
                self.history.push(acquisition);
            }
            Heard::Told(Told::Done { tries }) => {
                self.tries.insert(process, tries);
            }
            Heard::Told(Told::Failed(why)) => self.die(process, &why),
            Heard::Noise(line) => self.fail(process, &format!("it said {line:?}")),
            Heard::Ended(status) => {
                let in_order = matches!(&status, Ok(status) if status.success());
                if !(in_order && self.tries.contains_key(&process)) {
                    self.die(process, &ending(&status));
                }
            }
        }
    }

    /// A process is gone, for a reason that counts if there is none yet.
    fn die(&mut self, process: u16, why: &str) {
        self.ready.remove(&process);
        if self.dead.insert(process) {
            self.fail(process, why);
        }
    }

    fn fail(&mut self, process: u16, why: &str) {
        let failure = format!("process {process} (pid {}): {why}", self.pid(process));
        self.failures.push(failure);
    }
}

/// How far a run is, at the terminal. It disappears with this value.
struct Bar(ProgressBar);

impl Bar {
    fn new(length: Duration) -> Self {
        let bar = progress_bar("{bar:40} {percent}%, {msg}");
        bar.set_length(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        Bar(bar)
    }

    fn show(&self, run: &Run) {
        self.0.set_position(u64::try_from(run.time.as_millis()).unwrap_or(u64::MAX));
        let deaths = match run.dead.len() {
            0 => String::new(),
            dead => format!(", {dead} processes died"),
        };
        self.0.set_message(format!("{} grants{deaths}", run.grants));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
