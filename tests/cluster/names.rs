//! Names of objects: any text that is short enough is one, and no two are the same lock.

use bakery_lock::LockError;

use super::scene::Scene;

/// The longest name, in bytes.
const LENGTH_MAX: usize = 65_535;

/// Characters that mean something to a database, to a pattern or to a terminal.
const ODD: [&str; 9] =
    [" ", ":", "*", "[a-z]?", "{a}", "'\"\\", "\r\n$1\r\nL\r\n", "\0\u{1b}[2J", "\u{1f512}"];

// Goal: names that can't be used are refused with a reason, before anything is sent.
// Method: an empty name, and one that is too long; then the longest one that can.
#[tokio::test]
async fn unusable_names_are_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let client = scene.client().await;
    let before = client.statistics();
    for (name, expected) in [
        ("", "must not be empty"),
        (&"x".repeat(LENGTH_MAX + 1), "65535 bytes at most, not 65536; hash longer ones"),
    ] {
        let error = client.lock(name).await.expect_err("the name can't be used");
        assert!(matches!(error, LockError::Option(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(client.statistics(), before);
    let unique = support::unique("long");
    let longest = format!("{unique}{}", "x".repeat(LENGTH_MAX - unique.len()));
    let guard = client.lock(&longest).await.expect("it is short enough");
    guard.unlock().await.expect("the lock was held");
}

// Goal: whatever characters a name has, it is a lock of its own.
// Method: one client holds a name with each of them before and after it, and without any. Another
// one gets each of these once it is released, and none before.
#[tokio::test]
async fn odd_names_are_locks_of_their_own() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let (one, other) = (scene.client().await, scene.client().await);
    let unique = support::unique("odd");
    let odd = ODD.iter().flat_map(|odd| [format!("{unique}{odd}"), format!("{odd}{unique}")]);
    let names: Vec<_> = odd.chain([unique.clone()]).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(one.lock(name).await.unwrap_or_else(|error| panic!("{name:?}: {error}")));
    }
    for guard in held {
        let name = guard.name().to_owned();
        let shown = other.contenders(&name).await.expect("the rows can be read");
        assert!(shown.len() == 1 && shown[0].is_me(&one), "{name:?}: {shown:?}");
        assert!(other.try_lock(&name).await.expect("a try is answered").is_none(), "{name:?}");
        guard.unlock().await.expect("the lock was held");
        let next = other.lock(&name).await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        next.unlock().await.expect("the lock was held");
        scene.wait_until_deleted(&name).await;
    }
}
