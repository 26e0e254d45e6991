//! The life of the daemon: it connects, serves until a signal, and ends without breaking what it
//! has promised.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bakery_lock::{CancellationToken, LockClient};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::NAME;
use super::adopt::adopt;
use super::boot::Boot;
use super::daemon::{Counts, Daemon, PromiseTerms, RELEASES_AT_ONCE};
use super::exporter::Exporter;
use super::hub::Hub;
use super::journal::Journal;
use super::latches::Latches;
use super::limits::Limits;
use super::listen::{Serving, unix_listener};
use super::locks::{Locks, Term};
use super::monitor::Monitor;
use super::options::{LongTtl, ServeOptions};
use super::scripts::Scripts;
use super::users::Users;
use crate::connect::{ConnectOptions, certificates, private_key, unusable};
use crate::failure::Failure;
use crate::host::{not_built, shut_down};
use crate::outage::explained;
use crate::output;
use crate::signals::Signals;

/// How long rows live by default, as the library has it.
const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How often the end looks whether locks are still held.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// Options that don't fit together.
#[derive(Debug, thiserror::Error)]
enum OptionsError {
    #[error(
        "{0} can be reached from other machines: it needs --users, and --tls-server-cert with \
         --tls-server-key"
    )]
    Open(SocketAddr),
}

/// Serves until a signal ends it.
pub(super) async fn serve(
    connection: &ConnectOptions,
    options: ServeOptions,
) -> Result<(), Failure> {
    let mut signals = Signals::that_end()?;
    raise_limit_of_descriptors();
    let users = users(&options)?;
    let tls = tls(&options)?;
    // Before the client, which looks for a recorder as it is built.
    let monitoring = monitoring(&options).await?;
    let database = signals.or(connection.connect()).await?;
    let builder = options.host.builder(&database, connection, options.ttl);
    let builder = match &options.peers.0 {
        Some(peers) => builder.peers(peers.clone()),
        None => builder,
    };
    let build = Box::pin(async { builder.build().await.map_err(not_built) });
    let client = signals.or(explained(&database, connection, build)).await?;
    let daemon = Arc::new(daemon(client, connection, &options, users).await?);

    // Before clients ask for them.
    adopt(&daemon);
    let (connections, closing) = (TaskTracker::new(), CancellationToken::new());
    let serving = Serving { daemon: Arc::clone(&daemon), connections, closing };
    let addresses = listen(&serving, &options, tls.clone()).await?;
    report_ready(&options, &addresses);
    if let Some((exporter, listener)) = monitoring {
        monitor(&daemon, exporter, listener, tls);
    }
    signals.next().await;

    serving.closing.cancel();
    end(&daemon, &options, &mut signals).await;
    // The lock of its journal ends with the process, not before: until then it may still write.
    std::mem::forget(daemon);
    Ok(())
}

/// Each connection takes a descriptor, and by default a process gets no more than a thousand.
fn raise_limit_of_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // One that is refused leaves what there was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn daemon(
    client: LockClient,
    connection: &ConnectOptions,
    options: &ServeOptions,
    users: Users,
) -> Result<Daemon, Failure> {
    let ttl = options.ttl.or(connection.settings.ttl).unwrap_or(TTL_DEFAULT);
    let terms = PromiseTerms::of(&client, ttl, options.long_ttl == LongTtl::Renew).await?;
    let limits = Limits {
        endless_over_tcp: options.endless_over_tcp,
        connections: options.max_connections,
        locks: options.max_locks,
        ..Limits::default()
    };
    Ok(Daemon {
        journal: journal(&client, connection, options)?,
        client,
        locks: Locks::default(),
        releases: Arc::new(Semaphore::new(RELEASES_AT_ONCE)),
        hub: Hub::default(),
        latches: Latches::default(),
        scripts: Scripts::new(options.script.iter().copied()),
        users,
        limits,
        terms,
        counts: Counts::default(),
        started: Boot::now(),
        is_ending: AtomicBool::new(false),
    })
}

fn journal(
    client: &LockClient,
    connection: &ConnectOptions,
    options: &ServeOptions,
) -> Result<Journal, Failure> {
    let Some(path) = options.journal_path() else { return Ok(Journal::off()) };
    let ConnectOptions { lock_table, settings, .. } = connection;
    let prefix = settings.prefix.as_deref().unwrap_or_default();
    let table = format!("{} {lock_table} {prefix}", connection.registry_options());
    Journal::begin(path, client.id(), &table).map_err(Failure::system("the journal can't be made"))
}

fn users(options: &ServeOptions) -> Result<Users, Failure> {
    let Some(path) = &options.users else { return Ok(Users::everyone()) };
    Users::from_file(path).map_err(|error| Failure::Usage(Box::new(error)))
}

fn tls(options: &ServeOptions) -> Result<Option<Arc<ServerConfig>>, Failure> {
    let mut addresses = options.listen.iter().chain(&options.metrics_listen);
    let is_open = addresses.find(|address| !address.ip().is_loopback());
    let (Some(certificate), Some(key)) = (&options.tls_server_cert, &options.tls_server_key) else {
        return match is_open {
            Some(address) => Err(usage(OptionsError::Open(*address))),
            None => Ok(None),
        };
    };
    if let (Some(address), None) = (is_open, &options.users) {
        return Err(usage(OptionsError::Open(*address)));
    }
    server_config(certificate, key).map(Some)
}

fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Failure> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(certificate, error))?
        .with_no_client_auth()
        .with_single_cert(certificates(certificate)?, private_key(key)?)
        .map_err(|error| unusable(certificate, error))?;
    Ok(Arc::new(config))
}

fn usage(error: OptionsError) -> Failure {
    Failure::Usage(Box::new(error))
}

/// What records from now on, and where it is asked for.
async fn monitoring(options: &ServeOptions) -> Result<Option<(Exporter, TcpListener)>, Failure> {
    let Some(address) = options.metrics_listen else { return Ok(None) };
    let listener = tcp_listener(address).await?;
    let exporter = Exporter::install()
        .map_err(|error| Failure::system("metrics can't be recorded")(io::Error::other(error)))?;
    Ok(Some((exporter, listener)))
}

fn monitor(
    daemon: &Arc<Daemon>,
    exporter: Exporter,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
) {
    if let Ok(address) = listener.local_addr() {
        let scheme = if tls.is_some() { "https" } else { "http" };
        output::note(&format!("{NAME}: metrics at {scheme}://{address}/metrics"));
    }
    tokio::spawn(exporter.clone().keep_up());
    tokio::spawn(Monitor { daemon: Arc::clone(daemon), exporter }.serve(listener, tls));
}

async fn tcp_listener(address: SocketAddr) -> Result<TcpListener, Failure> {
    let refused = Failure::system("the address can't be listened at");
    TcpListener::bind(address).await.map_err(refused)
}

async fn listen(
    serving: &Serving,
    options: &ServeOptions,
    tls: Option<Arc<ServerConfig>>,
) -> Result<Vec<SocketAddr>, Failure> {
    let mut addresses = Vec::new();
    for address in &options.listen {
        let listener = tcp_listener(*address).await?;
        addresses.extend(listener.local_addr());
        tokio::spawn(serving.clone().tcp(listener, tls.clone()));
    }
    let listener = unix_listener(&options.socket, options.socket_mode)?;
    tokio::spawn(serving.clone().unix(listener));
    Ok(addresses)
}

/// Informs the service manager, and people.
fn report_ready(options: &ServeOptions, addresses: &[SocketAddr]) {
    let socket = options.socket.display().to_string();
    let all = [socket].into_iter().chain(addresses.iter().map(SocketAddr::to_string));
    output::note(&format!("{NAME}: serves at {}", all.collect::<Vec<_>>().join(" and ")));
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        output::warn(&format!("the service manager does not know that it is ready: {error}"));
    }
}

/// Ends the daemon: no further lock is granted, and those that are held have some time to end. What
/// is promised for a time stays in the table for it.
async fn end(daemon: &Arc<Daemon>, options: &ServeOptions, signals: &mut Signals) {
    // The service manager waits in any case.
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    daemon.refuse_all();
    let until = Boot::now().after(options.drain);
    while daemon.locks.counts().own() > 0 && !until.left().is_zero() {
        tokio::select! {
            _ = signals.next() => break,
            () = tokio::time::sleep(DRAIN_LOOK) => {}
        }
    }
    // Their owners can't learn of anything any more.
    let all = daemon.locks.all().into_iter();
    daemon.release_all(all.filter(|held| !matches!(held.term(), Term::Until(_)))).await;
    leave(daemon);
    if daemon.locks.counts().own() == 0 {
        shut_down(&daemon.client).await;
    }
}

/// Leaves what is promised for a time to the next daemon. No other task runs meanwhile, so none
/// releases a lock of which the journal says that it is held.
fn leave(daemon: &Daemon) {
    let locks = daemon.locks.counts();
    if locks.own() + locks.adopted == 0 {
        return daemon.journal.remove();
    }
    daemon.journal.leave();
    for held in daemon.locks.all() {
        held.abandon();
    }
    if locks.own() > 0 {
        let kept = locks.own();
        output::note(&format!("{NAME}: {kept} locks stay taken until their rows expire"));
    }
}
