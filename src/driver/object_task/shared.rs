//! Who works on an object: its own task, and each thread that brings something for it.
//!
//! A message, an unlock and the next request would each wake up the task otherwise, which costs
//! more than what they ask. The task waits for the database and for time.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use super::{Command, Next, ObjectTask};
use crate::combiner::Combiner;
use crate::context::{ClientContext, Process};
use crate::core::object::Memory;
use crate::core::object::io::Now;
use crate::peers::{Message, ObjectKey};

/// An object in use.
pub(crate) struct SharedTask {
    name: Arc<str>,
    /// Its name in messages, if the client is connected to others.
    key: Option<ObjectKey>,
    process: Process,
    runtime: Handle,
    commands: mpsc::UnboundedSender<Command>,
    /// Something has come, and the thread that works on the object looks again.
    has_come: AtomicBool,
    /// It has ended, or failed.
    is_over: AtomicBool,
    task: Mutex<ObjectTask>,
}

/// How the work on an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There is nothing left to do.
    Idle,
    /// The process is a fork, which has no part in it.
    Forked,
    /// A bug has ended it.
    Failed,
}

impl SharedTask {
    /// An object in use by a client of this runtime.
    pub(crate) fn new(
        name: Arc<str>,
        shared: Arc<ClientContext>,
        memory: Memory,
        runtime: Handle,
    ) -> Arc<Self> {
        let (commands, incoming) = mpsc::unbounded_channel();
        let process = shared.process;
        Arc::new_cyclic(|this: &Weak<SharedTask>| {
            let combiner: Weak<dyn Combiner> = Weak::clone(this) as _;
            let by = (combiner, runtime.clone());
            let task = ObjectTask::new(Arc::clone(&name), shared, memory, incoming, by);
            SharedTask {
                name,
                key: task.key,
                process,
                runtime,
                commands,
                has_come: AtomicBool::new(false),
                is_over: AtomicBool::new(false),
                task: Mutex::new(task),
            }
        })
    }

    /// The name of the object.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its name in messages, if the client is connected to others.
    pub(crate) fn key(&self) -> Option<ObjectKey> {
        self.key
    }

    /// Adds a command, which waits until the object is [run](Combiner::run) or
    /// [woken up](Combiner::wake).
    pub(crate) fn add(&self, command: Command) {
        // The receiver lives in here.
        let _ = self.commands.send(command);
    }

    /// Works on the object until there is nothing left to do: its own task.
    ///
    /// A fork copies the task into another process. There it ends, because rows and connections
    /// belong to the parent.
    pub(crate) async fn work(&self) -> Ended {
        loop {
            let next = poll_fn(|context| {
                if !self.process.is_current() {
                    return Poll::Ready(Err(Ended::Forked));
                }
                loop {
                    if self.is_over.load(Ordering::SeqCst) {
                        return Poll::Ready(Err(Ended::Failed));
                    }
                    self.has_come.store(false, Ordering::SeqCst);
                    let polled = self.task().poll(context);
                    if polled.is_ready() || !self.has_come.load(Ordering::SeqCst) {
                        return polled.map(Ok);
                    }
                }
            });
            match next.await {
                Ok(Next::End) => return Ended::Idle,
                Ok(Next::Yield) => {
                    yield_now().await;
                    let mut task = self.task();
                    task.has_waited = !task.batch.is_empty();
                }
                Err(ended) => return ended,
            }
        }
    }

    /// Ends the object if there is nothing left to do, and nothing has come; what of it counts
    /// later. Nothing can be added meanwhile.
    pub(crate) fn end(&self, now: Now) -> Option<Memory> {
        let mut task = self.task();
        let memory = task.is_done().then(|| task.object.memory(now))?;
        self.is_over.store(true, Ordering::SeqCst);
        Some(memory)
    }

    /// Whether a bug has ended it.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The messages that have come and were not handled. Takes no further ones.
    pub(crate) fn close_messages(&self) -> Vec<Message> {
        self.task().close_messages()
    }

    /// The runtime or a bug has ended the work, and with it the renewals: guards learn of it at
    /// once. What of the object counts later.
    pub(crate) fn fail(&self, now: Now) -> Memory {
        let task = self.task();
        self.is_over.store(true, Ordering::SeqCst);
        task.lose_guards();
        task.object.memory_of_failed(now)
    }

    fn task(&self) -> MutexGuard<'_, ObjectTask> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Combiner for SharedTask {
    fn run(&self) {
        // A fork has no part in it.
        if !self.process.is_current() {
            return;
        }
        self.has_come.store(true, Ordering::SeqCst);
        while self.has_come.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            // Another thread works on it, which looks again.
            let Ok(mut task) = self.task.try_lock() else {
                return;
            };
            self.has_come.store(false, Ordering::SeqCst);
            let _context = self.runtime.enter();
            // A bug ends the object, not the caller or the connection that brought something.
            let handled = catch_unwind(AssertUnwindSafe(|| task.handle_at_once()));
            let waker = handled.unwrap_or_else(|_bug| {
                self.is_over.store(true, Ordering::SeqCst);
                task.waker.clone()
            });
            drop(task);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn wake(&self) {
        if !self.process.is_current() {
            return;
        }
        self.has_come.store(true, Ordering::SeqCst);
        match self.task.try_lock() {
            Ok(task) => {
                let waker = task.waker.clone();
                drop(task);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            // Another thread works on it, which looks again.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {}
        }
    }
}

impl fmt::Debug for SharedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTask").field("name", &self.name).finish_non_exhaustive()
    }
}
