//! Requests: an array of bulk strings, or a line of words for people and shells.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// A command and its arguments; never empty.
pub(in crate::lockd) type Request = Vec<Bytes>;

/// What a client may send in one request.
#[derive(Clone, Copy, Debug)]
pub(in crate::lockd) struct Limits {
    /// Bytes of all arguments and of what is around them.
    pub(in crate::lockd) bytes: usize,
    /// Arguments.
    pub(in crate::lockd) arguments: usize,
}

/// Why a connection can't go on: where the next request begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(in crate::lockd) enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    Arguments,
    #[error("Protocol error: invalid bulk length")]
    Length,
    #[error("Protocol error: expected '$'")]
    NotBulk,
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("Protocol error: too big request")]
    TooBig,
}

/// The longest number that a length may be, and the line end.
const LENGTH_MAX: usize = 22;

/// Takes the next request from what has come; `None` if it is not complete yet. Empty requests are
/// passed over.
///
/// # Errors
///
/// A request that is not valid, or is longer than the limits allow.
pub(in crate::lockd) fn next_request(
    buffer: &mut BytesMut,
    limits: Limits,
) -> Result<Option<Request>, ProtocolError> {
    loop {
        let Some(first) = buffer.first() else { return Ok(None) };
        let request =
            if *first == b'*' { array(buffer, limits)? } else { line_of_words(buffer, limits)? };
        match request {
            Some(request) if request.is_empty() => {}
            request => return Ok(request),
        }
    }
}

fn array(buffer: &mut BytesMut, limits: Limits) -> Result<Option<Request>, ProtocolError> {
    let mut reader = Reader { bytes: buffer, at: 0 };
    let Some(count) = reader.length(b'*', ProtocolError::Arguments)? else { return Ok(None) };
    // As Redis does, which takes a negative number for none.
    let count = usize::try_from(count).unwrap_or(0);
    if count > limits.arguments {
        return Err(ProtocolError::Arguments);
    }
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(length) = reader.length(b'$', ProtocolError::Length)? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| ProtocolError::Length)?;
        if length > limits.bytes.saturating_sub(reader.at) {
            return Err(ProtocolError::TooBig);
        }
        let range = reader.at..reader.at + length;
        if buffer.len() < range.end + 2 {
            return Ok(None);
        }
        if buffer[range.end..].get(..2) != Some(b"\r\n") {
            return Err(ProtocolError::Length);
        }
        reader = Reader { bytes: buffer, at: range.end + 2 };
        ranges.push(range);
    }
    let end = reader.at;
    let request = buffer.split_to(end).freeze();
    Ok(Some(ranges.into_iter().map(|range| request.slice(range)).collect()))
}

/// Reads numbers from what has come.
struct Reader<'a> {
    bytes: &'a BytesMut,
    at: usize,
}

impl Reader<'_> {
    /// A number after a mark, up to the end of its line.
    fn length(&mut self, mark: u8, error: ProtocolError) -> Result<Option<i64>, ProtocolError> {
        let rest = &self.bytes[self.at..];
        let Some((first, rest)) = rest.split_first() else { return Ok(None) };
        if *first != mark {
            return Err(ProtocolError::NotBulk);
        }
        let Some(end) = memchr::memchr(b'\n', &rest[..rest.len().min(LENGTH_MAX)]) else {
            return if rest.len() < LENGTH_MAX { Ok(None) } else { Err(error) };
        };
        let digits = rest[..end].strip_suffix(b"\r").ok_or(error)?;
        let digits = str::from_utf8(digits).map_err(|_| error)?;
        self.at += end + 2;
        digits.parse().map(Some).map_err(|_| error)
    }
}

fn line_of_words(buffer: &mut BytesMut, limits: Limits) -> Result<Option<Request>, ProtocolError> {
    let Some(end) = memchr::memchr(b'\n', buffer) else {
        return if buffer.len() > limits.bytes { Err(ProtocolError::TooBig) } else { Ok(None) };
    };
    if end > limits.bytes {
        return Err(ProtocolError::TooBig);
    }
    let line = buffer.split_to(end);
    buffer.advance(1);
    let words = words(line.strip_suffix(b"\r").unwrap_or(&line))?;
    if words.len() > limits.arguments { Err(ProtocolError::Arguments) } else { Ok(Some(words)) }
}

/// The words of a line. Those in quotes may have blanks; within double quotes a backslash takes
/// the next character as it is, but for `\n`, `\r` and `\t`.
fn words(line: &[u8]) -> Result<Request, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(first) = rest.peek().copied() else { return Ok(words) };
        let mut word = Vec::new();
        if first == b'"' || first == b'\'' {
            rest.next();
            loop {
                match rest.next().ok_or(ProtocolError::Quotes)? {
                    end if end == first => break,
                    b'\\' if first == b'"' => {
                        word.push(match rest.next().ok_or(ProtocolError::Quotes)? {
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            other => other,
                        });
                    }
                    other => word.push(other),
                }
            }
            if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                return Err(ProtocolError::Quotes);
            }
        } else {
            while let Some(next) = rest.next_if(|next| !next.is_ascii_whitespace()) {
                word.push(next);
            }
        }
        words.push(Bytes::from(word));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { bytes: 1_000, arguments: 16 };

    fn parsed(bytes: &[u8]) -> Result<Option<Request>, ProtocolError> {
        next_request(&mut BytesMut::from(bytes), LIMITS)
    }

    fn encoded(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    fn request(words: &[&[u8]]) -> Result<Option<Request>, ProtocolError> {
        Ok(Some(words.iter().map(|word| Bytes::copy_from_slice(word)).collect()))
    }

    #[test]
    fn lines_are_split_into_words() {
        assert_eq!(parsed(b"LOCKSTATUS\r\n"), request(&[b"LOCKSTATUS"]));
        assert_eq!(parsed(b"\r\n \n  lock a\tb \n"), request(&[b"lock", b"a", b"b"]));
        let quoted = br#"lock "a \"b\n" 'c "d' ''"#;
        assert_eq!(
            parsed(&[quoted, b"\n".as_slice()].concat()),
            request(&[b"lock", b"a \"b\n", b"c \"d", b""])
        );
        for odd in [b"lock \"a\n".as_slice(), b"lock 'a'b\n", b"lock \"a\\\n"] {
            assert_eq!(parsed(odd), Err(ProtocolError::Quotes), "{odd:?}");
        }
        assert_eq!(parsed(b"LOCKSTATUS"), Ok(None));
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        for (bytes, error) in [
            (b"*a\r\n".as_slice(), ProtocolError::Arguments),
            (b"*1\n$1\r\na\r\n", ProtocolError::Arguments),
            (b"*17\r\n", ProtocolError::Arguments),
            (b"*99999999999999999999999", ProtocolError::Arguments),
            (b"*1\r\n:1\r\n", ProtocolError::NotBulk),
            (b"*1\r\n$-1\r\n", ProtocolError::Length),
            (b"*1\r\n$1\r\nab\r\n", ProtocolError::Length),
            (b"*1\r\n$1000000000\r\n", ProtocolError::TooBig),
        ] {
            assert_eq!(parsed(bytes), Err(error), "{}", bytes.escape_ascii());
        }
        assert_eq!(parsed(&[b'a'; 1_001]), Err(ProtocolError::TooBig), "before the line ends");
        assert_eq!(parsed(b"*0\r\n*-1\r\nPING\r\n"), request(&[b"PING"]));
    }

    proptest! {
        #[test]
        fn requests_survive(
            requests in vec(vec(vec(any::<u8>(), 0..50), 1..8), 1..4),
            pieces in vec(1_usize..40, 1..50),
        ) {
            let bytes: Vec<u8> = requests.iter().flat_map(|request| encoded(request)).collect();
            let mut buffer = BytesMut::new();
            let (mut rest, mut seen) = (bytes.as_slice(), Vec::new());
            for piece in pieces.iter().cycle() {
                while let Some(request) = next_request(&mut buffer, LIMITS).expect("it is valid") {
                    seen.push(request.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
                }
                if rest.is_empty() {
                    break;
                }
                let (piece, others) = rest.split_at((*piece).min(rest.len()));
                buffer.extend_from_slice(piece);
                rest = others;
            }
            prop_assert_eq!(seen, requests);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn nothing_that_comes_is_too_much(bytes in vec(any::<u8>(), 0..2_000)) {
            check(&bytes)?;
        }

        #[test]
        fn odd_requests_are_not_too_much(pieces in vec(piece(), 0..60)) {
            check(&pieces.concat())?;
        }
    }

    /// A part of a request, as clients send them and as they should not.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let count = -2_i64..20;
        prop_oneof![
            count.clone().prop_map(|count| format!("*{count}\r\n").into_bytes()),
            count.prop_map(|length| format!("${length}\r\n").into_bytes()),
            vec(any::<u8>(), 0..20).prop_map(|bytes| [bytes.as_slice(), b"\r\n"].concat()),
            vec(any::<u8>(), 0..20).prop_map(|bytes| encoded(&[bytes])),
            "[ a-z\"'\\\\]{0,20}\r?\n".prop_map(String::into_bytes),
            prop::sample::select(vec!["*", "$", "\r", "\n", "1", "-", "$1000000000\r\n"])
                .prop_map(|text| text.as_bytes().to_vec()),
        ]
    }

    fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
        let mut buffer = BytesMut::from(bytes);
        while let Ok(Some(request)) = next_request(&mut buffer, LIMITS) {
            prop_assert!(!request.is_empty() && request.len() <= LIMITS.arguments);
            let length: usize = request.iter().map(Bytes::len).sum();
            prop_assert!(length <= LIMITS.bytes);
        }
        Ok(())
    }
}
