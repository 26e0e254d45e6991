//! What servers answer.

use redis::Value;

/// The answer of a script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    /// `ok`, or why nothing was done.
    pub(super) status: String,
    /// The server's clock, in µs since the Unix epoch; 0 if it does not say.
    pub(super) now_micros: i64,
    /// The hashes that were read, each as fields and values.
    pub(super) hashes: Vec<Vec<(String, String)>>,
}

impl Reply {
    /// Reads an answer; `None` if no script of ours gives it.
    pub(super) fn of(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let mut parts = parts.into_iter();
        let status = text(&parts.next()?)?;
        let now_micros = text(&parts.next()?)?.parse().ok()?;
        let hashes = parts.map(|part| pairs(&part)).collect::<Option<_>>()?;
        Some(Reply { status, now_micros, hashes })
    }
}

/// A string.
pub(super) fn text(value: &Value) -> Option<String> {
    if let Value::BulkString(bytes) = value {
        return String::from_utf8(bytes.clone()).ok();
    }
    if let Value::SimpleString(text) = value { Some(text.clone()) } else { None }
}

/// Fields and values.
pub(super) fn pairs(value: &Value) -> Option<Vec<(String, String)>> {
    let Value::Array(parts) = value else { return None };
    let pairs = parts.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
    if parts.len() % 2 == 0 { pairs.collect() } else { None }
}

/// Strings.
pub(super) fn texts(value: &Value) -> Option<Vec<String>> {
    let Value::Array(parts) = value else { return None };
    parts.iter().map(text).collect()
}

/// The answer to `TIME`, in µs.
pub(super) fn time(value: &Value) -> Option<i64> {
    let parts = texts(value)?;
    let [seconds, micros] = parts.as_slice() else { return None };
    let (seconds, micros): (i64, i64) = (seconds.parse().ok()?, micros.parse().ok()?);
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// The answer to `SCRIPT EXISTS`, if it is yes for each.
pub(super) fn are_all_there(value: &Value) -> bool {
    let Value::Array(parts) = value else { return false };
    !parts.is_empty() && parts.iter().all(|part| *part == Value::Int(1))
}

/// The answer to `SCAN`: where to continue, and keys. One that is no text is none of ours.
pub(super) fn scanned(value: &Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = value else { return None };
    let [cursor, Value::Array(keys)] = parts.as_slice() else { return None };
    Some((text(cursor)?, keys.iter().filter_map(text).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn answers_of_scripts_are_read() {
        let pair = Value::Array(vec![bulk("a"), bulk("1")]);
        let answer = Value::Array(vec![bulk("ok"), bulk("17"), pair.clone(), Value::Array(vec![])]);
        let expected = Reply {
            status: "ok".to_owned(),
            now_micros: 17,
            hashes: vec![vec![("a".to_owned(), "1".to_owned())], vec![]],
        };
        assert_eq!(Reply::of(answer), Some(expected));
        let odd = Value::Array(vec![bulk("a")]);
        for other in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("ok"), bulk("x")]),
            Value::Array(vec![bulk("ok"), bulk("1"), odd]),
            Value::Array(vec![bulk("ok"), bulk("1"), bulk("a")]),
        ] {
            assert_eq!(Reply::of(other.clone()), None, "{other:?}");
        }
        assert_eq!(time(&Value::Array(vec![bulk("2"), bulk("5")])), Some(2_000_005));
        assert_eq!(time(&pair), None);
    }
}
