//! Servers that can't be used, and what errors say about it.

use bakery_lock::hosts::HostRegistry;
use bakery_lock::masters::{self, InitOptions};
use bakery_lock::schema::Severity;
use bakery_lock::{LockClient, Masters, MastersError};

use super::scene::{self, MAX_TTL, Scene, built, connect, options};
use support::masters::{MasterServers, SYNCED};

/// What a client is refused with.
async fn refusal(masters: &Masters) -> String {
    let built = LockClient::builder_on_masters(masters).ttl(MAX_TTL).host("test-host").build();
    Box::pin(built).await.expect_err("the masters can't be used").to_string()
}

#[tokio::test]
async fn table_has_to_be_created_first() {
    let servers = MasterServers::start(3);
    let masters = connect(&servers.urls()).await;
    let refused_with = refusal(&masters).await;
    assert!(
        refused_with.contains("no master has a record of lock table \"lock_table\""),
        "{refused_with}"
    );
    assert!(refused_with.contains("run `lock-hosts init`"), "{refused_with}");
    let nowhere: Vec<_> = (1..=3).map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let refused_with = refusal(&connect(&nowhere).await).await;
    assert!(refused_with.contains("master 127.0.0.1:1: it is not connected"), "{refused_with}");
}

#[tokio::test]
async fn other_settings_and_numbers_are_refused() {
    let scene = Scene::new().await;
    let error = masters::init(&scene.masters, &InitOptions::new()).await;
    let refused_with = error.expect_err("the settings differ").to_string();
    assert!(refused_with.contains("max_ttl 30s, max_clock_skew 1s"), "{refused_with}");
    let again = masters::init(&scene.masters, &options()).await.expect("they are the same");
    assert!(!again.is_new && again.joined.is_empty(), "{again:?}");

    let one = connect(&scene.servers.urls()[..1]).await;
    let refused_with = refusal(&one).await;
    assert!(refused_with.contains("is kept by 3 masters, and 1 are given"), "{refused_with}");
    for max_ttl in [29, 601].map(std::time::Duration::from_secs) {
        let options = InitOptions::new().max_ttl(max_ttl);
        let error = masters::init(&scene.masters, &options).await.expect_err("it is out of range");
        assert!(matches!(error, MastersError::Setting(_)), "{error:?}");
    }
}

// Goal: a set of addresses that names a server twice has no majority without the others.
#[tokio::test]
async fn server_named_twice_counts_once() {
    let scene = Scene::new().await;
    let urls = scene.servers.urls();
    let twice = connect(&[urls[0].clone(), urls[0].clone(), urls[1].clone()]).await;
    let report = masters::check(&twice, "lock_table").await.expect("two servers answer");
    let refused_with: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        refused_with.iter().any(|refused_with| refused_with.contains("name each server once")),
        "{refused_with:?}"
    );
    let fresh = MasterServers::start(1);
    let urls = vec![fresh.urls()[0].clone(); 3];
    let error = masters::init(&connect(&urls).await, &options()).await;
    let refused_with = error.expect_err("it is one server").to_string();
    assert!(refused_with.contains("name each server once"), "{refused_with}");
}

#[tokio::test]
async fn unfit_servers_take_no_part() {
    let scene = Scene::new().await;
    let other = MasterServers::start(1);
    let address = other.address(0);
    let follow = format!("REPLICAOF {} {}", address.ip(), address.port());
    for (command, undo, refused_with) in [
        (
            "CONFIG SET maxmemory-policy allkeys-lru",
            "CONFIG SET maxmemory-policy noeviction",
            "it may evict keys (allkeys-lru)",
        ),
        (follow.as_str(), "REPLICAOF NO ONE", "its role is \"slave\""),
    ] {
        assert_eq!(scene.servers.command(0, command), "+OK");
        // A server is asked what it is when it is connected to.
        let masters = connect(&scene.servers.urls()).await;
        scene::wait_for_finding(&masters, refused_with).await;
        assert_eq!(scene.servers.command(0, undo), "+OK");
    }
}

// Goal: a member that was made to follow another one does not count twice with it, also on
// connections from before, and comes back as one that has lost its data.
#[tokio::test]
async fn member_that_follows_another_takes_no_part() {
    let scene = Scene::new().await;
    let client = scene.client().await;
    let guard = client.lock("name").await.expect("it is free");
    let address = scene.servers.address(1);
    let follow = format!("REPLICAOF {} {}", address.ip(), address.port());
    assert_eq!(scene.servers.command(0, &follow), "+OK");
    scene::wait_for_finding(&scene.masters, "its role is \"slave\"").await;
    let has_copy = "EVAL \"return redis.call('HGET','bl:lock_table:master','index')=='1'\" 0";
    let copied = async {
        while scene.servers.command(0, has_copy) != ":1" {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    support::pace::within_limit("the copy", copied).await;
    assert_eq!(scene.servers.command(0, "REPLICAOF NO ONE"), "+OK");
    scene::wait_for_finding(&scene.masters, "another server has taken its place").await;
    assert_eq!(scene.servers.command(0, "DEL bl:lock_table:master"), ":1");
    scene::wait_for_finding(&scene.masters, "it lost its data, and takes part in").await;
    guard.unlock().await.expect("it was held");
}

// Goal: a server with replicas is refused unless that is allowed.
#[tokio::test]
async fn server_with_replicas_is_refused() {
    let (servers, replica) = (MasterServers::start(1), MasterServers::start(1));
    let address = servers.address(0);
    let follow = format!("REPLICAOF {} {}", address.ip(), address.port());
    assert_eq!(replica.command(0, &follow), "+OK");
    let refused = async {
        loop {
            let masters = connect(&servers.urls()).await;
            match masters::init(&masters, &options().fresh(true)).await {
                Err(error) => return error.to_string(),
                // The replica is not connected yet.
                Ok(_) => assert_eq!(servers.command(0, "FLUSHALL"), "+OK"),
            }
        }
    };
    let refused_with = support::pace::within_limit("a replica", refused).await;
    assert!(refused_with.contains("it has 1 replica(s)"), "{refused_with}");
    let masters = Masters::connect_despite_replicas(servers.urls()).await.expect("it is one");
    masters::init(&masters, &options().fresh(true)).await.expect("replicas are allowed");
}

// Goal: a client that was given another server instead of one of the masters excludes no less: that
// server takes no part until the others agree, and the one that it replaced is refused.
#[tokio::test]
async fn stranger_replaces_a_server_only_for_all() {
    let scene = Scene::new().await;
    let mut urls = scene.servers.urls();
    let stranger = MasterServers::start(1);
    urls[2] = stranger.urls().remove(0);
    let misled = connect(&urls).await;
    let client = built(scene::builder(&misled)).await;
    let guard = client.lock("name").await.expect("two masters answer");
    scene::wait_for_finding(&misled, "it lost its data, and takes part in").await;
    // The others see that another server has the place.
    scene::wait_for_finding(&scene.masters, "another server has taken its place").await;
    let other = scene.client().await;
    assert!(other.try_lock("name").await.expect("two masters answer").is_none());
    guard.unlock().await.expect("it was held");
    other.lock("name").await.expect("it is free").unlock().await.expect("it was held");
}

// Goal: the rights that docs/masters.md names are enough.
#[tokio::test]
async fn user_with_the_documented_rights_takes_locks() {
    let servers = MasterServers::start(3);
    for index in 0..3 {
        let user =
            "ACL SETUSER locks on >p@ss ~bl:* +@read +@write +@scripting +info +time +client";
        assert_eq!(servers.command(index, user), "+OK");
        assert_eq!(servers.command(index, "ACL SETUSER default off"), "+OK");
    }
    let urls: Vec<_> =
        (0..3).map(|index| format!("redis://locks:p%40ss@{}", servers.address(index))).collect();
    let masters = connect(&urls).await;
    assert!(!format!("{masters:?}").contains("p@ss"), "{masters:?}");
    masters::init(&masters, &options().fresh(true)).await.expect("it has the rights");
    let client = built(scene::builder(&masters)).await;
    client.lock("name").await.expect("it is free").unlock().await.expect("it was held");
    let refused_with = refusal(&connect(&servers.urls()).await).await;
    assert!(refused_with.contains("it is not connected"), "{refused_with}");
}

// Goal: what a server of another set acknowledges does not count.
#[tokio::test]
async fn servers_of_another_set_take_no_part() {
    let (scene, other) = (Scene::new().await, Scene::new().await);
    let mixed = [&scene.servers.urls()[..2], &other.servers.urls()[2..]].concat();
    scene::wait_for_finding(&connect(&mixed).await, "belongs to another set of masters").await;
}

// Goal: a server that syncs all it acknowledges takes part at once after a crash; the registry
// survives the loss of each server in turn.
#[tokio::test]
async fn synced_server_takes_part_at_once() {
    let mut scene = Scene::on(MasterServers::start_with(3, SYNCED)).await;
    let client = scene.client().await;
    let guard = client.lock("name").await.expect("it is free");
    for index in 0..3 {
        scene.servers.kill(index);
        scene.servers.start_again(index);
        scene::wait_for_finding(&scene.masters, "3 of 3 masters take part").await;
    }
    assert!(guard.state().is_held());
    let other = scene.client().await;
    assert!(other.try_lock("name").await.expect("the servers answer").is_none());
}

// Goal: a server that lost the registry gets it from the others.
#[tokio::test]
async fn registry_survives_the_loss_of_a_server() {
    let scene = Scene::new().await;
    let registry = HostRegistry::on_masters(&scene.masters, "lock_table").await;
    let registry = registry.expect("the table is there");
    let web1 = registry.add("web1").await.expect("it is new");
    scene.servers.flush(0);
    scene::wait_for_finding(&scene.masters, "it lost its data, and takes part in").await;
    assert_eq!(scene.servers.command(0, "HEXISTS bl:lock_table:hosts host:web1"), ":1");
    let seen = registry.get("web1").await.expect("two masters answer");
    assert_eq!(seen, Some(web1));
}

// Goal: when a majority has lost its data, nothing is granted until an operator says that these are
// the servers, and then only after a wait.
#[tokio::test]
async fn loss_of_a_majority_needs_an_operator() {
    let scene = Scene::new().await;
    scene.servers.flush(0);
    scene.servers.flush(1);
    scene::wait_for_finding(&scene.masters, "run `lock-hosts init`").await;
    let report = masters::check(&scene.masters, "lock_table").await.expect("they answer");
    assert_eq!(report.worst(), Severity::Error);
    let restored = masters::init(&scene.masters, &options()).await.expect("all answer");
    assert_eq!((restored.is_new, restored.joined.len()), (false, 2));
    assert_eq!(restored.wait, scene::QUARANTINE);
    scene::wait_for_finding(&scene.masters, "1 of 3 masters take part").await;
}
