//! `revoke`.

use bakery_lock::{ExpiringReason, GuardState, LostReason};
use support::pace;

use super::{client, json, pid};
use crate::command::{Tool, paced};

const NAME: &str = "users::snap";
const WHY: [&str; 2] = ["--why", "it hangs"];

// Goal: the holder learns at a renewal that it is to finish, who asks and why; a free lock has none
// to ask.
// Method: revoke a free lock, and one that is held.
#[tokio::test]
async fn holder_is_asked_to_leave() {
    let tool = Tool::initialized("revoke").await;
    let revoke = [&["revoke", NAME][..], &WHY].concat();
    let free = tool.lockctl(&revoke).await;
    assert_eq!((free.code, free.stdout.as_str()), (Some(1), ""), "{free:?}");
    let expected = "lockctl: lock \"users::snap\": no client holds it; nothing was changed\n";
    assert_eq!(free.stderr, expected);

    let holder = client(&tool, "web1").await;
    let guard = holder.request(NAME).ttl(paced(12)).acquire().await.expect("it is free");
    let asked = tool.lockctl(&revoke).await;
    assert_eq!((asked.code, asked.stderr.as_str()), (Some(0), ""), "{asked:?}");
    let expected = format!("web1 pid {} is asked to give up {NAME}; its lease ends in ", pid());
    assert!(asked.stdout.starts_with(&expected), "{}", asked.stdout);
    let reason = pace::within_limit("the holder learns of it", guard.expiring()).await;
    let Some(ExpiringReason::Revoked { by, why, .. }) = reason else { panic!("{reason:?}") };
    assert!(by.starts_with(&bakery_lock::hosts::this_host()), "{by}");
    assert_eq!(why, "it hangs");
    guard.unlock().await.expect("it is held until then");
}

// Goal: where several hold, one must be named.
// Method: two readers.
#[tokio::test]
async fn one_of_several_is_named() {
    let tool = Tool::initialized("several").await;
    let clients = [client(&tool, "web1").await, client(&tool, "web2").await];
    let mut guards = Vec::new();
    for client in &clients {
        guards.push(client.request(NAME).shared().acquire().await.expect("readers share it"));
    }
    let revoke = [&["revoke", NAME][..], &WHY].concat();
    let unclear = tool.lockctl(&revoke).await;
    assert_eq!(unclear.code, Some(1), "{unclear:?}");
    assert!(unclear.stderr.contains("choose one with --client: "), "{}", unclear.stderr);
    let shown = json(&tool.lockctl(&["show", NAME, "--json"]).await);
    let all = shown["contenders"].as_array().expect("it is an array");
    let second = all.iter().find(|one| one["host"] == "web2").expect("it holds");
    let id = second["client"].as_str().expect("it is text");
    let json =
        json(&tool.lockctl(&[&revoke[..], &["--client", &id[..8], "--json"]].concat()).await);
    assert_eq!((&json["name"], &json["forced"]), (&NAME.into(), &false.into()));
    assert_eq!(json["revoked"]["host"], "web2");
    for guard in &guards {
        guard.check().await.expect("it is held");
    }
    assert!(matches!(guards[1].state(), GuardState::Expiring { .. }), "it is revoked");
    assert!(matches!(guards[0].state(), GuardState::Held { .. }), "the other is not");
    let unknown = tool.lockctl(&[&revoke[..], &["--client", "no"]].concat()).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("no client no holds it or waits for it"), "{unknown:?}");
}

// Goal: rows are deleted by force only if the operator says yes.
// Method: without a terminal, without and with --yes.
#[tokio::test]
async fn rows_are_deleted_by_force_only_on_demand() {
    let tool = Tool::initialized("force").await;
    let holder = client(&tool, "web1").await;
    let guard = holder.lock(NAME).await.expect("it is free");
    let force = [&["revoke", NAME, "--force"][..], &WHY].concat();
    let asked = tool.lockctl(&force).await;
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(2), ""), "{asked:?}");
    assert!(asked.stderr.contains("add --yes"), "{}", asked.stderr);
    guard.check().await.expect("nothing was changed");

    let forced = tool.lockctl(&[&force[..], &["--yes"]].concat()).await;
    let expected = format!("web1 pid {} does not hold {NAME} any more\n", pid());
    assert_eq!((forced.code, forced.stdout.as_str()), (Some(0), expected.as_str()), "{forced:?}");
    let next = client(&tool, "web2").await;
    let next = next.try_lock(NAME).await.expect("the cluster answers").expect("it is free");
    assert!(guard.check().await.is_err(), "it was taken");
    assert!(matches!(guard.state(), GuardState::Lost(LostReason::Revoked { .. })));
    next.unlock().await.expect("it is held");
}
