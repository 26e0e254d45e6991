//! Asks a node whether it serves clients: as much of the CQL native protocol, version 4, as a
//! connection needs to be opened.

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
const AUTH_RESPONSE: u8 = 0x0f;
const AUTH_SUCCESS: u8 = 0x10;

/// How a node received a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The connection is open for queries.
    Welcome,
    /// The node asked for a password and did not take the default one.
    PasswordRefused,
}

/// Opens a connection to a node; logs in as `cassandra` if it asks for a password.
///
/// # Errors
///
/// Whatever kept the node from answering, within about a second for each of at most three steps.
pub(crate) fn greet(node: SocketAddr) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&node, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match ask(&mut stream, STARTUP, &startup_body())? {
        READY => Ok(Answer::Welcome),
        AUTHENTICATE => match ask(&mut stream, AUTH_RESPONSE, &login_body())? {
            AUTH_SUCCESS => Ok(Answer::Welcome),
            ERROR => Ok(Answer::PasswordRefused),
            opcode => Err(unexpected(opcode)),
        },
        opcode => Err(unexpected(opcode)),
    }
}

/// Sends one frame and returns the kind of the answer, whose content doesn't matter here.
fn ask(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<u8> {
    stream.write_all(&frame(opcode, body))?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let [_, _, _, _, opcode, length @ ..] = header;
    let length = u64::from(u32::from_be_bytes(length));
    io::copy(&mut stream.take(length), &mut io::sink())?;
    Ok(opcode)
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

fn unexpected(opcode: u8) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("unexpected answer of kind {opcode:#04x}"),
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that gives the answers in turn and returns the kinds of the frames it got.
    fn serve(answers: &'static [u8]) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let answer = |&opcode: &u8| {
                let asked = ask_for_frame(&mut stream);
                stream.write_all(&frame(opcode, b"ignored")).unwrap();
                asked
            };
            answers.iter().map(answer).collect()
        });
        (address, server)
    }

    fn ask_for_frame(stream: &mut TcpStream) -> u8 {
        let mut header = [0; 9];
        stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        io::copy(&mut stream.take(length.into()), &mut io::sink()).unwrap();
        header[4]
    }

    #[test]
    fn an_open_node_is_ready_at_once() {
        let (address, server) = serve(&[READY]);
        assert_eq!(greet(address).unwrap(), Answer::Welcome);
        assert_eq!(server.join().unwrap(), [STARTUP]);
    }

    #[test]
    fn a_node_with_passwords_is_logged_in_to() {
        let (address, server) = serve(&[AUTHENTICATE, AUTH_SUCCESS]);
        assert_eq!(greet(address).unwrap(), Answer::Welcome);
        assert_eq!(server.join().unwrap(), [STARTUP, AUTH_RESPONSE]);

        let (address, server) = serve(&[AUTHENTICATE, ERROR]);
        assert_eq!(greet(address).unwrap(), Answer::PasswordRefused);
        server.join().unwrap();
    }

    #[test]
    fn a_node_that_fails_is_an_error() {
        let (address, server) = serve(&[ERROR]);
        greet(address).unwrap_err();
        server.join().unwrap();
        greet(address).unwrap_err();
    }
}
