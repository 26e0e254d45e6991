//! What monitoring reads over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustix::process::Signal;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::pace;

use super::operation::{refused, users_file};
use super::{Daemon, LONG};
use crate::command::{Tool, line};

/// An answer: its status line, and its text.
#[derive(Debug)]
struct Answer {
    status: String,
    text: String,
}

/// Where a daemon answers. It says so behind the line that says where it serves.
async fn monitor(daemon: &mut Daemon, scheme: &str) -> SocketAddr {
    let said = line(daemon.child.stderr.as_mut()).await;
    let address = said
        .split_once(&format!("metrics at {scheme}://"))
        .and_then(|(_, rest)| rest.strip_suffix("/metrics")?.parse().ok());
    address.unwrap_or_else(|| panic!("it says {said}"))
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(pace::limit())).expect("it is a timeout");
    stream
}

fn ask(mut stream: impl Read + Write, path: &str, header: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).expect("the daemon reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and closes the connection");
    let (head, text) = answer.split_once("\r\n\r\n").expect("it has a head");
    let status = head.lines().next().unwrap_or_default();
    Answer { status: status.to_owned(), text: text.to_owned() }
}

fn get(address: SocketAddr, path: &str) -> Answer {
    ask(connected(address), path, "")
}

/// Reads the metrics until they have all these lines.
fn until_shown(address: SocketAddr, lines: &[&str]) {
    let began = std::time::Instant::now();
    loop {
        let Answer { status, text } = get(address, "/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        let missing: Vec<_> =
            lines.iter().filter(|line| !text.lines().any(|it| it == **line)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(began.elapsed() < pace::limit(), "{missing:?} are not in\n{text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

// Goal: the metrics count what clients do, and those of the library are with them.
// Method: a lock of each kind, one that is waited for, errors, a script that no one knows.
#[tokio::test]
async fn metrics_show_what_clients_do() {
    let options = ["--metrics-listen", "127.0.0.1:0", "--max-connections", "2"];
    let mut daemon = Daemon::with("lockd_metrics", &options).await;
    let address = monitor(&mut daemon, "http").await;
    let (mut one, mut other) = (daemon.connect(), daemon.connect());
    one.done(&["LOCK", "bound"]);
    one.done(&["SET", "timed", "one", "NX", "PX", LONG]);
    one.done(&["SET", "endless", "one", "NX"]);
    one.call(&["EVAL", "return 7", "0"]).error();
    one.call(&["FLUSHALL"]).error();
    one.call(&["LOCK", "timed", "WAIT", "1"]).error();
    other.send(&["LOCK", "bound", "WAIT", LONG]);
    assert!(daemon.connect().reply().error().starts_with("LIMIT "));
    until_shown(
        address,
        &[
            "bakery_lockd_connections 2",
            "bakery_lockd_connections_accepted_total 3",
            "bakery_lockd_connections_refused_total 1",
            "bakery_lockd_commands_total{command=\"lock\"} 3",
            "bakery_lockd_commands_total{command=\"set\"} 2",
            "bakery_lockd_commands_total{command=\"other\"} 1",
            "bakery_lockd_refused_total{reason=\"ERR\"} 2",
            "bakery_lockd_refused_total{reason=\"LOCKFAILED\"} 1",
            "bakery_lockd_refused_total{reason=\"NOLOCK\"} 0",
            "bakery_lockd_unknown_scripts_total 1",
            "bakery_lockd_pending 1",
            "bakery_lockd_held{kind=\"connection\"} 1",
            "bakery_lockd_held{kind=\"time\"} 1",
            "bakery_lockd_held{kind=\"process\"} 1",
            "bakery_lockd_granted_total 3",
            "bakery_lock_held 3",
            "bakery_lock_waiting 1",
        ],
    );
    one.done(&["UNLOCK", "timed", "one"]);
    drop(one);
    until_shown(
        address,
        &[
            "bakery_lockd_connections 1",
            "bakery_lockd_pending 0",
            // It has passed to the connection that waited.
            "bakery_lockd_held{kind=\"connection\"} 1",
            "bakery_lockd_held{kind=\"time\"} 0",
        ],
    );
    assert!(get(address, "/metrics").text.contains("bakery_lock_wait_seconds_bucket{le=\"0.05\"}"));
    assert_eq!(get(address, "/").status, "HTTP/1.1 404 Not Found");
}

// Goal: a connection that does not read its messages is closed, and counted.
// Method: a subscriber that reads nothing, and more messages than may wait.
#[tokio::test]
async fn metrics_show_slow_readers() {
    let mut daemon = Daemon::with("lockd_slow_metrics", &["--metrics-listen", "127.0.0.1:0"]).await;
    let address = monitor(&mut daemon, "http").await;
    let (mut slow, mut other) = (daemon.connect(), daemon.connect());
    slow.done(&["SUBSCRIBE", "news"]);
    let message = "m".repeat(60_000);
    while other.done(&["PUBLISH", "news", &message]).number() == 1 {}
    until_shown(address, &["bakery_lockd_slow_readers_total 1", "bakery_lockd_connections 1"]);
}

// Goal: whoever sends clients here learns whether that makes sense.
// Method: a daemon that serves, and then drains because a lock is held.
#[tokio::test]
async fn readiness_ends_with_term() {
    let mut daemon = Daemon::with("lockd_ready", &["--metrics-listen", "127.0.0.1:0"]).await;
    let address = monitor(&mut daemon, "http").await;
    let ready = get(address, "/ready");
    assert_eq!((ready.status.as_str(), ready.text.as_str()), ("HTTP/1.1 200 OK", "ready\n"));
    let mut client = daemon.connect();
    client.done(&["LOCK", "a", "OWNER", "one"]);
    daemon.send(Signal::TERM);
    // The signal is on its way.
    let began = std::time::Instant::now();
    while get(address, "/ready").text == "ready\n" {
        assert!(began.elapsed() < pace::limit(), "it stays ready");
    }
    let ready = get(address, "/ready");
    assert_eq!(ready.status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(ready.text, "this daemon is about to end\n");
    let status = client.done(&["LOCKSTATUS"]).text();
    assert_eq!(status, "NOLOCK this daemon is about to end");
    client.done(&["UNLOCK", "a", "one"]);
    assert_eq!(daemon.ended().await, Some(0));
}

// Goal: other machines can't read the metrics without a password, nor without encryption.
// Method: an open address is refused; a daemon with both is asked without and with a password.
#[tokio::test]
async fn metrics_for_other_machines_take_tls_and_a_password() {
    let tool = Tool::new("lockd_open_metrics").await;
    let answer = refused(&tool, &["--metrics-listen", "0.0.0.0:0"]).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("--tls-server-cert"), "{answer:?}");

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("it is a name");
    let directory = tempfile::tempdir().expect("there is room");
    let written = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("there is room");
        path.into_os_string().into_string().expect("it is text")
    };
    let certificate = written("crt", made.cert.pem());
    let key = written("key", made.signing_key.serialize_pem());
    let users = users_file("default secret\n");
    let users = users.path().to_str().expect("it is text");
    let files = ["--users", users, "--tls-server-cert", &certificate, "--tls-server-key", &key];
    let options = [["--metrics-listen", "0.0.0.0:0"].as_slice(), &files].concat();
    let mut daemon = Daemon::with("lockd_tls_metrics", &options).await;
    let port = monitor(&mut daemon, "https").await.port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let asked = |header| ask(encrypted(address, Path::new(&certificate)), "/metrics", header);
    // default:secret and default:wrong
    let answer = asked("Authorization: Basic ZGVmYXVsdDpzZWNyZXQ=\r\n");
    assert_eq!(answer.status, "HTTP/1.1 200 OK", "{answer:?}");
    assert!(answer.text.contains("bakery_lockd_connections 0"), "{answer:?}");
    for header in ["", "Authorization: Basic ZGVmYXVsdDp3cm9uZw==\r\n"] {
        assert_eq!(asked(header).status, "HTTP/1.1 401 Unauthorized", "{header}");
    }
}

fn encrypted(address: SocketAddr, trusted: &Path) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(trusted).expect("it is a certificate");
    roots.add(trusted).expect("it is one");
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("it is a name");
    let client = ClientConnection::new(Arc::new(tls), name).expect("it is a configuration");
    StreamOwned::new(client, connected(address))
}
