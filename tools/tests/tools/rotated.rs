//! A password that is changed while a program's session lives.

use std::sync::Arc;

use bakery_lock::{LockClient, LockError, UnreadyReason};
use cassandra_cluster::{Authentication, Cluster, ClusterOptions, CommitLog};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use support::pace;

use crate::command::{Answer, lock_hosts, patient};

const SUPERUSER: [&str; 2] = ["cassandra", "cassandra"];

async fn login(address: &str, [user, password]: [&str; 2]) -> Arc<Session> {
    let session = SessionBuilder::new().known_node(address).user(user, password).build().await;
    Arc::new(session.expect("the role can log in"))
}

/// Changes the role `app`, once the node lets it: a password can be changed every five seconds.
async fn change(superuser: &Session, with: &str) {
    let statement = format!("ALTER ROLE app WITH {with}");
    let changed = async || superuser.query_unpaged(&*statement, ()).await.is_ok();
    pace::until(&statement, changed).await;
}

async fn client(session: Arc<Session>, keyspace: &str) -> LockClient {
    let builder = LockClient::builder(session, keyspace).host("web1").register_host(true);
    let client = builder.acquire_timeout(pace::limit()).build().await;
    client.expect("the tables are there")
}

async fn lock_once(client: &LockClient) {
    let guard = client.lock("a").await.expect("the lock is free");
    guard.unlock().await.expect("it was held");
}

fn init(address: &str, keyspace: &str) {
    let [user, password] = SUPERUSER;
    let place = ["--nodes", address, "--keyspace", keyspace, "--user", user];
    let mut command = patient(lock_hosts(&place));
    command.args(["init", "--replication", "1"]).env("BAKERY_LOCK_PASSWORD", password);
    let answer = Answer::from(command.output().expect("the tool starts"));
    assert_eq!(answer.code, Some(0), "{answer:?}");
}

// Goal: a password that is changed harms no session until its connections end. Then the refused
// login is named, to callers and by health; a client on another session works, and so does the old
// one if its password becomes valid again.
// Method: one node that requires a login; it is killed and started again after the change.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn changed_password_is_named_as_a_refused_login() {
    let options = ClusterOptions {
        name: "rotated".to_owned(),
        first_host: 115,
        authentication: Authentication::Password,
        // The killed node must know the new password.
        commit_log: CommitLog::Batch,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::lease(options).unwrap_or_else(|error| panic!("no cluster: {error}"));
    let address = cluster.nodes()[0].to_string();
    let keyspace = support::unique_keyspace("rotated");
    init(&address, &keyspace);
    let superuser = login(&address, SUPERUSER).await;
    let created = superuser.query_unpaged("CREATE ROLE IF NOT EXISTS app", ()).await;
    created.expect("the node answers");
    change(&superuser, "LOGIN = true AND SUPERUSER = true AND PASSWORD = 'old'").await;
    let old = client(login(&address, ["app", "old"]).await, &keyspace).await;
    lock_once(&old).await;
    change(&superuser, "PASSWORD = 'new'").await;
    lock_once(&old).await;

    cluster.kill(1).expect("the node can be killed");
    cluster.start(1).expect("the node can be started");
    pace::until("health names the refused login", async || {
        matches!(old.health().await.reasons[..], [UnreadyReason::LoginRefused { .. }])
    })
    .await;
    let error = old.lock("a").await.expect_err("the login is refused");
    let LockError::Refused { cause, .. } = &error else {
        panic!("another error came: {error:?}");
    };
    assert!(cause.is_login_refused(), "{cause:?}");
    assert!(error.to_string().contains("build another session"), "{error}");

    let new = client(login(&address, ["app", "new"]).await, &keyspace).await;
    lock_once(&new).await;
    new.shutdown().await.expect("the node answers");
    let superuser = login(&address, SUPERUSER).await;
    change(&superuser, "PASSWORD = 'old'").await;
    pace::until("the old session works again", async || old.health().await.is_ready()).await;
    lock_once(&old).await;
    old.shutdown().await.expect("the node answers");
}
