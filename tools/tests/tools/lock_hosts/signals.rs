//! `lock-hosts` while another client holds the registry's lock.

use bakery_lock::{LockClient, Uuid};
use rustix::process::Signal;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use support::pace;
use support::scene::built;

use crate::command::{Tool, finish, paced, send};
use crate::lockctl::run::{observer, until_there_are};

/// The object that is locked while the registry is changed.
const REGISTRY_LOCK: &str = "bakery-lock::hosts";

/// The client that holds it.
const HOLDER: Uuid = Uuid::from_u128(1);

/// Registers the host `holder`, and writes the row of a client of it that holds the registry's lock
/// and does not release it. No other client than the registry's own can take that lock.
async fn locked(tool: &Tool) {
    let client = LockClient::builder(support::session().await, tool.keyspace.clone());
    let client = client.host("holder").register_host(true).acquire_timeout(pace::limit());
    built(client).await;
    let insert = format!(
        "INSERT INTO \"{}\".lock_table (object_name, row_name, host, client, slot, state, about) \
         VALUES ('{REGISTRY_LOCK}', 'entering::', 0, {HOLDER}, 0, (1, 0, null, null, null), \
         ('holder pid {}', null, null))",
        tool.keyspace,
        std::process::id()
    );
    execute(&insert).await;
}

async fn released(tool: &Tool) {
    let delete = format!(
        "DELETE FROM \"{}\".lock_table WHERE object_name = '{REGISTRY_LOCK}' AND \
         row_name = 'entering::' AND host = 0 AND client = {HOLDER} AND slot = 0",
        tool.keyspace
    );
    execute(&delete).await;
}

async fn execute(statement: &str) {
    let mut statement = Statement::new(statement);
    statement.set_consistency(Consistency::Quorum);
    let session = support::session().await;
    session.query_unpaged(statement, ()).await.expect("the cluster answers");
}

// Goal: a command that waits for the registry for too long changes nothing, and names its holder.
// Method: the lock is held until it has ended.
#[tokio::test]
async fn command_that_times_out_names_the_holder_of_the_registry() {
    let tool = Tool::initialized("held").await;
    locked(&tool).await;
    let timeout = format!("{:?}", paced(3));
    let answer = tool.run(&["--timeout", &timeout, "add", "web1"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("nothing was changed"), "{}", answer.stderr);
    let holder = format!("holder pid {}", std::process::id());
    assert!(answer.stderr.contains(&holder), "{}", answer.stderr);
    released(&tool).await;
    assert_eq!(tool.done(&["add", "web1"]).await, "host web1 has number 2\n");
}

#[tokio::test]
async fn interrupted_addition_leaves_the_queue() {
    let tool = Tool::initialized("interrupted").await;
    locked(&tool).await;
    let observer = observer(&tool).await;
    let queued = async |count| until_there_are(count, &observer, REGISTRY_LOCK).await;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let adding = tool.start(&["add", "web1"]);
        queued(2).await;
        send(&adding, signal);
        let answer = finish(adding).await;
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert_eq!(answer.stderr, "lock-hosts: interrupted\n");
        queued(1).await;
    }
    released(&tool).await;
    queued(0).await;
    assert_eq!(tool.done(&["list"]).await, "     ID  Host\n      1  holder\n");
}
