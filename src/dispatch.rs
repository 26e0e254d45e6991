//! The client's task: one runner per object, spawned on demand, retired when idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::DropGuard;

use crate::assumptions::{Breach, Occasion, Watch};
use crate::error::LockError;
use crate::hosts::{self, Host, RegistryError};
use crate::local::Caller;
use crate::runner::{Command, Idle, Report, Runner, Shared};
use crate::store::{Node, Testimony};

/// How often the registration of the host is reread, at most (design section 9).
const REGISTRATION_LIFE: Duration = Duration::from_secs(60);

/// What a client asks of its task.
#[derive(Debug)]
pub(crate) enum Call {
    /// Acquire an object for a caller.
    Acquire(Arc<str>, Caller),
    /// Refuse new calls, send waiting callers away and give everything back.
    Shutdown,
}

/// The client's task. It ends when it was shut down, or when all clients, guards and releases are
/// gone.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    calls: mpsc::UnboundedReceiver<Call>,
    registration: Option<Registration>,
    watch: Option<Watch>,
    /// In order, so that a simulation closes them in the same order each time.
    runners: BTreeMap<Arc<str>, Entry>,
    tasks: JoinSet<()>,
    reports: mpsc::UnboundedReceiver<Report>,
    report_sender: mpsc::UnboundedSender<Report>,
    closing: bool,
    /// Tells the clients when the task has ended, also when its runtime ends it.
    _ended: DropGuard,
}

#[derive(Debug)]
struct Entry {
    commands: mpsc::UnboundedSender<Command>,
    callers_sent: u64,
}

/// What is known of the host's registration.
#[derive(Debug)]
pub(crate) struct Registration {
    host_name: String,
    number: i32,
    checked: Duration,
    check: JoinSet<Result<Option<Host>, RegistryError>>,
    removed: bool,
}

impl Registration {
    /// A registration that was read at `now`.
    pub(crate) fn new(host_name: String, number: i32, now: Duration) -> Self {
        Registration { host_name, number, checked: now, check: JoinSet::new(), removed: false }
    }
}

enum Wake {
    Call(Option<Call>),
    Report(Report),
    RunnerEnded,
    RegistrationRead(Result<Option<Host>, RegistryError>),
    Looked(Vec<(Node, Option<Testimony>)>),
}

impl Dispatcher {
    /// A dispatcher; a client without `registration` and `watch` is the registry's own.
    pub(crate) fn new(
        shared: Arc<Shared>,
        calls: mpsc::UnboundedReceiver<Call>,
        registration: Option<Registration>,
        watch: Option<Watch>,
        ended: DropGuard,
    ) -> Self {
        let (report_sender, reports) = mpsc::unbounded_channel();
        Dispatcher {
            shared,
            calls,
            registration,
            watch,
            runners: BTreeMap::new(),
            tasks: JoinSet::new(),
            reports,
            report_sender,
            closing: false,
            _ended: ended,
        }
    }

    /// Runs until nobody can call any more and every runner has ended.
    pub(crate) async fn run(mut self) {
        let mut calls_open = true;
        while calls_open || !self.tasks.is_empty() {
            match self.wake(calls_open).await {
                Wake::Call(Some(Call::Acquire(object, caller))) => self.acquire(object, caller),
                Wake::Call(Some(Call::Shutdown)) => {
                    // What was called before is answered; what comes later finds the door closed.
                    self.calls.close();
                    self.close();
                }
                Wake::Call(None) => calls_open = false,
                Wake::Report(Report::Idle(idle)) => self.retire(&idle),
                Wake::Report(Report::Look(occasion)) => self.look(occasion),
                Wake::RunnerEnded => {}
                Wake::RegistrationRead(read) => self.registration_read(read),
                Wake::Looked(seen) => self.looked(&seen),
            }
        }
    }

    async fn wake(&mut self, calls_open: bool) -> Wake {
        let check = async {
            match self.registration.as_mut().filter(|registration| !registration.check.is_empty()) {
                Some(registration) => registration.check.join_next().await,
                None => std::future::pending().await,
            }
        };
        let look = async {
            match &mut self.watch {
                Some(watch) => watch.seen().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            call = self.calls.recv(), if calls_open => Wake::Call(call),
            Some(report) = self.reports.recv() => Wake::Report(report),
            Some(Ok(read)) = check => Wake::RegistrationRead(read),
            seen = look => Wake::Looked(seen),
            Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => Wake::RunnerEnded,
        }
    }

    fn acquire(&mut self, object: Arc<str>, caller: Caller) {
        self.refresh_registration();
        self.look(Occasion::Acquisition);
        if let Some(registration) = self.registration.as_ref().filter(|r| r.removed) {
            let host = registration.host_name.clone();
            return caller.answer(Err(LockError::HostRemoved { host }));
        }
        if self.closing {
            return caller.answer(Err(LockError::Closed));
        }
        if let Some(breach) = self.breach() {
            return caller.answer(Err(breach.refusal(&object)));
        }
        let entry = self.runners.entry(Arc::clone(&object)).or_insert_with(|| {
            let shared = Arc::clone(&self.shared);
            let (runner, commands) = Runner::new(object, shared, self.report_sender.clone());
            self.tasks.spawn(runner.run());
            Entry { commands, callers_sent: 0 }
        });
        entry.callers_sent += 1;
        // A runner ends only when it is told to; if a bug ended it, the caller's reply is dropped,
        // which it takes as closed.
        let _ = entry.commands.send(Command::Acquire(caller));
    }

    /// Ends a runner that has nothing to do, unless callers are on their way to it.
    fn retire(&mut self, idle: &Idle) {
        let Some(entry) = self.runners.get(&idle.object) else {
            return;
        };
        if entry.callers_sent == idle.callers_taken {
            let _ = entry.commands.send(Command::Retire);
            self.runners.remove(&idle.object);
        }
    }

    fn close(&mut self) {
        self.closing = true;
        for entry in self.runners.values() {
            let _ = entry.commands.send(Command::Close);
        }
    }

    /// Rereads the registration in the background once what is known of it is old.
    fn refresh_registration(&mut self) {
        let now = self.shared.clock.elapsed();
        let Some(registration) = &mut self.registration else {
            return;
        };
        if registration.check.is_empty() && now >= registration.checked + REGISTRATION_LIFE {
            registration.checked = now;
            let (shared, name) = (Arc::clone(&self.shared), registration.host_name.clone());
            registration.check.spawn(async move { hosts::lookup(&*shared.store, &name).await });
        }
    }

    fn registration_read(&mut self, read: Result<Option<Host>, RegistryError>) {
        let Some(registration) = &mut self.registration else {
            return;
        };
        // What could not be read says nothing; the next call asks again.
        if let Ok(host) = read {
            registration.removed = host.is_none_or(|host| host.number() != registration.number);
        }
    }

    /// Looks in the background at what locks rely on, if that is due.
    fn look(&mut self, occasion: Occasion) {
        if let Some(watch) = &mut self.watch {
            watch.look(occasion, &self.shared.store, self.shared.clock.elapsed());
        }
    }

    fn looked(&mut self, seen: &[(Node, Option<Testimony>)]) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        if watch.judge(seen) {
            for entry in self.runners.values() {
                let _ = entry.commands.send(Command::Heed(watch.breach().cloned()));
            }
        }
    }

    fn breach(&self) -> Option<&Breach> {
        self.watch.as_ref()?.breach()
    }
}
