//! A connection, down to the bytes.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use redis::{Parser, Value};
use support::pace;

/// One connection. It waits for answers as long as tests do.
pub(super) struct Wire {
    stream: Stream,
    replies: BufReader<Stream>,
    parser: Parser,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = match self {
                Stream::Unix(stream) => stream.read(buffer),
                Stream::Tcp(stream) => stream.read(buffer),
            };
            // A daemon of another test has ended.
            match read {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply(pub(super) Value);

impl Wire {
    pub(super) fn connect(socket: &Path) -> Self {
        Wire::connect_if_there(socket).expect("the daemon listens")
    }

    /// A connection, if a daemon listens.
    pub(super) fn connect_if_there(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(pace::limit())).expect("it is a timeout");
        let replies = stream.try_clone().expect("there are descriptors");
        Ok(Wire::of(Stream::Unix(stream), Stream::Unix(replies)))
    }

    pub(super) fn over_tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the daemon listens");
        stream.set_read_timeout(Some(pace::limit())).expect("it is a timeout");
        let replies = stream.try_clone().expect("there are descriptors");
        Wire::of(Stream::Tcp(stream), Stream::Tcp(replies))
    }

    fn of(stream: Stream, replies: Stream) -> Self {
        Wire { stream, replies: BufReader::new(replies), parser: Parser::new() }
    }

    /// Sends nothing more.
    pub(super) fn end_of_input(&mut self) {
        let Stream::Unix(stream) = &self.stream else { panic!("it is of the file system") };
        stream.shutdown(Shutdown::Write).expect("it is open");
    }

    /// Sends bytes over and over, until the daemon reads no more.
    pub(super) fn write_until_blocked(&mut self, bytes: &[u8]) {
        let Stream::Unix(stream) = &mut self.stream else { panic!("it is of the file system") };
        stream.set_write_timeout(Some(Duration::from_millis(500))).expect("it is a timeout");
        loop {
            match stream.write(bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends a command, without waiting for its answer.
    pub(super) fn send(&mut self, words: &[&str]) {
        self.write(&packed(words));
    }

    /// Sends a command; its answer, if the daemon lives for so long.
    pub(super) fn call_or_end(&mut self, words: &[&str]) -> Option<Reply> {
        self.stream.write_all(&packed(words)).ok()?;
        self.reply_or_end()
    }

    /// Sends bytes as they are.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the daemon reads");
    }

    /// The next answer.
    pub(super) fn reply(&mut self) -> Reply {
        Reply(self.parser.parse_value(&mut self.replies).expect("it answers"))
    }

    /// The next answer, if the daemon does not close the connection.
    pub(super) fn reply_or_end(&mut self) -> Option<Reply> {
        self.parser.parse_value(&mut self.replies).ok().map(Reply)
    }

    /// Sends a command; its answer.
    pub(super) fn call(&mut self, words: &[&str]) -> Reply {
        self.send(words);
        self.reply()
    }

    /// Calls a command that must succeed.
    pub(super) fn done(&mut self, words: &[&str]) -> Reply {
        let reply = self.call(words);
        assert!(!matches!(reply.0, Value::ServerError(_)), "{words:?}: {reply:?}");
        reply
    }
}

fn packed(words: &[&str]) -> Vec<u8> {
    redis::pack_command(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
}

impl Reply {
    pub(super) fn is_nil(&self) -> bool {
        self.0 == Value::Nil
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self.0, Value::ServerError(_))
    }

    pub(super) fn is_ok(&self) -> bool {
        self.0 == Value::Okay
    }

    /// A number.
    pub(super) fn number(&self) -> i64 {
        let Value::Int(number) = self.0 else { panic!("it is no number: {self:?}") };
        number
    }

    /// A text.
    pub(super) fn text(&self) -> String {
        redis::from_redis_value_ref(&self.0).expect("it is text")
    }

    /// An error, with its code.
    pub(super) fn error(&self) -> String {
        let Value::ServerError(error) = &self.0 else { panic!("it is no error: {self:?}") };
        format!("{} {}", error.code(), error.details().unwrap_or_default())
    }

    /// A part of a map.
    pub(super) fn part(&self, name: &str) -> Reply {
        let pairs: Vec<(Value, Value)> = if let Value::Map(pairs) = &self.0 {
            pairs.clone()
        } else if let Value::Array(parts) = &self.0 {
            parts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        } else {
            panic!("it is no map: {self:?}")
        };
        let found = pairs.into_iter().find(|(key, _)| Reply(key.clone()).text() == name);
        Reply(found.expect("it has this part").1)
    }
}
