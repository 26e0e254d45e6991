//! The sockets that carry connections: TCP, and between processes of one machine a Unix socket,
//! which costs the kernel half as much and passes no firewall.
//!
//! The Unix socket has an abstract name (unix(7)), made of the keeper's public key: nothing is left
//! of it in the file system, and containers with networks of their own don't find it. Any program
//! of the machine may connect, or listen there before the keeper does; both sides prove who they
//! are in any case.

use std::future::Future;
use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::super::wire::{PublicKey, Stream};

/// Bytes that come.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Bytes that go.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A stream of either kind.
pub(crate) struct Socket {
    reader: Reader,
    writer: Writer,
}

impl Socket {
    /// A connection over the network, whose messages are not delayed.
    pub(super) fn tcp(stream: TcpStream) -> Self {
        // It fails for one that has ended, which the first read says as well.
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        Socket { reader: Box::new(reader), writer: Box::new(writer) }
    }
}

impl Stream for Socket {
    type Reader = Reader;
    type Writer = Writer;

    fn directions(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }
}

/// Where guests connect.
pub(super) trait Accept: Send + Sync {
    /// The next connection, and the address of its other end.
    fn accept(&self) -> impl Future<Output = io::Result<(Socket, IpAddr)>> + Send;
}

impl Accept for TcpListener {
    async fn accept(&self) -> io::Result<(Socket, IpAddr)> {
        let (stream, from) = TcpListener::accept(self).await?;
        Ok((Socket::tcp(stream), from.ip()))
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{LocalListener, connect_locally, listen_locally};
#[cfg(not(target_os = "linux"))]
pub(crate) use none::{LocalListener, connect_locally, listen_locally};

#[cfg(target_os = "linux")]
mod linux {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::net::{UnixListener, UnixStream};

    use super::super::unix_stream;
    use super::{Accept, PublicKey, Socket, io};

    /// Where guests of this machine connect.
    pub(crate) type LocalListener = UnixListener;

    /// Listens for guests of this machine, as the keeper with this key.
    ///
    /// # Errors
    ///
    /// Those of the system: another program may have the name.
    pub(crate) fn listen_locally(key: &PublicKey) -> io::Result<LocalListener> {
        UnixListener::bind(name(key))
    }

    /// Connects to the keeper with this key, if it is on this machine.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(crate) async fn connect_locally(key: &PublicKey) -> io::Result<Socket> {
        UnixStream::connect(name(key)).await.and_then(Socket::local)
    }

    impl Socket {
        /// A connection within this machine.
        ///
        /// # Errors
        ///
        /// Those of [`unix_stream::split`].
        fn local(stream: UnixStream) -> io::Result<Self> {
            let (reader, writer) = unix_stream::split(stream)?;
            Ok(Socket { reader: Box::new(reader), writer: Box::new(writer) })
        }
    }

    impl Accept for UnixListener {
        async fn accept(&self) -> io::Result<(Socket, IpAddr)> {
            let (stream, _) = UnixListener::accept(self).await?;
            Ok((Socket::local(stream)?, Ipv4Addr::LOCALHOST.into()))
        }
    }

    fn name(key: &PublicKey) -> String {
        let key: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\0bakery-lock/{key}")
    }
}

/// Elsewhere there are no abstract names.
#[cfg(not(target_os = "linux"))]
mod none {
    use std::net::IpAddr;

    use super::{Accept, PublicKey, Socket, io};

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum LocalListener {}

    impl Accept for LocalListener {
        async fn accept(&self) -> io::Result<(Socket, IpAddr)> {
            match *self {}
        }
    }

    /// # Errors
    ///
    /// Always.
    pub(crate) fn listen_locally(_: &PublicKey) -> io::Result<LocalListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// # Errors
    ///
    /// Always.
    pub(crate) async fn connect_locally(_: &PublicKey) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
