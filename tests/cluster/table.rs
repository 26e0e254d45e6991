//! A lock table that goes while locks are held.

use std::time::{Duration, Instant};

use bakery_lock::schema::{self, CreateOptions};
use bakery_lock::{GuardState, LockClient, LockError, LockGuard, LostReason};

use support::pace;
use support::scene::{Scene, built};

/// A third of it passes between two renewals: time to make a table on a busy machine.
const TTL: Duration = Duration::from_secs(120);

// Goal: a holder whose table was dropped knows by its next renewal, before its lease is over; its
// waiters and later callers are told.
// Method: drop the table below a holder, with a caller behind it.
#[tokio::test]
async fn dropped_table_is_noticed() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("gone").await;
    let (client, guard) = hold(&scene).await;
    let waiting = tokio::spawn(client.request("object").timeout(TTL * 2).acquire());
    scene.change_schema(&drop_table(&scene)).await;
    expect_lost(&guard, "dropped", &LostReason::TableGone).await;
    let waited = waiting.await.expect("the task does not panic");
    expect_table_gone(&waited.expect_err("there is no table"));
    expect_table_gone(&client.lock("other").await.expect_err("there is no table"));
    scene.drop_keyspace().await;
}

// Goal: a holder whose table was dropped and made again misses its rows at its next renewal, and
// does not write them again; its client finds out why. Others were let in meanwhile, and stay.
// Method: make the table again at once, and lock the same name in it by a new client.
#[tokio::test]
async fn table_that_is_made_again_is_noticed() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("replaced").await;
    let (client, guard) = {
        // Held across both changes: schema changes of other tests would delay the second one.
        let _turn = support::turn_to_change_the_schema().await;
        let held = hold(&scene).await;
        scene.execute(&drop_table(&scene)).await;
        let created = schema::create(&scene.session, &scene.keyspace, &CreateOptions::new()).await;
        assert_eq!(created.expect("the table is gone").tables, ["lock_table"]);
        held
    };
    let made_again = Instant::now();
    let (_, next) = hold(&scene).await;
    println!("the next client was let in {:?} after the table was made", made_again.elapsed());
    assert!(matches!(guard.state(), GuardState::Held { .. }), "the client has not looked yet");
    expect_lost(&guard, "made again", &LostReason::RowMissing).await;
    expect_table_gone(&client.lock("object").await.expect_err("it is another table"));
    scene.wait_for_rows("object", 1).await;
    next.check().await.expect("its row is the one that is left");
    next.unlock().await.expect("it was held to the end");
    scene.wait_until_deleted("object").await;
    scene.drop_keyspace().await;
}

async fn hold(scene: &Scene) -> (LockClient, LockGuard) {
    let client = built(scene.builder().ttl(TTL)).await;
    let guard = client.lock("object").await.expect("no contender is in this table");
    (client, guard)
}

/// The statement that drops the table.
fn drop_table(scene: &Scene) -> String {
    format!("DROP TABLE \"{}\".lock_table", scene.keyspace)
}

/// Called when the table has just gone.
async fn expect_lost(guard: &LockGuard, how: &str, why: &LostReason) {
    let began = Instant::now();
    let reason = pace::within_limit("a renewal that misses the table", guard.lost()).await;
    let noticed = began.elapsed();
    println!("with a ttl of {TTL:?}, that the table was {how} was noticed after {noticed:?}");
    assert_eq!(reason.as_ref(), Some(why));
}

fn expect_table_gone(error: &LockError) {
    assert!(matches!(error, LockError::TableGone { .. }), "{error:?}");
}
