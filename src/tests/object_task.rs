//! What waiting callers cost the task of an object.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Span;

use super::shared;
use crate::core::bakery::{Acquire, LeaseTerms, Mode, Patience};
use crate::core::object::Memory;
use crate::core::object::io;
use crate::driver::caller::{Caller, Reply, ReplyTo};
use crate::driver::object_task::{Command, ObjectTask};
use crate::guard::grant::Trace;
use crate::testing::FaultyStore;

const CALLERS: u64 = 1_000;

/// As many as wait for anything but a caller: commands, the operation, a timer.
const OTHERS: usize = 10;

fn caller(number: u64, asked: Duration) -> (Caller, oneshot::Receiver<Reply>) {
    let (reply, answer) = oneshot::channel();
    let acquire = Acquire {
        mode: Mode::Exclusive,
        terms: LeaseTerms::new(Duration::from_secs(60), Duration::from_secs(1)),
        patience: Patience::Wait,
        renew: true,
        gives_up: None,
        owner: "snap".into(),
    };
    let deadline = asked + Duration::from_secs(3_600);
    let trace = Trace { span: Span::none(), label: None };
    let (hold_terms, yields) = (None, None);
    let (min_hold, at_least) = (Duration::ZERO, Duration::ZERO);
    let wants =
        io::Caller { number, acquire, hold_terms, yields, min_hold, at_least, asked, deadline };
    (Caller { wants, reply_to: ReplyTo { reply, trace } }, answer)
}

/// Polls the task until it waits, as a waker that counts for how many things it waits.
async fn run_until_it_waits(
    mut task: Pin<&mut impl Future<Output = ()>>,
    waker: &Arc<impl Wake + Send + Sync + 'static>,
) {
    // Else it waits also when it has done as much as a task may do at once.
    let waits = poll_fn(|_| {
        let waker = Waker::from(Arc::clone(waker));
        Poll::Ready(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending())
    });
    assert!(tokio::task::unconstrained(waits).await, "there is work to do");
}

// Goal: what the task waits for does not grow with the callers that wait, so that waking up costs
// the same for one and for thousands.
// Method: its waker is cloned for each thing that it waits for; count the clones.
#[tokio::test(start_paused = true)]
async fn task_does_not_wait_for_each_caller() {
    struct Count;
    impl Wake for Count {
        fn wake(self: Arc<Self>) {}
    }
    let store = FaultyStore::new();
    store.delay_calls(Duration::from_millis(1));
    let shared = shared(&store);
    let name = Arc::from("users::snap");
    let (mut task, commands) = ObjectTask::new(name, Arc::clone(&shared), Memory::default());
    let waker = Arc::new(Count);

    let mut answers = Vec::new();
    for number in 0..CALLERS {
        let (caller, answer) = caller(number, shared.clock.elapsed());
        answers.push(answer);
        commands.send(Command::Acquire(Box::new(caller))).expect("the task lives");
    }
    while let Some(command) = task.unhandled() {
        task.command(command);
    }
    let mut task = pin!(task.run());
    run_until_it_waits(task.as_mut(), &waker).await;
    let waits_for = Arc::strong_count(&waker);
    assert!(waits_for <= OTHERS, "it waits for {waits_for} things");
}

#[tokio::test]
async fn task_with_nothing_left_to_do_ends() {
    let name = Arc::from("users::snap");
    let shared = shared(&FaultyStore::new());
    let (mut task, _commands) = ObjectTask::new(name, shared, Memory::default());
    // As when the client is shut down just as the object is released.
    task.command(Command::Close);
    let mut ending = pin!(task.run());
    let ends = poll_fn(|context| Poll::Ready(ending.as_mut().poll(context).is_ready()));
    assert!(ends.await, "it waits for nothing");
}
