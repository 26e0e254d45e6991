//! The permissions that `docs/operations.md` asks for: enough for each kind of user, and none of
//! them too many.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::admin::QueueError;

use bakery_lock::{ContenderInfo, LockClient, PeerOptions};
use cassandra_cluster::{Authentication, Cluster, ClusterOptions};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use support::pace;
use tokio::time::{Instant, sleep};

use crate::command::{Answer, lock_hosts, lockctl, paced, patient};

const GUIDE: &str = include_str!("../../../docs/operations.md");
const HOST: &str = "web1";

/// How long a client looks for a keeper that it must not find, or that is tried again.
const LOOKS: Duration = Duration::from_secs(2);

/// A permission, as the document grants it.
#[derive(Clone, Debug)]
struct Grant {
    /// `SELECT ON TABLE bakery_lock.lock_table`.
    what: String,
    role: String,
}

impl Grant {
    /// The statements of the document.
    fn documented() -> Vec<Grant> {
        let statements = GUIDE.lines().filter_map(|line| line.strip_prefix("GRANT "));
        let grant = |statement: &str| {
            let (what, role) = statement.strip_suffix(';')?.split_once(" TO ")?;
            Some(Grant { what: what.to_owned(), role: role.to_owned() })
        };
        statements.map(|it| grant(it).unwrap_or_else(|| panic!("GRANT {it} is strange"))).collect()
    }

    fn cql(&self) -> String {
        format!("GRANT {} TO {}", self.what, self.role)
    }

    fn revocation(&self) -> String {
        format!("REVOKE {} FROM {}", self.what, self.role)
    }

    /// The statement as errors name it.
    fn named(&self) -> String {
        let what = self.what.replace("bakery_lock.", "\"bakery_lock\".\"");
        let quote = if what == self.what { "" } else { "\"" };
        format!("GRANT {what}{quote} TO \"{}\";", self.role)
    }
}

struct Node {
    /// It runs as long as the test.
    _cluster: Cluster,
    address: String,
    superuser: Arc<Session>,
}

impl Node {
    async fn start() -> Self {
        let short = |key: &str| (key.to_owned(), "0ms".to_owned());
        let options = ClusterOptions {
            name: "rights".to_owned(),
            first_host: 101,
            authentication: Authentication::Password,
            // What is granted or revoked counts at once.
            settings: BTreeMap::from([short("permissions_validity"), short("roles_validity")]),
            ..ClusterOptions::default()
        };
        let cluster = Cluster::lease(options).unwrap_or_else(|error| panic!("no cluster: {error}"));
        let address = cluster.nodes()[0].to_string();
        let superuser = login(&address, "cassandra").await;
        Node { _cluster: cluster, address, superuser }
    }

    async fn execute(&self, statement: &str) {
        let answer = self.superuser.query_unpaged(statement, ()).await;
        answer.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// Runs `lockctl` if that is the first argument, else `lock-hosts`.
    fn run(&self, role: &str, arguments: &[&str]) -> Answer {
        let place = ["--nodes", &self.address, "--user", role];
        let (mut command, arguments) = match arguments {
            ["lockctl", arguments @ ..] => (patient(lockctl(&place)), arguments),
            arguments => (patient(lock_hosts(&place)), arguments),
        };
        command.args(arguments).env("BAKERY_LOCK_PASSWORD", role);
        let output: Output = command.output().expect("the tool starts");
        output.into()
    }

    /// Does all that a role is for, until something fails; returns what it said then.
    async fn work(&self, role: &str) -> Result<(), String> {
        let commands: &[&[&str]] = match role {
            "installer" => &[&["init", "--replication", "1"]],
            "admin" => &[&["list"], &["add", "web2"], &["remove", "web2"]],
            "viewer" => &[&["lockctl", "show", "a"], &["lockctl", "list"]],
            "service" => {
                // Without its causes: a program may log no more.
                return self.take_a_lock(role).await.map_err(|error| error.to_string());
            }
            "revoker" => return self.revoke(role).await,
            role => panic!("the document grants permissions to {role}, which is not tried"),
        };
        for command in commands {
            done(&self.run(role, command))?;
        }
        Ok(())
    }

    async fn take_a_lock(&self, role: &str) -> Result<(), Box<dyn Error>> {
        let client = self.client(role).await?;
        let guard = client.lock("a").await?;
        guard.fencing_token().await?;
        guard.unlock().await?;
        client.shutdown().await?;
        // What a client needs rarely is in the check.
        let check = self.run(role, &["doctor", "--host", HOST]);
        if !check.stdout.contains("rights of user \"service\": it may take locks") {
            return Err(check.stdout.into());
        }
        let time = format!("{:?}", paced(2));
        let measure = ["--host", HOST, "--for", &time];
        for command in
            [&["lockctl", "selftest", "--processes", "1"], &["lockctl", "bench", "--clients", "2"]]
        {
            done(&self.run(role, &[&command[..], &measure].concat()))?;
        }
        Ok(())
    }

    async fn client(&self, role: &str) -> Result<LockClient, Box<dyn Error>> {
        let session = login(&self.address, role).await;
        let builder = LockClient::builder(session, "bakery_lock").host(HOST);
        Ok(builder.acquire_timeout(pace::limit()).build().await?)
    }

    async fn revoke(&self, role: &str) -> Result<(), String> {
        let holder = self.client("cassandra").await.expect("it may do all");
        let guard = holder.lock("held").await.expect("it is free");
        let answer = self.run(role, &["lockctl", "revoke", "held", "--why", "a test"]);
        drop(guard);
        holder.shutdown().await.expect("the database answers");
        done(&answer)
    }
}

/// A session of a role, whose password is its name.
async fn login(address: &str, role: &str) -> Arc<Session> {
    let session = SessionBuilder::new().known_node(address).user(role, role).build().await;
    Arc::new(session.expect("the role can log in"))
}

fn done(answer: &Answer) -> Result<(), String> {
    if answer.code == Some(0) { Ok(()) } else { Err(answer.stderr.clone()) }
}

// Goal: the documented permissions are enough for each kind of user, and without any one of them an
// error, or the check, names exactly the statement that grants it.
// Method: one node with an authorizer; each kind works with all its permissions but one.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn each_missing_permission_is_named() {
    let node = Node::start().await;
    let grants = Grant::documented();
    node.execute("DROP KEYSPACE IF EXISTS bakery_lock").await;
    for role in ["installer", "admin", "service", "viewer", "revoker", "peer", "keeper"] {
        node.execute(&format!("DROP ROLE IF EXISTS {role}")).await;
        node.execute(&format!("CREATE ROLE {role} WITH PASSWORD = '{role}' AND LOGIN = true"))
            .await;
    }
    // The first one makes the tables that the permissions of the others are for.
    let mut problems = Vec::new();
    for grant in &grants {
        if grant.role != "installer" {
            continue;
        }
        check_missing(&node, grant, &mut problems).await;
        node.execute(&grant.cql()).await;
        assert_eq!(node.work("installer").await, Ok(()), "with {}", grant.cql());
    }
    let added = node.run("cassandra", &["add", HOST]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let of_tables = || grants.iter().filter(|grant| grant.role != "installer");
    for grant in of_tables() {
        node.execute(&grant.cql()).await;
    }
    for grant in of_tables().filter(|grant| grant.role != "peer") {
        node.execute(&grant.revocation()).await;
        check_missing(&node, grant, &mut problems).await;
        node.execute(&grant.cql()).await;
    }
    for role in ["admin", "service", "viewer", "revoker"] {
        let done = node.work(role).await;
        assert_eq!(done, Ok(()), "{role} with all its permissions");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    turns_need_both(&node, &grants).await;
}

async fn check_missing(node: &Node, grant: &Grant, problems: &mut Vec<String>) {
    match node.work(&grant.role).await {
        Ok(()) => problems.push(format!("{} is not needed", grant.cql())),
        Err(said) if said.contains(&grant.named()) => {}
        Err(said) => problems.push(format!("without {} it says: {said}", grant.named())),
    }
}

/// A client that may not read `lock_peers` finds no keeper, and one that may not write it is let in
/// by none.
async fn turns_need_both(node: &Node, grants: &[Grant]) {
    for role in ["peer", "keeper"] {
        for grant in grants.iter().filter(|grant| ["service", "peer"].contains(&&*grant.role)) {
            node.execute(&Grant { role: role.to_owned(), ..grant.clone() }.cql()).await;
        }
    }
    for grant in grants.iter().filter(|grant| grant.role == "peer") {
        node.execute(&grant.revocation()).await;
        let line = line(node).await;
        assert!(matches!(line, Err(QueueError::NotReached { .. })), "{}: {line:?}", grant.what);
        node.execute(&grant.cql()).await;
    }
    let what = "a client with both permissions is reached";
    pace::until(what, async || Box::pin(line(node)).await.is_ok()).await;
}

/// The line of a lock that a client of role `keeper` holds, as one of role `peer` learns it; an
/// error if it does not in a while.
async fn line(node: &Node) -> Result<(), QueueError> {
    let client = async |role| {
        let session = login(&node.address, role).await;
        let peers = PeerOptions::new(([127, 0, 0, 1], 0).into());
        let client = LockClient::builder(session, "bakery_lock").host(HOST).peers(peers);
        let client = client.acquire_timeout(pace::limit());
        client.build().await.expect("peers are built with the grants of services")
    };
    let (keeper, other) = (client("keeper").await, client("peer").await);
    let guard = keeper.lock("kept").await.expect("it is free");
    let began = Instant::now();
    // The keeper publishes its address in the background.
    let line = loop {
        let line = other.queue("kept").await.map(drop);
        if line.is_ok() || began.elapsed() >= LOOKS {
            break line;
        }
        sleep(Duration::from_millis(100)).await;
    };
    let contenders: Vec<ContenderInfo> = other.contenders("kept").await.expect("it may look");
    assert_eq!(contenders.len(), 1, "{contenders:?}");
    drop(guard);
    for client in [other, keeper] {
        client.shutdown().await.expect("the database answers");
    }
    line
}
