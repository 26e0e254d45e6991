//! Replies, in both versions of the protocol.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::lockd) enum Version {
    /// RESP2, with which every connection begins.
    #[default]
    Two,
    /// RESP3, which has maps and pushes.
    Three,
}

/// A reply, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lockd) enum Reply {
    /// A word: `OK`.
    Simple(&'static str),
    /// A word, which the daemon did not choose by itself.
    Status(String),
    /// An error: its first word says which.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Bytes),
    /// Nothing.
    Null,
    /// Several.
    Array(Vec<Reply>),
    /// Pairs; in RESP2 an array of both in turn.
    Map(Vec<(&'static str, Reply)>),
    /// What the client did not ask for; in RESP2 an array.
    Push(Vec<Reply>),
}

impl Reply {
    /// `OK`.
    pub(in crate::lockd) const OK: Reply = Reply::Simple("OK");

    /// Text as bytes.
    pub(in crate::lockd) fn text(text: impl Into<String>) -> Self {
        Reply::Bulk(Bytes::from(text.into().into_bytes()))
    }

    /// A number that may be of another type.
    pub(in crate::lockd) fn number(number: impl TryInto<i64>) -> Self {
        Reply::Integer(number.try_into().unwrap_or(i64::MAX))
    }

    /// A time in milliseconds.
    pub(in crate::lockd) fn milliseconds(time: Duration) -> Self {
        Reply::number(time.as_millis())
    }

    /// 1 or 0.
    pub(in crate::lockd) fn flag(is_so: bool) -> Self {
        Reply::Integer(i64::from(is_so))
    }
}

/// Appends a reply to what is to be sent.
pub(in crate::lockd) fn encode(reply: &Reply, version: Version, out: &mut BytesMut) {
    match reply {
        Reply::Simple(text) => line(out, b'+', text),
        Reply::Status(text) => line(out, b'+', &in_one_line(text)),
        Reply::Error(text) => line(out, b'-', &in_one_line(text)),
        Reply::Integer(number) => number_line(out, b':', *number),
        Reply::Bulk(bytes) => {
            length(out, b'$', bytes.len());
            out.put_slice(bytes);
            out.put_slice(b"\r\n");
        }
        Reply::Null => out.put_slice(match version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        }),
        Reply::Array(parts) => all(b'*', parts, version, out),
        Reply::Push(parts) => {
            all(if version == Version::Two { b'*' } else { b'>' }, parts, version, out);
        }
        Reply::Map(pairs) => {
            match version {
                Version::Two => length(out, b'*', pairs.len() * 2),
                Version::Three => length(out, b'%', pairs.len()),
            }
            for (key, value) in pairs {
                encode(&Reply::Bulk(Bytes::from_static(key.as_bytes())), version, out);
                encode(value, version, out);
            }
        }
    }
}

fn all(mark: u8, parts: &[Reply], version: Version, out: &mut BytesMut) {
    length(out, mark, parts.len());
    for part in parts {
        encode(part, version, out);
    }
}

fn line(out: &mut BytesMut, mark: u8, text: &str) {
    out.put_u8(mark);
    out.put_slice(text.as_bytes());
    out.put_slice(b"\r\n");
}

fn length(out: &mut BytesMut, mark: u8, length: usize) {
    number_line(out, mark, i64::try_from(length).unwrap_or(i64::MAX));
}

fn number_line(out: &mut BytesMut, mark: u8, number: i64) {
    out.put_u8(mark);
    // Writing to a buffer that grows can't fail.
    let _ = write!(out, "{number}\r\n");
}

/// A text of several lines would be taken for several replies.
fn in_one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(reply: &Reply) -> [String; 2] {
        [Version::Two, Version::Three].map(|version| {
            let mut out = BytesMut::new();
            encode(reply, version, &mut out);
            String::from_utf8(out.to_vec()).expect("it is text")
        })
    }

    #[test]
    fn replies_are_those_of_their_version() {
        let same = |text: &str| [text.to_owned(), text.to_owned()];
        assert_eq!(sent(&Reply::OK), same("+OK\r\n"));
        assert_eq!(sent(&Reply::Integer(-3)), same(":-3\r\n"));
        assert_eq!(sent(&Reply::text("a\r\n")), same("$3\r\na\r\n\r\n"));
        assert_eq!(sent(&Reply::Error("ERR a\r\nb".to_owned())), same("-ERR a  b\r\n"));
        assert_eq!(sent(&Reply::Null), ["$-1\r\n", "_\r\n"]);
        let map = Reply::Map(vec![("a", Reply::Integer(1)), ("b", Reply::Null)]);
        assert_eq!(
            sent(&map),
            [
                "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n",
                "%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n_\r\n"
            ]
        );
        let push = Reply::Push(vec![Reply::text("lost"), Reply::Array(Vec::new())]);
        assert_eq!(sent(&push), ["*2\r\n$4\r\nlost\r\n*0\r\n", ">2\r\n$4\r\nlost\r\n*0\r\n"]);
    }
}
