//! Tests with real clusters. Each test has its own cluster name and addresses in 127.0.0.21 to
//! 127.0.0.31.

#![allow(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cassandra_cluster::{
    Authentication, Cluster, ClusterError, ClusterOptions, CommitLog, Link, Network, NodeState,
};
use rustix::process::{Pid, Signal};

/// Opcodes of the CQL native protocol.
const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const OPTIONS: u8 = 0x05;
const SUPPORTED: u8 = 0x06;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;

/// Consistency levels of the CQL native protocol.
const ONE: u8 = 0x01;
const QUORUM: u8 = 0x04;
const ALL: u8 = 0x05;

/// Longer waits mean a hang, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn leases_share_cluster_which_dies_with_supervisor() {
    let options = options("test-lease", 21);
    let first = Cluster::lease(options.clone()).unwrap();
    let second = Cluster::lease(options.clone()).unwrap();
    let [node] = first.nodes()[..] else { panic!("not one node: {:?}", first.nodes()) };
    assert_eq!(node.to_string(), "127.0.0.21:9042");
    assert_eq!(request_options(node).unwrap(), SUPPORTED);
    assert_eq!(first.pid(1).unwrap(), second.pid(1).unwrap());
    assert_eq!(first.status().unwrap().leases, 2);

    let other = ClusterOptions { commit_log: CommitLog::Batch, ..options };
    let error = Cluster::lease(other.clone()).unwrap_err();
    assert!(matches!(error, ClusterError::OptionsDiffer(_)), "{error}");

    // Longer than a cluster without leases runs.
    drop(first);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(request_options(node).unwrap(), SUPPORTED);
    assert_eq!(second.status().unwrap().leases, 1);

    // Without other leases, the cluster is restarted with the new options.
    drop(second);
    let third = Cluster::lease(other).unwrap();
    let commit_log = third.status().unwrap().options.commit_log;
    assert_eq!(commit_log, CommitLog::Batch);

    // The kernel kills the nodes, although nothing requests it.
    let directory = directory(&third);
    assert_eq!(processes_below(&directory).len(), 1);
    let supervisor = pid(third.status().unwrap().supervisor);
    rustix::process::kill_process(supervisor, Signal::KILL).unwrap();
    wait_until_gone(&directory);
    let error = third.status().unwrap_err();
    assert!(matches!(error, ClusterError::SupervisorGone { .. }), "{error}");
}

#[test]
fn nodes_die_with_killed_leaseholder() {
    // The echo shows that the program runs, which starts after the cluster is up.
    let mut holder = program(&["run", "1", "--name", "test-holder", "--first-host", "22"])
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = holder.stdin.take().unwrap();
    input.write_all(b"up\n").unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let directory = directory_of("test-holder");
    assert_eq!(processes_below(&directory).len(), 1);

    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until_gone(&directory);
    assert_eq!(exit_code(&["status", "--name", "test-holder"]), 1);
}

#[test]
#[ignore = "takes long; scripts/nightly runs it"]
fn killed_and_frozen_nodes_are_healed() {
    // With Cassandra's lowest value, nodes see a dead node down in 12 seconds instead of 18.
    let settings = BTreeMap::from([("phi_convict_threshold".to_owned(), "5".to_owned())]);
    let options = ClusterOptions { nodes: 2, settings, ..options("test-heal", 26) };
    let cluster = Cluster::lease(options).unwrap();
    let [first, second] = cluster.nodes()[..] else {
        panic!("not two nodes: {:?}", cluster.nodes())
    };
    wait_until("the nodes see each other", || sees(&cluster) == [[2], [1]]);

    cluster.pause(1).unwrap();
    let pid = cluster.pid(1).unwrap();
    assert_eq!(cluster.status().unwrap().nodes[0].state, NodeState::Paused { pid });
    let error = request(first, OPTIONS, b"", Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    cluster.resume(1).unwrap();
    assert_eq!(request_options(first).unwrap(), SUPPORTED);

    let old = cluster.pid(2).unwrap();
    cluster.kill(2).unwrap();
    assert!(!Path::new(&format!("/proc/{old}")).exists());
    assert_eq!(cluster.status().unwrap().nodes[1].state, NodeState::Killed);
    let error = request_options(second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    cluster.wait_until_seen_down(2).unwrap();
    assert_eq!(cluster.status().unwrap().nodes[0].sees, [0; 0]);

    // Healing must resume one node and start the other.
    cluster.pause(1).unwrap();
    cluster.heal().unwrap();
    wait_until("the nodes see each other again", || sees(&cluster) == [[2], [1]]);
    assert_eq!(request_options(first).unwrap(), SUPPORTED);
    assert_eq!(request_options(second).unwrap(), SUPPORTED);
    assert_ne!(cluster.pid(2).unwrap(), old);
    let table = || cluster.nodetool(1, &["status"]).unwrap();
    wait_until("nodetool shows both nodes up", || table().matches("UN  127.0.0.2").count() == 2);

    let errors = [
        cluster.kill(3),
        cluster.wait_until_seen_down(1),
        // The nodes connect directly.
        cluster.cut(1, 2),
        cluster.isolate(1),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert!(matches!(error, ClusterError::Refused(_)), "{error}");
    }
    let directory = directory(&cluster);
    drop(cluster);
    wait_until_gone(&directory);
}

#[test]
#[ignore = "takes long; scripts/nightly runs it"]
fn partition_is_detected_and_healed() {
    let settings = BTreeMap::from([("phi_convict_threshold".to_owned(), "5".to_owned())]);
    let network = Network::Relayed;
    let options = ClusterOptions { nodes: 3, settings, network, ..options("test-cut", 23) };
    let cluster = Cluster::lease(options).unwrap();
    let [first, second, third] = cluster.nodes()[..] else { panic!("{:?}", cluster.nodes()) };
    assert_eq!(first.to_string(), "127.0.0.23:9042");
    for statement in [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "CREATE TABLE k.t (p int PRIMARY KEY)",
    ] {
        assert_eq!(query(first, statement, ONE).unwrap(), RESULT);
    }
    let write = |node, consistency| query(node, "INSERT INTO k.t (p) VALUES (0)", consistency);
    // Writes may time out while a node is busy.
    let works = |what, node, consistency| {
        wait_until(what, || write(node, consistency).unwrap() == RESULT);
    };
    for node in [first, second, third] {
        works("all nodes know the table", node, ALL);
    }

    cluster.isolate(3).unwrap();
    let pid_before = cluster.pid(3).unwrap();
    works("two nodes are a quorum", first, QUORUM);
    assert_eq!(write(third, QUORUM).unwrap(), ERROR);
    assert_eq!(cluster.status().unwrap().cut_links.len(), 4);
    cluster.wait_until_seen_down(3).unwrap();
    wait_until("node 3 sees no other node", || sees(&cluster) == [vec![2], vec![1], vec![]]);
    works("two nodes are still a quorum", second, QUORUM);
    assert_eq!(write(third, QUORUM).unwrap(), ERROR);
    works("node 3 serves itself", third, ONE);
    cluster.heal().unwrap();
    assert_eq!(cluster.pid(3).unwrap(), pid_before);
    assert_eq!(cluster.status().unwrap().cut_links, []);
    wait_until("all nodes see each other", || sees(&cluster) == [[2, 3], [1, 3], [1, 2]]);
    for node in [first, second, third] {
        works("the partition is healed", node, ALL);
    }

    // Only messages from node 1 to node 2 are held back.
    cluster.cut(1, 2).unwrap();
    assert_eq!(cluster.status().unwrap().cut_links, [Link { from: 1, to: 2 }]);
    assert_eq!(write(first, ALL).unwrap(), ERROR);
    works("the other links work", third, ALL);
    cluster.join().unwrap();
    works("the joined link works", first, ALL);

    // A write at ALL waits for a round trip, which is delayed in both directions.
    let delay = Duration::from_millis(300);
    for (from, to) in [(1, 3), (3, 1)] {
        cluster.delay(from, to, delay).unwrap();
    }
    let time_write = || {
        let started_at = Instant::now();
        (write(first, ALL).unwrap() == RESULT).then(|| started_at.elapsed())
    };
    wait_until("a delayed write succeeds", || {
        let took = time_write();
        assert!(took.is_none_or(|took| took >= delay * 2), "{took:?}");
        took.is_some()
    });
    cluster.heal().unwrap();
    let is_fast = || time_write().is_some_and(|took| took < delay * 2);
    wait_until("a write is faster than the former delays", is_fast);

    let errors = [
        cluster.cut(1, 4),
        cluster.cut(1, 1),
        cluster.isolate(4),
        cluster.delay(1, 4, delay),
        cluster.delay(1, 1, delay),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert!(matches!(error, ClusterError::Refused(_)), "{error}");
    }
}

#[test]
fn cluster_started_by_up_runs_until_down() {
    let name = ["--name", "test-up"];
    let run = |arguments: &[&str]| exit_code(&[arguments, &name].concat());
    let up = ["up", "1", "--auth", "--first-host", "28"];
    assert_eq!(run(&up), 0);
    let authentication = Authentication::Password;
    let options = ClusterOptions { authentication, ..options("test-up", 28) };
    let cluster = Cluster::lease(options).unwrap();
    let status = cluster.status().unwrap();
    assert!(status.stays);
    // A query without a login.
    assert_eq!(request(cluster.nodes()[0], QUERY, b"\0\0\0\0\0\x01\0", TIMEOUT).unwrap(), ERROR);
    let directory = directory(&cluster);

    assert_eq!(run(&["down"]), 1, "a lease is left");
    assert_eq!(run(&up), 0);
    drop(cluster);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(processes_below(&directory).len(), 1);
    assert_eq!(run(&["kill", "1"]), 0);
    assert!(processes_below(&directory).is_empty());
    assert_eq!(run(&["kill", "2"]), 1);
    assert_eq!(run(&["pause", "1"]), 1);
    assert_eq!(run(&["start", "1"]), 0);
    assert_eq!(processes_below(&directory).len(), 1);
    assert_eq!(run(&["down"]), 0);
    assert_eq!(run(&["down"]), 1);

    let saved_options =
        |directory: &Path| fs::read_to_string(directory.join("options.json")).unwrap();
    let before = saved_options(&directory);
    assert_eq!(
        run(&["up", "2", "--first-host", "28", "--keep"]),
        3,
        "the data is from another ring"
    );
    assert_eq!(saved_options(&directory), before);
}

#[test]
fn disposable_node_cannot_be_restarted() {
    let name = ["--name", "test-disposable", "--first-host", "31"];
    let run = |arguments: &[&str]| exit_code(&[arguments, &name[..2]].concat());
    let up = [&["up", "1", "--disposable"], &name[2..]].concat();
    assert_eq!(run(&up), 0);
    assert_eq!(run(&["kill", "1"]), 0);
    assert_eq!(run(&["start", "1"]), 1);
    assert_eq!(run(&["down"]), 0);
    assert_eq!(run(&[&up[..], &["--keep"]].concat()), 3, "a disposable cluster keeps no data");
    let up = [&["up", "1", "--keep"], &name[2..]].concat();
    assert_eq!(run(&up), 3, "the data may be incomplete");
}

#[test]
fn address_used_by_foreign_process_is_reported() {
    for (address, network) in
        [("127.0.0.29:9042", Network::Direct), ("127.1.0.29:7000", Network::Relayed)]
    {
        let _foreign = TcpListener::bind(address).unwrap();
        let options = ClusterOptions { network, ..options("test-foreign", 29) };
        let error = Cluster::lease(options).unwrap_err();
        assert!(matches!(error, ClusterError::NotStarted(_)), "{error}");
        assert!(error.to_string().contains(&format!("{address} is in use")), "{error}");
    }
}

#[test]
fn failed_start_quotes_node_log() {
    let settings = BTreeMap::from([("no_such_setting".to_owned(), "1".to_owned())]);
    let options = ClusterOptions { settings, ..options("test-broken", 30) };
    let error = Cluster::lease(options).unwrap_err();
    assert!(matches!(error, ClusterError::NotStarted(_)), "{error}");
    assert!(error.to_string().contains("[no_such_setting]"), "{error}");
}

#[test]
fn wrong_java_version_is_reported() {
    let directory = std::env::temp_dir().join(format!("wrong-java-{}", std::process::id()));
    let java = directory.join("bin/java");
    fs::create_dir_all(java.parent().unwrap()).unwrap();
    let version = "openjdk version \"21.0.4\" 2024-07-16";
    let picked_up = "Picked up JAVA_TOOL_OPTIONS: -Dx=y";
    fs::write(&java, format!("#!/bin/sh\nprintf '{picked_up}\\n{version}\\n' >&2\n")).unwrap();
    fs::set_permissions(&java, Permissions::from_mode(0o755)).unwrap();
    let up = ["up", "1", "--name", "test-java"];
    let output = program(&up).env("JAVA_HOME", &directory).output().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains(&format!("is {version}: ")), "{stderr}");
    assert!(!stderr.contains(picked_up), "{stderr}");
}

#[test]
fn exit_codes_distinguish_invalid_arguments_from_failures() {
    assert_eq!(exit_code(&["--help"]), 0);
    assert_eq!(exit_code(&["up", "6"]), 2);
    assert_eq!(exit_code(&["bogus"]), 2);
    for command in ["down", "status"] {
        assert_eq!(exit_code(&[command, "--name", "test-nothing"]), 1);
    }
    assert_eq!(exit_code(&["logs", "1", "--name", "test-nothing"]), 1);
}

fn options(name: &str, first_host: u8) -> ClusterOptions {
    ClusterOptions { name: name.to_owned(), first_host, ..ClusterOptions::default() }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cassandra-cluster"));
    command.args(arguments);
    command
}

fn exit_code(arguments: &[&str]) -> i32 {
    let Output { status, stderr, .. } = program(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    status.code().unwrap_or_else(|| panic!("{arguments:?} failed ({status}): {stderr}"))
}

/// The numbers of the nodes that each node sees up.
fn sees(cluster: &Cluster) -> Vec<Vec<u8>> {
    cluster.status().unwrap().nodes.into_iter().map(|node| node.sees).collect()
}

/// Requests the supported options, which needs no login, and returns the response's opcode.
fn request_options(node: SocketAddr) -> std::io::Result<u8> {
    request(node, OPTIONS, b"", TIMEOUT)
}

fn request(node: SocketAddr, opcode: u8, body: &[u8], timeout: Duration) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(node)?;
    stream.set_read_timeout(Some(timeout))?;
    exchange(&mut stream, opcode, body)
}

/// Sends a query without parameters, and returns the response's opcode.
fn query(node: SocketAddr, statement: &str, consistency: u8) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(node)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let version = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    assert_eq!(exchange(&mut stream, STARTUP, version)?, READY);
    let length = u32::try_from(statement.len()).unwrap().to_be_bytes();
    let body = [length.as_slice(), statement.as_bytes(), &[0, consistency, 0]].concat();
    exchange(&mut stream, QUERY, &body)
}

/// Sends a frame, reads the response and returns its opcode.
fn exchange(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> std::io::Result<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    stream.write_all(&[&[0x04, 0, 0, 0, opcode], length.as_slice(), body].concat())?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let [_, _, _, _, opcode, length @ ..] = header;
    stream.take(u32::from_be_bytes(length).into()).read_to_end(&mut Vec::new())?;
    Ok(opcode)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn directory(cluster: &Cluster) -> PathBuf {
    cluster.logs(1).parent().and_then(Path::parent).unwrap().to_owned()
}

/// The directory of a running cluster that this process has not leased.
fn directory_of(name: &str) -> PathBuf {
    let status = program(&["status", "--json", "--name", name]).output().unwrap().stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    let log = Path::new(status["nodes"][0]["log"].as_str().unwrap());
    log.parent().and_then(Path::parent).unwrap().to_owned()
}

/// The ids of the node processes with their data below `directory`.
fn processes_below(directory: &Path) -> Vec<u32> {
    let argument = format!("-Dcassandra.storagedir={}/", directory.display());
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&command).contains(&argument).then_some(pid)
    });
    pids.collect()
}

/// Waits until all nodes and the supervisor have exited.
fn wait_until_gone(directory: &Path) {
    let is_locked = || {
        let lock = fs::File::open(directory.join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
    };
    wait_until("all processes are gone", || !is_locked() && processes_below(directory).is_empty());
}

fn pid(raw: u32) -> Pid {
    i32::try_from(raw).ok().and_then(Pid::from_raw).unwrap()
}
