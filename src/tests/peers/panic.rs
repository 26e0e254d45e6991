//! A keeper whose task panics while a guest is inside.

use tokio::time::{Instant, sleep, timeout};

use super::network::TestNetwork;
use super::{OBJECT, caller, client, ms, s, store};
use crate::error::{LockError, LostReason};
use crate::testing::{Fault, Weather};

// Goal: a guest and a caller of the client that was its keeper are not inside together, although
// both are served by one client, whose old rows are not in the way of its new ones.
// Method: the keeper's task panics as it renews its place. A caller of the same client asks at
// once.
#[tokio::test(start_paused = true)]
async fn no_caller_enters_beside_guest_of_failed_task() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let (keeper, guest) = (client(&store, &network), client(&store, &network));
    let first = keeper.lock(OBJECT).await.expect("the lock is free");
    let asking = caller(&guest);
    sleep(ms(100)).await;
    first.unlock().await.expect("the lock was held");
    let turn = asking.await.expect("the task does not panic");
    let dismissed = tokio::spawn(keeper.request(OBJECT).timeout(s(3_600)).acquire());
    sleep(ms(1)).await;
    store.fail_next(1, Fault::Panic);
    let error = timeout(s(30), dismissed).await.expect("it renews").expect("it does not panic");
    let error = error.expect_err("the task behind its lock ended");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    let failed = Instant::now();
    let next = caller(&keeper);
    let mut lost = turn.lost();
    let inside = loop {
        tokio::select! {
            biased;
            reason = &mut lost => break (reason, failed.elapsed()),
            () = sleep(ms(50)) => assert!(!next.is_finished(), "two are inside"),
        }
    };
    println!("the guest left after {:?}", inside.1);
    assert_eq!(inside.0, Some(LostReason::KeeperLost));
    let next = next.await.expect("the task does not panic");
    println!("the next one entered after {:?}", failed.elapsed());
    assert!(failed.elapsed() < s(80), "{:?}", failed.elapsed());
    next.unlock().await.expect("the lock was held");
    // Once the old rows are over, the client keeps lines again.
    sleep(s(200)).await;
    let first = keeper.lock(OBJECT).await.expect("the lock is free");
    let asking = caller(&guest);
    sleep(ms(100)).await;
    first.unlock().await.expect("the lock was held");
    let turn = timeout(ms(5), asking).await.expect("it waits in the line");
    turn.expect("it does not panic").unlock().await.expect("the lock was held");
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}
