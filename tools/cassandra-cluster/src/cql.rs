//! Probes whether a node serves clients and knows the ring, with a minimal client for version 4 of
//! the CQL native protocol.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A local node answers within milliseconds unless it is busy starting.
const TIMEOUT: Duration = Duration::from_millis(1000);

const REQUEST_VERSION: u8 = 0x04;
const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const AUTH_RESPONSE: u8 = 0x0f;
const AUTH_SUCCESS: u8 = 0x10;

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The node accepted queries.
    Serving {
        /// The number of other nodes whose tokens the node knew.
        peers: i64,
    },
    /// The node required a password and rejected the default one.
    PasswordRejected,
}

/// Connects to a node, logs in as `cassandra` if it requires a password, and counts the peers whose
/// tokens it knows.
///
/// A node may see another node up before it knows that node's tokens. Until it knows them, it does
/// not choose that node as a replica.
///
/// # Errors
///
/// The reason why the node did not answer. Each of at most four steps takes at most about a second.
pub(crate) fn probe(node: SocketAddr) -> io::Result<ProbeResult> {
    let mut stream = TcpStream::connect_timeout(&node, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    match exchange(&mut stream, STARTUP, &startup_body())?.opcode {
        READY => {}
        AUTHENTICATE => match exchange(&mut stream, AUTH_RESPONSE, &login_body())?.opcode {
            AUTH_SUCCESS => {}
            ERROR => return Ok(ProbeResult::PasswordRejected),
            opcode => return Err(unexpected(opcode)),
        },
        opcode => return Err(unexpected(opcode)),
    }
    let response = exchange(&mut stream, QUERY, &peers_body())?;
    // The frame ends with the only column of the only row, a 64-bit number.
    match (response.opcode, response.body.last_chunk()) {
        (RESULT, Some(&count)) => Ok(ProbeResult::Serving { peers: i64::from_be_bytes(count) }),
        (opcode, _) => Err(unexpected(opcode)),
    }
}

struct Frame {
    opcode: u8,
    body: Vec<u8>,
}

fn exchange(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<Frame> {
    stream.write_all(&frame(opcode, body))?;
    read_frame(stream)
}

fn read_frame(stream: &mut TcpStream) -> io::Result<Frame> {
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let [_, _, _, _, opcode, length @ ..] = header;
    let mut body = Vec::new();
    stream.take(u32::from_be_bytes(length).into()).read_to_end(&mut body)?;
    Ok(Frame { opcode, body })
}

/// Version, no flags, stream 0, opcode, length, body.
fn frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("this module's bodies are short");
    let mut frame = vec![REQUEST_VERSION, 0, 0, 0, opcode];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// A string map with one entry: the version of the query language.
fn startup_body() -> Vec<u8> {
    let mut body = vec![0, 1];
    for text in ["CQL_VERSION", "3.0.0"] {
        let length = u16::try_from(text.len()).expect("the strings are short");
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    body
}

/// The default superuser and its password, as a SASL PLAIN token.
fn login_body() -> Vec<u8> {
    let token = b"\0cassandra\0cassandra";
    let length = u32::try_from(token.len()).expect("the token is short");
    [&length.to_be_bytes(), token.as_slice()].concat()
}

/// A query at consistency ONE without parameters. It counts the peers with known tokens.
fn peers_body() -> Vec<u8> {
    let query = b"SELECT count(tokens) FROM system.peers";
    let length = u32::try_from(query.len()).expect("the query is short");
    [&length.to_be_bytes(), query.as_slice(), &[0, 1, 0]].concat()
}

fn unexpected(opcode: u8) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("unexpected response with opcode {opcode:#04x}"),
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const TWO_PEERS: &[u8] = &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2];

    /// A server that sends `responses` in order and returns the opcodes it received.
    fn serve(responses: &'static [u8]) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let respond = |&opcode: &u8| {
                let request = read_frame(&mut stream).unwrap();
                stream.write_all(&frame(opcode, TWO_PEERS)).unwrap();
                request.opcode
            };
            responses.iter().map(respond).collect()
        });
        (address, server)
    }

    #[test]
    fn open_node_is_queried_without_login() {
        let (address, server) = serve(&[READY, RESULT]);
        assert_eq!(probe(address).unwrap(), ProbeResult::Serving { peers: 2 });
        assert_eq!(server.join().unwrap(), [STARTUP, QUERY]);
    }

    #[test]
    fn node_with_passwords_requires_login() {
        let (address, server) = serve(&[AUTHENTICATE, AUTH_SUCCESS, RESULT]);
        assert_eq!(probe(address).unwrap(), ProbeResult::Serving { peers: 2 });
        assert_eq!(server.join().unwrap(), [STARTUP, AUTH_RESPONSE, QUERY]);

        let (address, server) = serve(&[AUTHENTICATE, ERROR]);
        assert_eq!(probe(address).unwrap(), ProbeResult::PasswordRejected);
        server.join().unwrap();
    }

    #[test]
    fn failing_node_is_an_error() {
        for responses in [&[ERROR] as &[u8], &[READY, ERROR]] {
            let (address, server) = serve(responses);
            probe(address).unwrap_err();
            server.join().unwrap();
            probe(address).unwrap_err();
        }
    }
}
