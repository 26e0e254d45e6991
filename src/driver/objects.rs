//! The objects that a client uses: callers find the task of their object here, and start it if
//! there is none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio_util::task::TaskTracker;
use tracing::error;

use super::caller::Caller;
use super::clock_watch::ClockWatch;
use super::object_task::{Command, Ended, SharedTask, input_of_message, settings};
use crate::combiner::Combiner;
use crate::context::ClientContext;
use crate::core::object::io::{CallerId, CheckReason, Now, Output};
use crate::core::object::{Memory, Object};
use crate::core::turns::KeeperId;
use crate::driver::caller::QueueReplyTo;
use crate::driver::health::HealthProblem;
use crate::error::LockError;
use crate::guard::LockHandle;
use crate::options::shown;
use crate::peers::{Message, ObjectKey};

/// Of this many objects it is remembered how they were used, and which keeper served them last.
const MEMORIES_MAX: usize = 10_000;

/// Too many memories are looked through at most this often. One that counts for the next use of its
/// object is kept in any case.
const LOOK_THROUGH_EVERY: Duration = Duration::from_secs(1);

/// A caller, and the object that it wants.
pub(crate) type Asking = (Arc<str>, Caller);

/// The objects that a client uses.
#[derive(Debug)]
pub(crate) struct Objects {
    shared: Arc<ClientContext>,
    runtime: Handle,
    tasks: TaskTracker,
    /// The client's task is to look at the clock.
    needs_watch: Notify,
    /// Locked only briefly, and never while foreign code runs.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Ordered, so that a simulation closes them in the same order each time.
    tasks: BTreeMap<Arc<str>, Arc<SharedTask>>,
    /// The names of the objects in use, by their keys in messages.
    names: BTreeMap<ObjectKey, Arc<str>>,
    memories: BTreeMap<Arc<str>, Memory>,
    /// Too many memories are looked through from then on.
    looks_through_from: Duration,
    admission: Admission,
    problem: Option<HealthProblem>,
    is_closed: bool,
    /// The client's task looks whether the clock has gone ahead of the timers.
    is_watched: bool,
}

/// When a caller concerns the client's task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// From then on callers wait for the registration to be read.
    pub(crate) registered_until: Duration,
    /// From then on a caller is a reason to check health.
    pub(crate) check_due: Duration,
}

impl Objects {
    /// No objects yet. Called on the client's runtime.
    pub(crate) fn new(shared: Arc<ClientContext>, admission: Admission) -> Arc<Self> {
        let state = State {
            tasks: BTreeMap::new(),
            names: BTreeMap::new(),
            memories: BTreeMap::new(),
            looks_through_from: Duration::ZERO,
            admission,
            problem: None,
            is_closed: false,
            is_watched: false,
        };
        let (runtime, tasks) = (Handle::current(), TaskTracker::new());
        let needs_watch = Notify::new();
        Arc::new(Objects { shared, runtime, tasks, needs_watch, state: Mutex::new(state) })
    }

    /// Passes a caller on to the task of its object; returns it if the registration must be read
    /// first. A caller that is refused in any case need not wait for that.
    pub(crate) fn acquire(self: &Arc<Self>, asking: Asking) -> Option<Asking> {
        let now = self.shared.clock.elapsed();
        let state = self.state();
        let Admission { registered_until, check_due } = state.admission;
        if check_due <= now {
            // If the client's task has ended, the caller is refused.
            let _ = self.shared.checks.send(CheckReason::Acquisition);
        }
        if registered_until <= now && state.refusal(&asking.0).is_none() {
            return Some(asking);
        }
        self.pass_on(state, asking);
        None
    }

    /// Passes a caller of a registered host on to the task of its object.
    pub(crate) fn serve(self: &Arc<Self>, asking: Asking) {
        self.pass_on(self.state(), asking);
    }

    fn pass_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>, (object, caller): Asking) {
        if let Some(refusal) = state.refusal(&object) {
            drop(state);
            return caller.answer(Err(refusal));
        }
        let command = Command::Acquire(caller);
        if let Some(task) = state.tasks.get(&object) {
            let task = Arc::clone(task);
            // An object is in use at least as long as it is found here.
            task.add(command);
            drop(state);
            return task.run();
        }
        let task = self.new_task(&mut state, object);
        task.add(command);
        // It counts from here on, so that a shutdown waits for it.
        let running = Running { objects: Arc::clone(self), task, is_done: false };
        let running = self.tasks.track_future(running.run());
        drop(state);
        self.runtime.spawn(running);
    }

    fn new_task(&self, state: &mut State, object: Arc<str>) -> Arc<SharedTask> {
        let memory = state.memories.remove(&object).unwrap_or_default();
        let shared = Arc::clone(&self.shared);
        let task = SharedTask::new(Arc::clone(&object), shared, memory, self.runtime.clone());
        if let Some(key) = task.key() {
            state.names.insert(key, Arc::clone(&object));
        }
        state.tasks.insert(object, Arc::clone(&task));
        if !std::mem::replace(&mut state.is_watched, true) {
            self.needs_watch.notify_one();
        }
        task
    }

    /// Forgets a task that has nothing left to do; false if something has come meanwhile.
    fn end(&self, task: &SharedTask) -> bool {
        let mut state = self.state();
        let now = self.shared.now();
        let Some(memory) = task.end(now) else {
            return false;
        };
        self.forget(&mut state, now, task, memory);
        drop(state);
        if let Some(key) = task.key() {
            // A guest that has asked must not wait until it asks again.
            for message in task.close_messages() {
                self.answer_for_none(key, message);
            }
        }
        true
    }

    /// A bug or the runtime has ended a task. Its guards were lost before, and its rows may remain,
    /// and one of its requests may be in flight.
    ///
    /// They belong to an earlier round and have smaller stamps than everything that the next task
    /// writes and deletes: to other contenders this one is gone as soon as the new round is
    /// announced or the rows' TTL has passed. A leftover ticket counts in no other round. But a
    /// guest in a turn of that place learns of it only when it extends the turn, so until the rows
    /// are over the object is not used.
    fn failed(&self, task: &SharedTask) {
        if !self.shared.process.is_current() {
            return;
        }
        if task.has_failed() || std::thread::panicking() {
            let object = shown(task.name());
            error!(object, "the task of a lock ended by a bug: its guards are lost");
        }
        let now = self.shared.now();
        let memory = task.fail(now);
        self.forget(&mut self.state(), now, task, memory);
    }

    fn forget(&self, state: &mut State, now: Now, task: &SharedTask, memory: Memory) {
        state.tasks.remove(task.name());
        if let (Some(network), Some(key)) = (&self.shared.network, task.key()) {
            state.names.remove(&key);
            network.inbox().close(key);
        }
        if memory.is_of_use(now) {
            if state.memories.len() >= MEMORIES_MAX && now.elapsed >= state.looks_through_from {
                state.memories.retain(|_, memory| memory.is_of_use(now));
                if state.memories.len() >= MEMORIES_MAX {
                    // All at once, so that not every further object looks through all of them.
                    state.memories.retain(|_, memory| memory.is_needed(now));
                }
                // Nor if all are needed.
                state.looks_through_from = now.elapsed + LOOK_THROUGH_EVERY;
            }
            if state.memories.len() < MEMORIES_MAX || memory.is_needed(now) {
                state.memories.insert(Arc::clone(task.name()), memory);
            }
        }
    }

    /// A caller has stopped waiting.
    pub(crate) fn leave(&self, object: &str, caller: CallerId) {
        // A fork may have copied a mutex that was locked.
        if self.shared.process.is_current() {
            // Without a task it waits for nothing.
            let _ = self.send(object, Command::Leave(caller));
        }
    }

    /// Lets the task of an object report its line. Without one there is no place.
    pub(crate) fn report_line(&self, object: &str, reply_to: QueueReplyTo) {
        if let Some(Command::Queue(reply_to)) = self.send(object, Command::Queue(reply_to)) {
            reply_to.answer(self.shared.network.as_deref(), None);
        }
    }

    /// The same for an object by its key in messages.
    pub(crate) fn report_line_by_key(&self, object: ObjectKey, reply_to: QueueReplyTo) {
        let name = self.state().names.get(&object).cloned();
        self.report_line(name.as_deref().unwrap_or_default(), reply_to);
    }

    /// Lets all tasks report what is held: each drops its sender when it has.
    pub(crate) fn report_held(&self, to: &mpsc::UnboundedSender<LockHandle>) {
        self.state().send_all(|| Command::Held(to.clone()));
    }

    /// Sends a command to the task of an object; returns it if there is none.
    fn send(&self, object: &str, command: Command) -> Option<Command> {
        match self.state().tasks.get(object) {
            Some(task) => {
                task.add(command);
                task.wake();
                None
            }
            None => Some(command),
        }
    }

    /// Waits until objects are in use whose timers may be late.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn need_watch(&self) {
        self.needs_watch.notified().await;
    }

    /// Wakes all objects if their timers are late. Returns whether any are in use.
    pub(crate) fn look_at_clock(&self, watch: &mut ClockWatch) -> bool {
        let mut state = self.state();
        if watch.are_timers_late(&*self.shared.clock) {
            state.send_all(|| Command::TimersAreLate);
        }
        state.is_watched = !state.tasks.is_empty();
        state.is_watched
    }

    /// There is a new connection to a keeper.
    pub(crate) fn reconnected(&self, keeper: KeeperId) {
        self.state().send_all(|| Command::Reconnected(keeper));
    }

    /// What keeps the client from granting locks has changed.
    pub(crate) fn health_changed(&self, problem: Option<HealthProblem>) {
        let mut state = self.state();
        state.send_all(|| Command::Health(problem.clone()));
        state.problem = problem;
    }

    /// Notes when callers concern the client's task.
    pub(crate) fn admit_by(&self, admission: Admission) {
        self.state().admission = admission;
    }

    /// Refuses callers from now on, and ends what is in use.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.send_all(|| Command::Close);
    }

    /// Waits until no task is left, and none can come.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Answers for an object that no caller of this client uses, unless one came meanwhile.
    pub(crate) fn answer_for_none(&self, key: ObjectKey, message: Message) {
        let Some(network) = &self.shared.network else {
            return;
        };
        let Some(message) = network.inbox().pass_on(key, message) else {
            return;
        };
        let mut object = Object::new(self.shared.id, settings(&self.shared), Memory::default());
        object.handle(self.shared.now(), input_of_message(&message));
        while let Some(output) = object.poll() {
            if let Output::Answer { guest, response, .. } = output {
                network.answer(guest, key, response, None);
            } else if let Output::Ask { keeper, request } = output {
                network.ask(keeper, key, request);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Why a caller is refused, if it is.
    fn refusal(&self, object: &str) -> Option<LockError> {
        if self.is_closed {
            return Some(LockError::Closed);
        }
        self.problem.as_ref().map(|problem| problem.refusal(object))
    }

    fn send_all(&self, command: impl Fn() -> Command) {
        for task in self.tasks.values() {
            task.add(command());
            task.wake();
        }
    }
}

/// A task that runs. If it is dropped before it is done, it has failed.
struct Running {
    objects: Arc<Objects>,
    task: Arc<SharedTask>,
    is_done: bool,
}

impl Running {
    /// Runs until there is nothing left to do, and nothing was sent to it meanwhile.
    async fn run(mut self) {
        self.is_done = loop {
            match self.task.work().await {
                Ended::Idle if self.objects.end(&self.task) => break true,
                Ended::Idle => {}
                Ended::Forked => break true,
                Ended::Failed => break false,
            }
        };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_done {
            self.objects.failed(&self.task);
        }
    }
}
