//! Relays that make servers farther away: each byte is as much later, in either direction.
//!
//! The kernel can do that where it has `netem`, which not every kernel has. Tokio's timers count
//! milliseconds, so a relay waits by a timer of the kernel.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use support::monotonic::now;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// How much is read at a time.
const CHUNK: usize = 16 * 1024;

/// How many chunks may be on their way in one direction of a connection.
const UNDER_WAY: usize = 1_024;

/// A relay in front of one server, on a thread of its own. It ends with this value.
pub(crate) struct Relay {
    listens: SocketAddr,
    /// For how long bytes are kept, in nanoseconds.
    delay: Arc<AtomicU64>,
    _ends: oneshot::Sender<()>,
}

impl Relay {
    /// Starts one that passes on at once what goes to a server, and what comes back.
    pub(crate) fn start(listens: SocketAddr, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(listens).with_context(|| format!("relay at {listens}"))?;
        listener.set_nonblocking(true)?;
        let (ends, is_over) = oneshot::channel::<()>();
        let delay = Arc::new(AtomicU64::new(0));
        let accepting = accept(listener, server, Arc::clone(&delay));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        thread::Builder::new().name("relay".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    ended = accepting => ended.expect("there are sockets"),
                    _ = is_over => {}
                }
            });
        })?;
        Ok(Relay { listens, delay, _ends: ends })
    }

    /// Keeps bytes for this long from now on, in either direction.
    pub(crate) fn set_delay(&self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.delay.store(nanos, Ordering::Relaxed);
    }

    /// Where clients connect.
    pub(crate) fn listens(&self) -> SocketAddr {
        self.listens
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, delay: Arc<AtomicU64>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        // A connection that breaks, or can't be made, is closed: that is how its client learns it.
        tokio::spawn(serve(client, server, Arc::clone(&delay)));
    }
}

/// Relays a connection until either side closes it.
async fn serve(client: TcpStream, server: SocketAddr, delay: Arc<AtomicU64>) -> Result<()> {
    let server = TcpStream::connect(server).await?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = pass(from_client, to_server, &delay) => ended,
        ended = pass(from_server, to_client, &delay) => ended,
    }
}

/// Passes bytes in one direction: each chunk is written the delay after it was read.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: &AtomicU64) -> Result<()> {
    let (sender, mut chunks) = mpsc::channel::<(u64, Vec<u8>)>(UNDER_WAY);
    let timer = Timer::new()?;
    let reading = async move {
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = from.read(&mut chunk).await?;
            // The end of the stream is as late: a chunk without bytes.
            let due = now().saturating_add(delay.load(Ordering::Relaxed));
            let is_over = sender.send((due, chunk[..length].to_vec())).await.is_err();
            if length == 0 || is_over {
                return anyhow::Ok(());
            }
        }
    };
    let writing = async move {
        while let Some((due, chunk)) = chunks.recv().await {
            timer.wait_until(due).await?;
            to.write_all(&chunk).await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(reading, writing)?;
    Ok(())
}

/// A timer of the kernel, precise to some microseconds.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(deprecated, reason = "its successor is unsafe, and an `OwnedFd` stays open")]
        Ok(Timer(AsyncFd::new(timer)?))
    }

    /// Waits until a moment of the monotonic clock, in nanoseconds.
    async fn wait_until(&self, due: u64) -> Result<()> {
        let billion = 1_000_000_000;
        let it_value = Timespec {
            tv_sec: i64::try_from(due / billion)?,
            tv_nsec: i64::try_from(due % billion)?,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval, it_value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &time)?;
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut [0; 8])?));
            match read {
                Ok(expired) => return Ok(expired.map(drop)?),
                Err(_would_block) => {}
            }
        }
    }
}
