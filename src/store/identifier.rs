//! Names of keyspaces and tables, checked before anything is sent.

use std::fmt;

use thiserror::Error;

/// The longest name that Cassandra accepts.
const LENGTH_MAX: usize = 48;

/// The name of a keyspace or a table: 1 to 48 of `[A-Za-z0-9_]`, with its case kept.
///
/// It contains no quote, so between quotes it is always one identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identifier(String);

/// A name that is not an identifier. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name:?} can't be the name of a {what}: use 1 to {LENGTH_MAX} of A-Z, a-z, 0-9 and _")]
pub struct InvalidIdentifier {
    what: &'static str,
    name: String,
}

impl Identifier {
    /// The name of a keyspace.
    pub(crate) fn keyspace(name: &str) -> Result<Self, InvalidIdentifier> {
        Self::parse("keyspace", name)
    }

    /// The name of a table.
    pub(crate) fn table(name: &str) -> Result<Self, InvalidIdentifier> {
        Self::parse("table", name)
    }

    fn parse(what: &'static str, name: &str) -> Result<Self, InvalidIdentifier> {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if (1..=LENGTH_MAX).contains(&name.len()) && name.chars().all(legal) {
            Ok(Identifier(name.to_owned()))
        } else {
            let name = crate::options::shown(name);
            Err(InvalidIdentifier { what, name })
        }
    }

    /// The name without quotes, as the system tables hold it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_case() {
        let longest = "x".repeat(48);
        for name in ["locks", "Locks_2", "_", "9", longest.as_str()] {
            assert_eq!(Identifier::keyspace(name).map(|n| n.to_string()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn names_that_could_leave_quotes_are_refused() {
        let too_long = "x".repeat(49);
        for name in ["", "a\"b", "a b", "a.b", "a;b", "é", "a\0", too_long.as_str()] {
            let error = Identifier::table(name).expect_err("this is no identifier");
            assert!(error.to_string().contains("can't be the name of a table"), "{error}");
        }
    }
}
