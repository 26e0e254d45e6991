//! Each command while nodes are frozen or dead, and while the database refuses: what it prints, and
//! that it does not wait for its timeout. The README of these tests has the table that they print.

mod watched;

use std::time::{Duration, Instant};

use cassandra_cluster::{Authentication, Cluster, ClusterOptions};
use scylla::client::session_builder::SessionBuilder;

use crate::command::{Answer, lock_hosts, lockctl, paced};

/// The timeout of the commands in seconds: their default, and at most twice that on a slow machine,
/// because dozens of commands wait for a share of it.
fn timeout() -> u64 {
    paced(20).as_secs().min(40)
}

/// Cassandra computes every 5 s how long a read waits before it asks another replica, too. Until
/// then a read of a new table waits 2.5 s, which is longer than one of our tries.
const TABLES_SETTLE: Duration = Duration::from_secs(10);

/// Options for a keyspace that exists, and a host that is registered in it.
struct Place {
    nodes: String,
    keyspace: String,
    login: Option<[&'static str; 2]>,
}

/// The result that a command must have.
struct Expected<'a> {
    code: i32,
    told: &'a [&'static str],
}

const fn expect<'a>(code: i32, told: &'a [&'static str]) -> Expected<'a> {
    Expected { code, told }
}

/// Rows of the table, and their problems.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    problems: Vec<String>,
}

impl Place {
    fn new(cluster: &Cluster, tag: &str) -> Self {
        let nodes: Vec<_> = cluster.nodes().iter().map(ToString::to_string).collect();
        let keyspace = support::unique_keyspace(tag);
        Place { nodes: nodes.join(","), keyspace, login: None }
    }

    /// Runs `lock-hosts`, or `lockctl` if that is the first argument.
    fn run(&self, arguments: &[&str]) -> (Answer, Duration) {
        let timeout = format!("--timeout={}s", timeout());
        let place = ["--nodes", &self.nodes, "--keyspace", &self.keyspace, &timeout];
        let (mut command, arguments) = match arguments {
            ["lockctl", arguments @ ..] => (lockctl(&place), arguments),
            arguments => (lock_hosts(&place), arguments),
        };
        if let Some([user, password]) = self.login {
            command.args(["--user", user]).env("BAKERY_LOCK_PASSWORD", password);
        }
        let began = Instant::now();
        let output = command.args(arguments).output().expect("the tool starts");
        (output.into(), began.elapsed())
    }

    /// Runs a command that must work, whatever it prints.
    fn prepare(&self, arguments: &[&str]) {
        let (answer, _) = self.run(arguments);
        assert_eq!(answer.code, Some(0), "{arguments:?}: {answer:?}");
    }
}

impl Table {
    /// Runs a command during an outage.
    fn add(&mut self, outage: &str, place: &Place, command: &[&str], expected: &Expected<'_>) {
        let (answer, took) = place.run(command);
        let said = format!("{}{}", answer.stdout, answer.stderr);
        let said = said.replace(&place.keyspace, "bakery_lock");
        let (name, code) = (command.join(" "), answer.code);
        self.rows
            .push(format!("{outage} | {name} | {code:?} | {:.1} s\n{said}", took.as_secs_f64()));
        let mut problem = |what: String| self.problems.push(format!("{outage}, {name}: {what}"));
        if waited_in_vain(&said) {
            problem(format!("it waited for its timeout: {said}"));
        }
        if code != Some(expected.code) {
            problem(format!("the exit code is {code:?}, not {}", expected.code));
        }
        for told in expected.told {
            if !said.contains(told) {
                problem(format!("it does not say {told:?}: {said}"));
            }
        }
    }

    /// Runs all commands, which must end alike.
    fn add_all(&mut self, outage: &str, place: &Place, init: &[&str], expected: &Expected<'_>) {
        let commands = [
            init,
            &["add", "web2"],
            &["remove", "web2"],
            &["list"],
            &CHECK,
            &SHOW,
            &LOCKCTL_LIST,
            &REVOKE,
            // Where it works it does not end: see `watched`.
            &WATCH,
        ];
        for command in commands {
            self.add(outage, place, command, expected);
        }
        let told = [&["NOLOCK\n"], expected.told].concat();
        self.add(outage, place, &STATUS, &Expected { code: 1, told: &told });
    }

    fn finish(self) {
        println!("{}", self.rows.join("\n"));
        assert!(self.problems.is_empty(), "{}", self.problems.join("\n"));
    }
}

/// Whether a command says that it had no answer within its timeout.
fn waited_in_vain(said: &str) -> bool {
    ["s", "."].iter().any(|end| said.contains(&format!("within {}{end}", timeout())))
}

const CHECK: [&str; 3] = ["doctor", "--host", "web1"];
const SHOW: [&str; 3] = ["lockctl", "show", "a"];
const LOCKCTL_LIST: [&str; 2] = ["lockctl", "list"];
const STATUS: [&str; 4] = ["lockctl", "status", "--host", "web1"];
const WATCH: [&str; 3] = ["lockctl", "watch", "a"];
const REVOKE: [&str; 5] = ["lockctl", "revoke", "a", "--why", "it hangs"];
const SECOND_DOWN: &str = "warning  node 127.0.0.82:9042: can't be reached";
const THIRD_DOWN: &str = "warning  node 127.0.0.83:9042: can't be reached";
const NO_QUORUM: &str = "error    quorum: fewer than 2 replicas answer in 3 of 3 ranges";

// Goal: whichever nodes are frozen or dead, each command does what is still possible, or names the
// cause, before its timeout: which nodes do not answer, and that a quorum is missing.
// Method: three nodes; one is frozen, then killed, then a second one is frozen, then killed.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn commands_name_the_nodes_that_are_down() {
    let _alone = support::alone().await;
    let options = ClusterOptions {
        name: "outages".to_owned(),
        nodes: 3,
        first_host: 81,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::lease(options).unwrap_or_else(|error| panic!("no cluster: {error}"));
    let place = Place::new(&cluster, "outages");
    place.prepare(&["init", "--replication", "3"]);
    place.prepare(&["add", "web1"]);
    let mut table = Table::default();

    let missing = Place::new(&cluster, "missing");
    let does_not_exist = expect(1, &["keyspace \"bakery_lock\" does not exist", "lock-hosts init"]);
    table.add_all("missing keyspace", &missing, &["init"], &does_not_exist);
    let wrong = ["init", "--replication", "dc9=3"];
    let named = expect(1, &["there is no data centre \"dc9\", only datacenter1"]);
    table.add("wrong data centre", &missing, &wrong, &named);

    let init = ["init", "--replication", "3"];
    let one_down = [
        (&init[..], expect(0, &["is ready for locks"])),
        (&["add", "web2"], expect(0, &["host web2 has number "])),
        (&["remove", "web2"], expect(0, &["host web2 is removed"])),
        (&["list"], expect(0, &["  web1"])),
        (&CHECK, expect(0, &[SECOND_DOWN, "ok       quorum: 2 replicas", "host web1: registered"])),
        (&SHOW, expect(0, &["a is free"])),
        (&LOCKCTL_LIST, expect(0, &["no such lock is in use"])),
        (&REVOKE, expect(1, &["no client holds it; nothing was changed"])),
        (&STATUS, expect(0, &["LOCKREADY\n"])),
    ];
    let two_down = [
        (&init[..], expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&["add", "web2"], expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&["remove", "web2"], expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&["list"], expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (
            &CHECK,
            expect(
                1,
                &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM, "error    host web1: its registration"],
            ),
        ),
        (&SHOW, expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&LOCKCTL_LIST, expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&REVOKE, expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&WATCH, expect(3, &[SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
        (&STATUS, expect(1, &["NOLOCK\n", SECOND_DOWN, THIRD_DOWN, NO_QUORUM])),
    ];
    std::thread::sleep(TABLES_SETTLE);
    cluster.pause(2).expect("the node can be frozen");
    for (command, expected) in &one_down {
        table.add("node frozen", &place, command, expected);
    }
    cluster.kill(2).expect("the node can be killed");
    for (command, expected) in &one_down {
        table.add("node killed", &place, command, expected);
    }
    cluster.pause(3).expect("the node can be frozen");
    for (command, expected) in &two_down {
        table.add("one killed, one frozen", &place, command, expected);
    }
    cluster.kill(3).expect("the node can be killed");
    for (command, expected) in &two_down {
        table.add("two killed", &place, command, expected);
    }
    table.finish();
}

// Goal: a missing grant is named as such, with the statement that grants it; so are a wrong
// password and a login that the nodes can't check. No command waits for its timeout.
// Method: two nodes that require a login; the second one is frozen, and with it a quorum of the
// logins.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn commands_name_what_the_database_refuses() {
    let _alone = support::alone().await;
    let options = ClusterOptions {
        name: "grants".to_owned(),
        nodes: 2,
        first_host: 91,
        authentication: Authentication::Password,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::lease(options).unwrap_or_else(|error| panic!("no cluster: {error}"));
    let mut place = Place::new(&cluster, "grants");
    for statement in [
        "ALTER KEYSPACE system_auth WITH replication = \
         {'class': 'NetworkTopologyStrategy', 'datacenter1': 2}",
        "CREATE ROLE IF NOT EXISTS app WITH PASSWORD = 'app' AND LOGIN = true",
        "CREATE ROLE IF NOT EXISTS reader WITH PASSWORD = 'reader' AND LOGIN = true",
    ] {
        execute(&cluster, statement).await;
    }
    place.login = Some(["cassandra", "cassandra"]);
    place.prepare(&["init", "--replication", "2"]);
    place.prepare(&["add", "web1"]);
    let grant = format!("GRANT SELECT ON KEYSPACE \"{}\" TO reader", place.keyspace);
    execute(&cluster, &grant).await;

    let mut table = Table::default();
    let init = ["init", "--replication", "2"];
    place.login = Some(["app", "app"]);
    let told = &["user \"app\" lacks a permission", "run `GRANT ", "\" TO \"app\";`"];
    table.add_all("no grants", &place, &init, &expect(1, told));
    place.login = Some(["reader", "reader"]);
    for command in [&["add", "web2"][..], &["remove", "web1"]] {
        let told = expect(1, &["user \"reader\" lacks a permission", "run `GRANT MODIFY ON TABLE"]);
        table.add("no grant to write", &place, command, &told);
    }
    let told = expect(0, &["  web1"]);
    table.add("no grant to write", &place, &["list"], &told);
    table.add("no grant to write", &place, &SHOW, &expect(0, &["a is free"]));
    let told = expect(0, &["no such lock is in use"]);
    table.add("no grant to write", &place, &LOCKCTL_LIST, &told);

    place.login = Some(["app", "wrong"]);
    let told = &["the login of user \"app\" was refused, check user and password"];
    table.add_all("wrong password", &place, &init, &expect(3, told));

    cluster.pause(2).expect("the node can be frozen");
    place.login = Some(["stranger", "wrong"]);
    let told = &["the nodes could not check the login of user \"stranger\"", "system_auth"];
    table.add_all("login can't be checked", &place, &init, &expect(3, told));
    table.finish();
}

async fn execute(cluster: &Cluster, statement: &str) {
    let builder = SessionBuilder::new().known_nodes_addr(cluster.nodes());
    let session = builder.user("cassandra", "cassandra").build().await;
    let session = session.expect("the cluster is ready");
    session.query_unpaged(statement, ()).await.expect("the cluster answers");
}
