//! `bench`.

use std::collections::BTreeSet;

use rustix::process::Signal;

use super::{in_use, json, until_in_use};
use crate::command::{Tool, finish, paced, send};

async fn tool(tag: &str) -> Tool {
    let tool = Tool::initialized(tag).await;
    tool.done(&["add", "web1"]).await;
    tool
}

// Goal: each figure is measured, and they fit together; no row is left.
#[tokio::test]
async fn costs_are_measured() {
    let tool = tool("bench").await;
    let time = format!("{:?}", paced(2));
    let arguments =
        ["bench", "--host", "web1", "--clients", "1,3", "--for", &time, "--warm-up", "500ms"];
    let told = json(&tool.lockctl(&[&arguments[..], &["--json"]].concat()).await);
    let alone = |what: &str| told["alone"][what]["median"].as_f64().expect("it was measured");
    let (lock, unlock) = (alone("lock_ms"), alone("unlock_ms"));
    assert!(alone("read_ms") > 0.0 && lock > 0.0 && unlock > 0.0, "{told}");
    assert!(alone("lock_and_unlock_ms") > lock.max(unlock), "{told}");
    let contended = told["contended"].as_array().expect("they are listed");
    let clients: Vec<_> = contended.iter().map(|figures| figures["clients"].as_u64()).collect();
    assert_eq!(clients, [Some(1), Some(3)]);
    assert_eq!(contended[0]["handoffs_per_second"], 0.0, "{told}");
    let share = &contended[0]["worst_share"];
    assert!(share.is_null() || *share == 1.0, "{told}");
    // An uncontended lock is two operations, its unlock one; a block may end within one.
    assert!(contended[0]["operations_per_grant"].as_f64() >= Some(3.0), "{told}");
    assert!(contended[1]["grants"].as_u64() > Some(0), "{told}");
    assert_eq!((&told["errors"], &told["interrupted"]), (&serde_json::json!({}), &false.into()));
    assert_eq!(in_use(&tool).await, BTreeSet::new());
}

// Goal: a signal ends it with the figures until then, and no row is left.
#[tokio::test]
async fn signal_ends_it_with_figures() {
    let tool = tool("bench_signal").await;
    let arguments =
        ["bench", "--host", "web1", "--for", "60m", "--warm-up", "0s", "--clients", "3"];
    let mut child = tool.lockctl_command(&arguments).spawn().expect("the tool starts");
    until_in_use(&tool, "lockctl-bench::", &mut child).await;
    send(&child, Signal::INT);
    let answer = finish(child).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(130), ""), "{answer:?}");
    assert!(answer.stdout.contains("ONE CLIENT ALONE"), "{answer:?}");
    assert!(
        answer.stdout.ends_with("interrupted: these are the figures until then\n"),
        "{answer:?}"
    );
    assert_eq!(in_use(&tool).await, BTreeSet::new());
}
