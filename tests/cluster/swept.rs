//! Dead rows of very many clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bakery_lock::LockError;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use tokio::task::JoinSet;

use support::pace;
use support::scene::Scene;

/// A read that meets more than a thousand tombstones is warned of, and each of these leaves one.
const DEAD: i32 = 1_100;

/// This many reads are made to find out whether reads are warned of: not each goes through the node
/// that has read the rows.
const READS: usize = 30;

// Goal: rows of clients that left are swept while one client holds the lock and another waits. The
// rows of those two stay.
// Method: leave dead rows, and try the lock until reads no longer meet any.
#[tokio::test]
async fn dead_rows_are_swept_and_no_others() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("swept");
    let (holder, waiter, other) =
        (scene.client().await, scene.client().await, scene.client().await);
    let guard = holder.lock(&name).await.expect("the lock is free");
    let waiting = tokio::spawn(waiter.request(&name).timeout(pace::limit()).acquire());
    pace::until("the waiter is in line", async || {
        waiter.contenders(&name).await.expect("the cluster answers").len() == 2
    })
    .await;
    leave_dead_rows(&scene, &name).await;
    let warns = warnings(&scene, &name).await > 0;
    assert_eq!(warns, !is_scylla(&scene).await, "only Cassandra warns clients of dead rows");
    let began = Instant::now();
    pace::until("reads meet no dead rows any more", async || {
        let tried = other.try_lock(&name).await.expect("a try is answered");
        assert!(tried.is_none(), "the holder's rows are hidden");
        tokio::time::sleep(Duration::from_millis(500)).await;
        warnings(&scene, &name).await == 0
    })
    .await;
    println!("swept during a hold, after {:?}", began.elapsed());
    let contenders = other.contenders(&name).await.expect("the cluster answers");
    assert!(contenders.len() >= 2, "rows that count are hidden: {contenders:?}");
    guard.check().await.expect("the holder's rows are there");
    guard.unlock().await.expect("the lock was held");
    let next = waiting.await.expect("the task does not panic").expect("its rows are there");
    next.unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
}

// Goal: a mark that was written by hand keeps all clients out until it is repaired, and none after.
// Method: the largest mark, beside a holder.
#[tokio::test]
async fn mark_written_by_hand_is_repaired() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("marked");
    let (holder, client) = (scene.client().await, scene.client().await);
    assert!(!client.repair_mark(&name).await.expect("the cluster answers"), "it has no mark");
    let guard = holder.lock(&name).await.expect("the lock is free");
    let table = format!("\"{}\".lock_table", scene.keyspace);
    let mark = i64::MAX;
    scene.execute(&format!("UPDATE {table} SET mark = {mark} WHERE object_name = '{name}'")).await;
    let error = client.lock(&name).await.expect_err("no round is above the mark");
    assert!(matches!(error, LockError::MarkOutOfReach { .. }), "{error:?}");
    assert!(client.repair_mark(&name).await.expect("the cluster answers"));
    assert!(!client.repair_mark(&name).await.expect("the cluster answers"), "it is repaired");
    assert!(client.try_lock(&name).await.expect("the cluster answers").is_none(), "it is held");
    guard.unlock().await.expect("the repair took nothing from the holder");
    client.lock(&name).await.expect("the lock is free").unlock().await.expect("it was held");
    scene.wait_until_deleted(&name).await;
}

/// What clients leave behind that have locked the name and left.
async fn leave_dead_rows(scene: &Scene, name: &str) {
    let table = format!("\"{}\".lock_table", scene.keyspace);
    let delete = format!(
        "DELETE FROM {table} WHERE object_name = ? AND row_name = 'entering::' AND host = ? AND \
         client = 00000000-0000-4000-8000-000000000000 AND slot = 0"
    );
    let mut delete = scene.session.prepare(delete).await.expect("the cluster answers");
    delete.set_consistency(Consistency::Quorum);
    let hosts: Vec<_> = (1_000..1_000 + DEAD).collect();
    for some in hosts.chunks(50) {
        let mut deleting = JoinSet::new();
        for &host in some {
            let (session, delete) = (Arc::clone(&scene.session), delete.clone());
            let name = name.to_owned();
            deleting.spawn(async move { session.execute_unpaged(&delete, (name, host)).await });
        }
        for deleted in deleting.join_all().await {
            deleted.expect("the cluster answers");
        }
    }
}

async fn is_scylla(scene: &Scene) -> bool {
    let tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system' AND \
                  table_name = 'scylla_local'";
    let tables = scene.session.query_unpaged(tables, ()).await.expect("the cluster answers");
    tables.into_rows_result().expect("a select has rows").rows_num() > 0
}

/// How many of some reads the nodes warn of.
async fn warnings(scene: &Scene, name: &str) -> usize {
    let table = format!("\"{}\".lock_table", scene.keyspace);
    let mut select = Statement::new(format!("SELECT * FROM {table} WHERE object_name = ?"));
    select.set_consistency(Consistency::Quorum);
    let mut warned = 0;
    for _ in 0..READS {
        let read = scene.session.query_unpaged(select.clone(), (name,)).await;
        warned += usize::from(read.expect("the cluster answers").warnings().next().is_some());
    }
    warned
}
