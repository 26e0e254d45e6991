//! A lock table that goes with the data of all servers.

use std::time::Duration;

use bakery_lock::masters;
use bakery_lock::{LockError, LostReason};

use super::scene::{Scene, built, options};
use support::pace;

// Goal: a holder whose rows went with the table is lost at the end of its lease, and its client
// finds out within a minute or so that the table was made again.
// Method: empty all servers below a holder, make the table again, and ask for another lock.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn client_of_a_table_from_before_is_refused() {
    let scene = Scene::new().await;
    let patience = Duration::from_secs(5);
    let client = built(scene.builder().ttl(patience).acquire_timeout(patience)).await;
    let guard = client.lock("name").await.expect("it is free");
    for index in 0..scene.servers.count() {
        scene.servers.flush(index);
    }
    let lost = pace::within_limit("the end of a lease", guard.lost()).await;
    assert_eq!(lost, Some(LostReason::Expired));
    masters::init(&scene.masters, &options().fresh(true)).await.expect("all answer");
    let refused = async || match client.lock("other").await {
        Ok(_) => panic!("it was granted in a table that is gone"),
        Err(LockError::TableGone { .. }) => true,
        Err(error) => {
            assert!(error.is_retryable(), "{error:?}");
            false
        }
    };
    pace::until("a look at the table", refused).await;
    let other = scene.client().await;
    other.lock("name").await.expect("it is free").unlock().await.expect("it was held");
}
