//! The channel from `lockctl` to the guardian of a command.
//!
//! It takes the place of the guardian's standard input, so the command inherits no descriptor of
//! it. The standard input for the command comes with the first deadline.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::guardian::DEADLINE_BYTES;

/// Sends the first deadline, and this process's standard input.
pub(super) fn send_with_stdin(
    channel: &UnixStream,
    deadline: [u8; DEADLINE_BYTES],
) -> io::Result<()> {
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // There is space for one descriptor.
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(channel, &[IoSlice::new(&deadline)], &mut control, SendFlags::empty())?;
    Ok(())
}

/// The guardian's end of the channel, the first deadline, and the command's standard input.
pub(super) fn receive() -> io::Result<(UnixStream, [u8; DEADLINE_BYTES], OwnedFd)> {
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut deadline = [0; DEADLINE_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = {
        let mut parts = [IoSliceMut::new(&mut deadline)];
        recvmsg(&channel, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?
    };
    let stdin = control.drain().find_map(|message| {
        let RecvAncillaryMessage::ScmRights(mut descriptors) = message else { return None };
        descriptors.next()
    });
    match stdin {
        Some(stdin) if received.bytes == DEADLINE_BYTES => Ok((channel, deadline, stdin)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
