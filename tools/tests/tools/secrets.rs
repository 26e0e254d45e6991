//! No password is printed, whatever is asked for and whatever fails.

use std::error::Error;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use bakery_lock::LockClient;
use bakery_lock::schema::{self, CreateOptions, Replication};
use bakery_lock_tools::connect::ConnectArguments;
use bakery_lock_tools::failure::Failure;
use bakery_lock_tools::lock_hosts::LockHosts;
use bakery_lock_tools::lockctl::Lockctl;
use clap::Parser;
use scylla::client::session_builder::SessionBuilder;
use support::log::Log;
use support::pace;

use crate::command::{Answer, lock_hosts, lockctl, patient};
use crate::secured::SecuredNode;

const USER: &str = "ops";
const PASSWORD: &str = "correct-horse-4711";
const WRONG: &str = "battery-staple-0815";

/// All commands that talk to the database, and how they end with the right password.
const COMMANDS: [(&str, i32); 13] = [
    ("lock-hosts init --replication 1", 0),
    ("lock-hosts add web1 web2", 0),
    ("lock-hosts remove web2", 0),
    ("lock-hosts list", 0),
    ("lock-hosts doctor --host web1", 0),
    ("lockctl show a", 0),
    ("lockctl list", 0),
    ("lockctl revoke a --why hangs", 1),
    ("lockctl status --host web1", 0),
    // What any user of the machine sees of its processes; the second one is their guardian.
    ("lockctl run -v --host web1 a -- sh -c cat /proc/$PPID/cmdline /proc/self/cmdline", 0),
    (
        "lockctl elect -v --host web1 --priority 1 a -- sh -c cat /proc/$PPID/cmdline \
         /proc/self/cmdline",
        0,
    ),
    ("lock-hosts --help", 0),
    ("lockctl run --help", 0),
];

/// Makes a role with a password that is no other text of the tests.
async fn prepare(node: &SecuredNode) {
    let session = SessionBuilder::new().known_node(&node.address);
    let session = session.user("cassandra", "cassandra").build().await.expect("the node answers");
    let role = format!(
        "CREATE ROLE IF NOT EXISTS {USER} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true AND \
         SUPERUSER = true"
    );
    session.query_unpaged(role, ()).await.expect("the node answers");
}

/// A file with a password, which is removed at the end of a test.
struct PasswordFile(PathBuf);

impl PasswordFile {
    fn new(tag: &str, password: &str) -> Self {
        let name = format!("bakery-lock-{tag}-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, format!("{password}\n")).expect("the file can be written");
        PasswordFile(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A tool's command, with options before it, and with all that makes programs talkative.
fn command(line: &str, options: &[&str]) -> Command {
    let (tool, rest) = line.split_once(' ').expect("a command has arguments");
    let (start, script) = rest.split_once(" -c ").map_or((rest, None), |(a, b)| (a, Some(b)));
    let command = if tool == "lockctl" { lockctl(options) } else { lock_hosts(options) };
    let mut command = patient(command);
    command.args(start.split(' ')).args(script.map(|script| ["-c", script]).iter().flatten());
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
    command
}

fn shows_nothing(what: &str, said: &str) {
    for secret in [PASSWORD, WRONG] {
        assert!(!said.contains(secret), "{what} shows a password: {said}");
    }
}

// Goal: no command prints the password, be it right or wrong, from the environment or from a file;
// neither do its processes show it in their arguments.
// Method: run all commands, with all that makes programs talkative.
#[tokio::test]
async fn no_command_prints_a_password() {
    let node = SecuredNode::shared();
    prepare(node).await;
    let file = PasswordFile::new("commands", PASSWORD);
    let keyspace = support::unique_keyspace("secrets");
    for (line, code) in COMMANDS {
        for (password, options) in
            [(PASSWORD, &[][..]), (PASSWORD, &["--password-file", file.path()]), (WRONG, &[])]
        {
            let mut command = command(line, options);
            command.envs([
                ("BAKERY_LOCK_NODES", node.address.as_str()),
                ("BAKERY_LOCK_KEYSPACE", &keyspace),
                ("BAKERY_LOCK_USER", USER),
            ]);
            if options.is_empty() {
                command.env("BAKERY_LOCK_PASSWORD", password);
            }
            let answer: Answer = command.output().expect("the tool starts").into();
            shows_nothing(line, &format!("{answer:?}"));
            if line.ends_with("--help") || password == PASSWORD {
                assert_eq!(answer.code, Some(code), "{line}: {answer:?}");
            } else {
                let told = format!("the login of user \"{USER}\" was refused");
                assert!(answer.code != Some(0), "{line}: {answer:?}");
                assert!((answer.stdout + &answer.stderr).contains(&told), "{line}: not told");
            }
        }
    }
}

/// Options as a tool has them.
#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    connection: ConnectArguments,
}

// Goal: nothing that programs can print of a connection, a client or an error shows the password;
// neither does what driver and library log.
// Method: print all of it with `Debug`, and the errors with their causes; log at all levels.
#[tokio::test]
async fn no_value_shows_a_password() {
    let node = SecuredNode::shared();
    prepare(node).await;
    let log = Log::listen();
    let [right, wrong] =
        [("right", PASSWORD), ("wrong", WRONG)].map(|(tag, text)| PasswordFile::new(tag, text));
    for file in [&right, &wrong] {
        let options =
            ["tool", "--nodes", &node.address, "--user", USER, "--password-file", file.path()];
        prints_nothing(&LockHosts::try_parse_from([&options[..], &["list"]].concat()));
        prints_nothing(&Lockctl::try_parse_from([&options[..], &["list"]].concat()));
        let program = Program::try_parse_from(options).expect("these are options");
        prints_nothing(&program);
        let connection = program.connection.options().expect("no variable is set");
        match connection.connect().await {
            Ok(session) => prints_nothing(&session),
            Err(failure) => {
                assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
                tells_nothing(&failure);
            }
        }
    }

    let login = |password| SessionBuilder::new().known_node(&node.address).user(USER, password);
    tells_nothing(&login(WRONG).build().await.expect_err("the password is wrong"));
    let session = Arc::new(login(PASSWORD).build().await.expect("the password is right"));
    let keyspace = support::unique_keyspace("shown");
    let builder = LockClient::builder(Arc::clone(&session), &keyspace).host("web1");
    prints_nothing(&builder);
    tells_nothing(&builder.clone().build().await.expect_err("there is no such keyspace"));
    let options = CreateOptions::new().replication(Replication::Factor(1));
    schema::create(&session, &keyspace, &options).await.expect("the schema can be made");
    tells_nothing(&builder.clone().build().await.expect_err("the host is not registered"));
    let builder = builder.register_host(true).acquire_timeout(pace::limit());
    let client = builder.build().await.expect("the tables are there");
    prints_nothing(&client);
    prints_nothing(&client.request("a"));
    prints_nothing(&client.election("a"));
    let guard = client.lock("a").await.expect("it is free");
    prints_nothing(&guard);
    guard.unlock().await.expect("it is held");
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.expect("it is there");
    tells_nothing(&client.lock("b").await.expect_err("the table is gone"));
    prints_nothing(&client.health().await);

    let logged = log.text();
    assert!(logged.contains("scylla"), "nothing was logged");
    shows_nothing("the log", &logged);
}

fn prints_nothing(value: &impl Debug) {
    shows_nothing("a value", &format!("{value:?} {value:#?}"));
}

/// The same of an error and its causes.
fn tells_nothing(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        shows_nothing("an error", &format!("{error} {error:?}"));
        next = error.source();
    }
}
