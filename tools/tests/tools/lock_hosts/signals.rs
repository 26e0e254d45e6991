//! `lock-hosts` while another client holds the registry's lock.

use std::process::Child;
use std::time::{Duration, Instant};

use bakery_lock::{LockClient, LockGuard};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Tool, finish};

/// The object that is locked while the registry is changed.
const REGISTRY_LOCK: &str = "bakery-lock::hosts";

async fn locked(tool: &Tool) -> LockGuard {
    let client = LockClient::builder(support::session().await, tool.keyspace.clone());
    let client = client.host("holder").register_host(true).build().await;
    client.expect("the cluster is ready").lock(REGISTRY_LOCK).await.expect("the lock is free")
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the child runs");
}

#[tokio::test]
async fn a_command_that_times_out_names_the_holder_of_the_registry() {
    let tool = Tool::initialized("held").await;
    let guard = locked(&tool).await;
    let began = Instant::now();
    let answer = tool.run(&["--timeout", "2s", "add", "web1"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("nothing was changed"), "{}", answer.stderr);
    let holder = format!("holder pid {}", std::process::id());
    assert!(answer.stderr.contains(&holder), "{}", answer.stderr);
    assert!(began.elapsed() < Duration::from_secs(6), "it took {:?}", began.elapsed());
    guard.unlock().await.expect("the lock is given back");
    assert_eq!(tool.done(&["add", "web1"]).await, "host web1 has number 2\n");
}

#[tokio::test]
async fn an_interrupted_addition_leaves_the_queue() {
    let tool = Tool::initialized("interrupted").await;
    let guard = locked(&tool).await;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let adding = tool.start(&["add", "web1"]);
        wait_for_rows(&tool, 2).await;
        send(&adding, signal);
        let began = Instant::now();
        let answer = finish(adding).await;
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert_eq!(answer.stderr, "lock-hosts: interrupted\n");
        assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
        wait_for_rows(&tool, 1).await;
    }
    guard.unlock().await.expect("the lock is given back");
    wait_for_rows(&tool, 0).await;
    assert_eq!(tool.done(&["list"]).await, "     ID  Host\n      1  holder\n");
}

/// Waits until the queue for the registry is this long.
async fn wait_for_rows(tool: &Tool, wanted: usize) {
    let select = format!(
        "SELECT row_name FROM \"{}\".lock_table WHERE object_name = '{REGISTRY_LOCK}' \
         AND row_name = 'entering::'",
        tool.keyspace
    );
    let session = support::session().await;
    let began = Instant::now();
    loop {
        let rows = session.query_unpaged(select.as_str(), ()).await.expect("the cluster answers");
        let rows = rows.into_rows_result().expect("a select has rows").rows_num();
        if rows == wanted {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{rows} rows, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
