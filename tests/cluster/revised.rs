//! What a holder changes while it holds.

use std::time::Duration;

use bakery_lock::LockMode;

use super::scene::Scene;
use support::{pace, rows};

const LONG: Duration = Duration::from_secs(120);

// Goal: what a holder changes stands in its rows: a note, a longer TTL, that it shares the lock.
// Method: another client looks, and a reader that waits is let in by the downgrade alone.
#[tokio::test]
async fn changes_of_a_holder_stand_in_its_rows() {
    let scene = Scene::new().await;
    let (holder, other) = (scene.client().await, scene.client().await);
    let name = support::unique("revised");
    let request = holder.request(&name).ttl(Duration::from_secs(30)).note("0 of 3");
    let guard = request.acquire().await.expect("the lock is free");
    let token = guard.fencing_token().await.expect("it is held alone");
    let held = async || {
        let contenders = other.contenders(&name).await.expect("the database answers");
        let is_holder = |it: &&bakery_lock::ContenderInfo| it.is_me(&holder);
        contenders.iter().find(is_holder).expect("it is held").clone()
    };
    assert_eq!(held().await.owner.note(), Some("0 of 3"));
    guard.set_note("1 of 3: \u{1f4be}").await.expect("it is held");
    assert_eq!(held().await.owner.note(), Some("1 of 3: \u{1f4be}"));
    let lasts = guard.raise_ttl(LONG).await.expect("it is held");
    assert!(lasts > Duration::from_secs(60), "{lasts:?}");
    assert!(held().await.remaining > Some(Duration::from_secs(60)));

    let reader = tokio::spawn(other.request(&name).shared().acquire());
    rows::wait_for_tickets(&other, &name, 1).await;
    assert!(!reader.is_finished(), "a writer holds it");
    guard.downgrade().await.expect("it is held alone");
    let reader = pace::within_limit("a reader that joins the downgraded writer", reader).await;
    let reader = reader.expect("the task does not panic").expect("it is shared");
    assert!(guard.state().is_held() && reader.state().is_held());
    assert_eq!(held().await.mode, Some(LockMode::Shared));
    assert_eq!(reader.fencing_token().await.expect("it is held"), token);
    assert!(other.try_lock(&name).await.expect("the database answers").is_none());
    guard.unlock().await.expect("it was held");
    reader.unlock().await.expect("it was held");
    scene.wait_for_rows(&name, 0).await;
}
