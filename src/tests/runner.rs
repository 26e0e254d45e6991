//! What waiting callers cost a runner.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::Span;

use super::shared;
use crate::core::bakery::{Acquire, LeaseTerms, Mode, Patience};
use crate::engine::runner::{Command, Runner, SLOT_OF_TURNS, Seat};
use crate::engine::waiters::{Caller, Reply};
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
        owner: "snap".to_owned(),
    };
    let (deadline, span) = (asked + Duration::from_secs(3_600), Span::none());
    let (hold_terms, min_hold) = (None, Duration::ZERO);
    (Caller { number, acquire, hold_terms, min_hold, asked, deadline, reply, span }, answer)
}

/// Polls the runner until it waits, as a waker that counts for how many things it waits.
async fn run_until_it_waits(
    mut runner: Pin<&mut impl Future<Output = ()>>,
    waker: &Arc<impl Wake + Send + Sync + 'static>,
) {
    // Else it waits also when it has done as much as a task may do at once.
    let waits = poll_fn(|_| {
        let waker = Waker::from(Arc::clone(waker));
        Poll::Ready(runner.as_mut().poll(&mut Context::from_waker(&waker)).is_pending())
    });
    assert!(tokio::task::unconstrained(waits).await, "there is work to do");
}

// Goal: what a runner waits for does not grow with the callers that wait, so that waking up costs
// the same for one and for thousands.
// Method: its waker is cloned for each thing that it waits for; count the clones.
#[tokio::test(start_paused = true)]
async fn a_runner_does_not_wait_for_each_caller() {
    struct Count;
    impl Wake for Count {
        fn wake(self: Arc<Self>) {}
    }
    let store = FaultyStore::new();
    store.delay_calls(Duration::from_millis(1));
    let (reports, _reports) = mpsc::unbounded_channel();
    let shared = shared(&store);
    let seat = Seat { object: Arc::from("users::snap"), slot: SLOT_OF_TURNS };
    let (runner, commands) = Runner::new(seat, Arc::clone(&shared), reports);
    let mut runner = pin!(async { drop(runner.run().await) });
    let waker = Arc::new(Count);

    let mut answers = Vec::new();
    for number in 0..CALLERS {
        let (caller, answer) = caller(number, shared.clock.elapsed());
        answers.push(answer);
        commands.send(Command::Acquire(caller)).expect("the runner lives");
    }
    run_until_it_waits(runner.as_mut(), &waker).await;
    let waits_for = Arc::strong_count(&waker);
    assert!(waits_for <= OTHERS, "it waits for {waits_for} things");
}
