//! Asks a node whether it serves clients and knows the ring: the part of the CQL native protocol,
//! version 4, that this needs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A node on this machine answers within milliseconds, unless it is busy starting.
const PATIENCE: Duration = Duration::from_millis(1000);

const VERSION_OF_REQUESTS: u8 = 0x04;
const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const AUTH_RESPONSE: u8 = 0x0f;
const AUTH_SUCCESS: u8 = 0x10;

/// A node's answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The connection was open for queries.
    Welcome {
        /// How many other nodes' tokens the node knew.
        peers: i64,
    },
    /// The node asked for a password and did not accept the default one.
    PasswordRefused,
}

/// Opens a connection to a node, logs in as `cassandra` if it asks for a password, and asks for
/// its peers.
///
/// A node that sees another one alive may not know its tokens yet. Until it does, it chooses
/// replicas without the other one.
///
/// # Errors
///
/// The reason why the node did not answer, within about a second for each of at most four steps.
pub(crate) fn greet(node: SocketAddr) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&node, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match ask(&mut stream, STARTUP, &startup_body())?.opcode {
        READY => {}
        AUTHENTICATE => match ask(&mut stream, AUTH_RESPONSE, &login_body())?.opcode {
            AUTH_SUCCESS => {}
            ERROR => return Ok(Answer::PasswordRefused),
            opcode => return Err(unexpected(opcode)),
        },
        opcode => return Err(unexpected(opcode)),
    }
    let answer = ask(&mut stream, QUERY, &peers_body())?;
    // The only column of the only row is a number of 64 bits, which ends the frame.
    match (answer.opcode, answer.body.last_chunk()) {
        (RESULT, Some(&count)) => Ok(Answer::Welcome { peers: i64::from_be_bytes(count) }),
        (opcode, _) => Err(unexpected(opcode)),
    }
}

struct Frame {
    opcode: u8,
    body: Vec<u8>,
}

fn ask(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<Frame> {
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

/// Version, no flags, stream 0, kind, length, body.
fn frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("the bodies of this module are short");
    let mut frame = vec![VERSION_OF_REQUESTS, 0, 0, 0, opcode];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// A map of strings with one entry, the version of the query language.
fn startup_body() -> Vec<u8> {
    let mut body = vec![0, 1];
    for text in ["CQL_VERSION", "3.0.0"] {
        let length = u16::try_from(text.len()).expect("the texts are short");
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    body
}

/// The default superuser and its password, as SASL PLAIN writes them.
fn login_body() -> Vec<u8> {
    let token = b"\0cassandra\0cassandra";
    let length = u32::try_from(token.len()).expect("the token is short");
    [&length.to_be_bytes(), token.as_slice()].concat()
}

/// A query at consistency ONE without further parameters. It counts rows whose tokens are known.
fn peers_body() -> Vec<u8> {
    let query = b"SELECT count(tokens) FROM system.peers";
    let length = u32::try_from(query.len()).expect("the query is short");
    [&length.to_be_bytes(), query.as_slice(), &[0, 1, 0]].concat()
}

fn unexpected(opcode: u8) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected answer of kind {opcode:#04x}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const TWO_PEERS: &[u8] = &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2];

    /// A server that gives the answers in turn and returns the kinds of the frames it received.
    fn serve(answers: &'static [u8]) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let answer = |&opcode: &u8| {
                let asked = read_frame(&mut stream).unwrap();
                stream.write_all(&frame(opcode, TWO_PEERS)).unwrap();
                asked.opcode
            };
            answers.iter().map(answer).collect()
        });
        (address, server)
    }

    #[test]
    fn an_open_node_is_asked_for_its_peers_at_once() {
        let (address, server) = serve(&[READY, RESULT]);
        assert_eq!(greet(address).unwrap(), Answer::Welcome { peers: 2 });
        assert_eq!(server.join().unwrap(), [STARTUP, QUERY]);
    }

    #[test]
    fn a_node_with_passwords_is_logged_in_to() {
        let (address, server) = serve(&[AUTHENTICATE, AUTH_SUCCESS, RESULT]);
        assert_eq!(greet(address).unwrap(), Answer::Welcome { peers: 2 });
        assert_eq!(server.join().unwrap(), [STARTUP, AUTH_RESPONSE, QUERY]);

        let (address, server) = serve(&[AUTHENTICATE, ERROR]);
        assert_eq!(greet(address).unwrap(), Answer::PasswordRefused);
        server.join().unwrap();
    }

    #[test]
    fn a_node_that_fails_is_an_error() {
        for answers in [&[ERROR] as &[u8], &[READY, ERROR]] {
            let (address, server) = serve(answers);
            greet(address).unwrap_err();
            server.join().unwrap();
            greet(address).unwrap_err();
        }
    }
}
