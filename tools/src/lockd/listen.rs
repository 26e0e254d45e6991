//! Where clients connect: a socket of the file system, and addresses.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bakery_lock::CancellationToken;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::connection::serve;
use super::daemon::Daemon;
use super::pace::Pace;
use super::peer::Peer;
use super::unix_stream::Stream;
use crate::failure::Failure;

/// After this much silence a client is asked whether it is there, and again after each interval.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// What it costs to accept a client and to see it off.
const CONNECTION_COST: Duration = Duration::from_micros(60);

/// A TLS client must have introduced itself within this time.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// After this time it is tried again to accept connections, if there was no descriptor for one.
pub(super) const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves the clients of all listeners.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) daemon: Arc<Daemon>,
    pub(super) connections: TaskTracker,
    /// No further client is accepted once this is cancelled.
    pub(super) closing: CancellationToken,
}

impl Serving {
    /// Serves those that connect to a socket of the file system.
    pub(super) async fn unix(self, listener: UnixListener) {
        let mut pace = Pace::default();
        while let Some(accepted) = self.next(&mut pace, listener.accept()).await {
            match accepted {
                Ok((stream, _)) => self.begin_unix(stream).await,
                // There is no descriptor left for it, or it has gone by now.
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    /// Serves those that connect to an address, over TLS if there is a configuration for it.
    pub(super) async fn tcp(self, listener: TcpListener, tls: Option<Arc<ServerConfig>>) {
        let tls = tls.map(TlsAcceptor::from);
        let mut pace = Pace::default();
        while let Some(accepted) = self.next(&mut pace, listener.accept()).await {
            match accepted {
                Ok((stream, address)) => self.begin_tcp(stream, address, tls.clone()).await,
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    /// The next client; `None` once no further one is accepted. Those that come one after the other
    /// leave time for those that are there.
    async fn next<T>(&self, pace: &mut Pace, accept: impl Future<Output = T>) -> Option<T> {
        pace.rest().await;
        let began = Instant::now();
        let accepted = self.closing.run_until_cancelled(accept).await;
        pace.waited(began.elapsed(), false);
        pace.worked(CONNECTION_COST);
        accepted
    }

    async fn begin_unix(&self, mut stream: UnixStream) {
        let Some(id) = self.admitted() else {
            return refuse(&mut stream).await;
        };
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let peer = Peer::of_process(process);
        let daemon = Arc::clone(&self.daemon);
        // It ends at once if there is no descriptor left for it.
        let Ok(mut stream) = Stream::new(stream) else { return };
        self.connections.spawn(async move {
            let (read, write) = stream.split();
            serve(daemon, id, peer, read, write).await;
        });
    }

    async fn begin_tcp(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
    ) {
        let Some(id) = self.admitted() else {
            return refuse(&mut stream).await;
        };
        // One that is dead is noticed later then.
        let _ = stream.set_nodelay(true);
        let _ = set_socket_keepalive(&stream, true);
        let _ = set_tcp_keepidle(&stream, KEEPALIVE_IDLE);
        let _ = set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL);
        let (daemon, peer) = (Arc::clone(&self.daemon), Peer::Address(address.ip()));
        self.connections.spawn(async move {
            let Some(tls) = tls else {
                let (read, write) = stream.split();
                return serve(daemon, id, peer, read, write).await;
            };
            let accepting = tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream));
            if let Ok(Ok(stream)) = accepting.await {
                let (read, write) = tokio::io::split(stream);
                serve(daemon, id, peer, read, write).await;
            }
        });
    }

    /// The number of a connection; `None` if there are too many.
    fn admitted(&self) -> Option<u64> {
        let number = self.daemon.counts.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let is_admitted = self.connections.len() < self.daemon.limits.connections;
        if !is_admitted {
            self.daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted.then_some(number)
    }
}

async fn refuse(stream: &mut (impl AsyncWriteExt + Unpin)) {
    // It may have gone.
    let _ = stream.write_all(b"-LIMIT max number of clients reached\r\n").await;
}

/// Listens at a path. The socket takes the place of an earlier one in one step, so that no client
/// finds none: that of a daemon which is to end, or has ended.
///
/// # Errors
///
/// The directory is missing or can't be written, or something else is at the path.
pub(super) fn unix_listener(path: &Path, mode: u32) -> Result<UnixListener, Failure> {
    use std::os::unix::fs::FileTypeExt;
    let refused = Failure::system("the socket can't be made");
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let cause = io::Error::new(io::ErrorKind::AlreadyExists, "something else is there");
        return Err(refused(cause));
    }
    let new = temporary(path);
    let listen = || {
        // Of a daemon with the same process id, which has ended.
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(mode))?;
        fs::rename(&new, path)?;
        Ok(listener)
    };
    listen().map_err(refused)
}

/// A path in the same directory, for a moment.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}
