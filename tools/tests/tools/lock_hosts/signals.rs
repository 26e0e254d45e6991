//! `lock-hosts` while another client holds the registry's lock.

use bakery_lock::{LockClient, LockGuard};
use rustix::process::Signal;
use support::pace;

use crate::command::{Tool, finish, paced, send};
use crate::lockctl::run::{observer, until_there_are};

/// The object that is locked while the registry is changed.
const REGISTRY_LOCK: &str = "bakery-lock::hosts";

async fn locked(tool: &Tool) -> LockGuard {
    let client = LockClient::builder(support::session().await, tool.keyspace.clone());
    let client = client.host("holder").register_host(true).acquire_timeout(pace::limit());
    let client = client.build().await.expect("the cluster is ready");
    client.lock(REGISTRY_LOCK).await.expect("the lock is free")
}

// Goal: a command that waits for the registry for too long changes nothing, and names its holder.
// Method: the lock is held until it has ended.
#[tokio::test]
async fn a_command_that_times_out_names_the_holder_of_the_registry() {
    let tool = Tool::initialized("held").await;
    let guard = locked(&tool).await;
    let timeout = format!("{:?}", paced(3));
    let answer = tool.run(&["--timeout", &timeout, "add", "web1"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("nothing was changed"), "{}", answer.stderr);
    let holder = format!("holder pid {}", std::process::id());
    assert!(answer.stderr.contains(&holder), "{}", answer.stderr);
    guard.unlock().await.expect("the lock is given back");
    assert_eq!(tool.done(&["add", "web1"]).await, "host web1 has number 2\n");
}

#[tokio::test]
async fn an_interrupted_addition_leaves_the_queue() {
    let tool = Tool::initialized("interrupted").await;
    let guard = locked(&tool).await;
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
    guard.unlock().await.expect("the lock is given back");
    queued(0).await;
    assert_eq!(tool.done(&["list"]).await, "     ID  Host\n      1  holder\n");
}
