//! Who is at the other end of a connection.

use std::future::pending;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

/// Who is at the other end of a connection: a process of this machine, or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Peer {
    /// By its id, as the kernel says.
    Process(i32),
    /// At this address.
    Address(IpAddr),
}

/// A process, whose end can be waited for.
pub(super) enum Process {
    Running(AsyncFd<OwnedFd>),
    Ended,
    /// It can't be seen from here.
    Unknown,
}

impl Peer {
    /// The process at the other end.
    pub(super) fn process(self) -> Process {
        let Peer::Process(id) = self else { return Process::Unknown };
        let Some(id) = Pid::from_raw(id) else { return Process::Unknown };
        match pidfd_open(id, PidfdFlags::NONBLOCK) {
            Ok(process) =>
            {
                #[expect(deprecated, reason = "only for descriptors that may be closed meanwhile")]
                AsyncFd::new(process).map_or(Process::Unknown, Process::Running)
            }
            Err(Errno::SRCH) => Process::Ended,
            Err(_) => Process::Unknown,
        }
    }
}

impl Process {
    /// Waits until it has ended; if that can't be seen, it never returns.
    pub(super) async fn ended(self) {
        match self {
            // An error means that the runtime ends.
            Process::Running(process) => drop(process.readable().await),
            Process::Ended => {}
            Process::Unknown => pending().await,
        }
    }
}
