//! Who is at the other end of a connection.

use std::net::IpAddr;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Who is at the other end of a connection: a process of this machine, or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// By its id, as the kernel says.
    Process(i32),
    /// At this address.
    Address(IpAddr),
}

impl Peer {
    /// Waits until the process has ended. `None` if it is of another machine, or has ended already.
    pub(super) fn end(self) -> Option<impl Future<Output = ()> + Send> {
        let Peer::Process(id) = self else { return None };
        let process = pidfd_open(Pid::from_raw(id)?, PidfdFlags::NONBLOCK).ok()?;
        #[expect(deprecated, reason = "only for descriptors that may be closed meanwhile")]
        let ended = tokio::io::unix::AsyncFd::new(process).ok()?;
        Some(async move {
            // An error means that the runtime ends.
            let _ = ended.readable().await;
        })
    }
}
