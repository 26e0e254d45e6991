//! Who is at the other end of a connection.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

/// How soon a process is looked for again while no descriptor is left to watch it by.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Who is at the other end of a connection: a process of this machine, or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Peer {
    /// By its id, as the kernel says.
    Process(i32),
    /// At this address.
    Address(IpAddr),
    /// A process of this machine that has no id here, because it runs in another container.
    Unseen,
}

/// A process, whose end can be waited for.
pub(super) enum Process {
    Running(AsyncFd<OwnedFd>),
    Ended,
    /// No descriptor is left to watch it by.
    Unwatched(Pid),
}

impl Peer {
    /// The process with this id, as the kernel gives it: none, or 0, if it can't be seen from here.
    pub(super) fn of_process(id: Option<i32>) -> Self {
        id.filter(|id| *id > 0).map_or(Peer::Unseen, Peer::Process)
    }

    /// Whether both are the same process, or at the same address.
    pub(super) fn is_same(self, other: Peer) -> bool {
        self == other && self != Peer::Unseen
    }

    /// The process at the other end, if it can be seen.
    pub(super) fn process(self) -> Option<Process> {
        match self {
            Peer::Process(id) => Pid::from_raw(id).map(Process::of),
            Peer::Address(_) | Peer::Unseen => None,
        }
    }
}

impl Process {
    fn of(id: Pid) -> Self {
        let watched = match pidfd_open(id, PidfdFlags::NONBLOCK) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Process::Ended,
            Err(_) => return Process::Unwatched(id),
        };
        #[expect(deprecated, reason = "only for descriptors that may be closed meanwhile")]
        AsyncFd::new(watched).map_or(Process::Unwatched(id), Process::Running)
    }

    /// Waits until it has ended.
    pub(super) async fn ended(self) {
        let mut process = self;
        loop {
            process = match process {
                // An error means that the runtime ends.
                Process::Running(process) => return drop(process.readable().await),
                Process::Ended => return,
                Process::Unwatched(id) => {
                    sleep(LOOK_PAUSE).await;
                    Process::of(id)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn peers_without_an_id_are_not_the_same() {
        let one = Peer::of_process(Some(7));
        assert!(one.is_same(Peer::Process(7)) && !one.is_same(Peer::Process(8)));
        for id in [None, Some(0)] {
            let unseen = Peer::of_process(id);
            assert!(!unseen.is_same(Peer::of_process(id)), "they may be two processes");
            assert!(unseen.process().is_none());
        }
    }

    #[tokio::test]
    async fn end_of_a_process_is_noticed() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).spawn().expect("cat can be started");
        let id = i32::try_from(child.id()).expect("ids are small");
        let process = Peer::of_process(Some(id)).process().expect("it can be seen");
        let unwatched = Process::Unwatched(Pid::from_raw(id).expect("no id is 0"));
        assert!(matches!(process, Process::Running(_)));
        drop(child.stdin.take());
        process.ended().await;
        child.wait().expect("it has ended");
        unwatched.ended().await;
    }
}
