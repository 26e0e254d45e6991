//! Connections to a server that speaks the protocol of Redis: blocking sockets, so that the client
//! costs as little as it can.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The script that releases a lock.
pub const RELEASE: &str = "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return \
                           redis.call(\"del\",KEYS[1]) else return 0 end";

/// One connection.
pub enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    pub fn unix(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| path.display().to_string())?;
        Ok(Connection::Unix(stream))
    }

    pub fn tcp(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| address.to_string())?;
        stream.set_nodelay(true)?;
        Ok(Connection::Tcp(stream))
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Connection::Unix(stream) => stream.write_all(bytes)?,
            Connection::Tcp(stream) => stream.write_all(bytes)?,
        }
        Ok(())
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Ok(match self {
            Connection::Unix(stream) => stream.read(buffer)?,
            Connection::Tcp(stream) => stream.read(buffer)?,
        })
    }

    /// Sends a command, and expects an answer of one line.
    pub fn call(&mut self, command: &[u8], expected: &[u8]) -> Result<()> {
        let is_so = self.is_answered(command, expected, None)?;
        ensure!(is_so, "it is not {}", expected.escape_ascii());
        Ok(())
    }

    /// The same; whether the answer is this one, and not an error that begins in a way that is
    /// expected, too.
    pub fn is_answered(
        &mut self,
        command: &[u8],
        expected: &[u8],
        error: Option<&[u8]>,
    ) -> Result<bool> {
        self.write(command)?;
        let mut answer = [0; 1024];
        let mut length = 0;
        while !answer[..length].ends_with(b"\r\n") {
            let more = self.read(&mut answer[length..])?;
            ensure!(more > 0, "the server has closed the connection");
            length += more;
        }
        let answer = &answer[..length];
        let is_expected = error.is_some_and(|error| answer.starts_with(error));
        ensure!(answer == expected || is_expected, "{}", answer.escape_ascii());
        Ok(answer == expected)
    }
}

/// A command as it is sent.
pub fn command(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<_> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat()).into_bytes()
}

/// What a process has in memory, in bytes.
pub fn memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(kilobytes.parse::<u64>()? * 1_024)
}
