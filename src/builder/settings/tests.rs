//! What is read from the environment and from files.

use std::collections::BTreeMap;

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<LockSettings, SettingsError> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    LockSettings::from_variables(|name| {
        variables.get(name).map(|&value| value.to_owned()).ok_or(VarError::NotPresent)
    })
}

#[test]
fn all_variables_are_read() {
    let none = read(&[("BAKERY_LOCK_TTL", ""), ("BAKERY_LOCK_PASSWORD", "x")]).expect("none");
    assert_eq!((none.keyspace(), none.ttl, &none.host), ("bakery_lock", None, &None));
    let settings = read(&[
        ("BAKERY_LOCK_KEYSPACE", "locks"),
        ("BAKERY_LOCK_LOCK_TABLE", "jobs"),
        ("BAKERY_LOCK_PREFIX", "billing/"),
        ("BAKERY_LOCK_HOST", "web"),
        ("BAKERY_LOCK_REGISTER_HOST", "true"),
        ("BAKERY_LOCK_ACQUIRE_TIMEOUT", "500ms"),
        ("BAKERY_LOCK_TTL", "30"),
        ("BAKERY_LOCK_LOCAL_HANDOFF", "false"),
        ("BAKERY_LOCK_KEEP_IDLE", "500ms"),
        ("BAKERY_LOCK_CONSISTENCY", "local-quorum:dc1"),
    ])
    .expect("all can be read");
    assert_eq!(settings.keyspace(), "locks");
    assert_eq!(settings.lock_table.as_deref(), Some("jobs"));
    assert_eq!(settings.prefix.as_deref(), Some("billing/"));
    assert_eq!(settings.host.as_deref(), Some("web"));
    assert_eq!((settings.register_host, settings.local_handoff), (Some(true), Some(false)));
    assert_eq!(settings.acquire_timeout, Some(Duration::from_millis(500)));
    assert_eq!(settings.ttl, Some(Duration::from_secs(30)));
    assert_eq!(settings.keep_idle, Some(Duration::from_millis(500)));
    assert_eq!(settings.consistency, Some(Consistency::LocalQuorum("dc1".to_owned())));
}

#[test]
fn bad_variable_is_named() {
    for (variable, value, reason) in [
        ("BAKERY_LOCK_TTL", "soon", "use a number of seconds"),
        ("BAKERY_LOCK_ACQUIRE_TIMEOUT", "-1", "use a number of seconds"),
        ("BAKERY_LOCK_LOCAL_HANDOFF", "yes", "use true or false"),
        ("BAKERY_LOCK_REGISTER_HOST", "1", "use true or false"),
        ("BAKERY_LOCK_CONSISTENCY", "one", "two clients could hold one lock"),
    ] {
        let error = read(&[(variable, value)]).expect_err("it can't be used");
        assert_eq!(error.variable(), variable);
        let text = error.to_string();
        assert!(text.contains(variable) && text.contains(reason), "{text}");
    }
    let odd = LockSettings::from_variables(|_| Err(VarError::NotUnicode("x".into())));
    assert_eq!(odd.expect_err("it is no text").variable(), "BAKERY_LOCK_KEYSPACE");
}

// Goal: what can't be used is refused by `build`, also where it comes from settings.
#[tokio::test]
async fn settings_are_checked() {
    let store = crate::MemoryStore::new();
    let settings = |ttl| LockSettings {
        ttl: Some(Duration::from_secs(ttl)),
        register_host: Some(true),
        ..LockSettings::default()
    };
    let builder = |ttl| crate::LockClient::builder_in_memory(&store).settings(&settings(ttl));
    let error = builder(4).build().await.expect_err("the ttl is too short");
    assert!(error.to_string().contains("too short"), "{error}");
    builder(5).build().await.expect("the ttl is long enough");
}

#[cfg(all(feature = "serde", feature = "peers"))]
#[test]
fn files_hold_settings() {
    let file = r#"{"ttl": 30, "acquire_timeout": "1500ms", "consistency": "local-quorum:dc1",
        "peers": {"bind": "127.0.0.1:7100", "serve_guests": false, "max_guest_hold": "5m"}}"#;
    let settings: LockSettings = serde_json::from_str(file).expect("it can be read");
    assert_eq!(settings.ttl, Some(Duration::from_secs(30)));
    let written = serde_json::to_value(&settings).expect("it can be written");
    assert_eq!((&written["ttl"], &written["acquire_timeout"]), (&"30s".into(), &"1500ms".into()));
    assert_eq!(written["consistency"], "local-quorum:dc1");
    assert_eq!(
        (&written["peers"]["serve_guests"], &written["host"]),
        (&false.into(), &None::<u8>.into())
    );
    assert_eq!(written["peers"]["bind"], "127.0.0.1:7100");
    assert_eq!(written["peers"]["max_guest_hold"], "300s");
    let again: LockSettings = serde_json::from_value(written.clone()).expect("it can be read");
    assert_eq!(serde_json::to_value(&again).expect("it can be written"), written);
    let automatic: LockSettings =
        serde_json::from_str(r#"{"peers": {"bind": "auto"}}"#).expect("it can be read");
    let peers = automatic.peers.expect("they are set");
    assert_eq!(peers.to_string(), "auto");
    for (bad, reason) in [
        (r#"{"tll": 30}"#, "unknown field `tll`"),
        (r#"{"ttl": "soon"}"#, "use a number of seconds"),
        (r#"{"ttl": -1}"#, "use a number of seconds"),
        (r#"{"consistency": "one"}"#, "two clients could hold one lock"),
        (r#"{"peers": {"bind": "web1"}}"#, "use an IP address and a port"),
        (r#"{"password": "x"}"#, "unknown field `password`"),
    ] {
        let error = serde_json::from_str::<LockSettings>(bad).expect_err("it can't be used");
        assert!(error.to_string().contains(reason), "{bad}: {error}");
    }
}
