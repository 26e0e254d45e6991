//! How many replicas must answer.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How many replicas must answer.
///
/// Only levels with intersecting quorums exist here: with any other, two clients could hold one
/// lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// More than half of all replicas, whatever their data centre.
    #[default]
    Quorum,
    /// More than half of the replicas of the named data centre. All clients of a lock table must
    /// name the same one: clients of two data centres would not exclude each other, so the name is
    /// recorded when the table is created, and a client that names another one is refused.
    ///
    /// For the database, "local" is the data centre of the coordinator, so whatever the session
    /// does otherwise, the lock's statements go only to nodes of the named data centre, and never
    /// fail over to another one: without its nodes there are no locks. A client is refused if there
    /// is no such data centre, if the keyspace has no replicas in it, or if the session reaches
    /// none of its nodes.
    ///
    /// All data centres together keep host numbers and settings. While the others are down, a
    /// client uses what this one shows of them, if anything: a removal of the host, or other
    /// settings, written elsewhere may not be seen here until the others are back. If this one does
    /// not show the host or the settings, they are unknown, and the client is not built.
    LocalQuorum(String),
}

impl Consistency {
    /// The only data centre to ask; `None` if all are asked.
    pub(crate) fn datacenter(&self) -> Option<&str> {
        match self {
            Consistency::Quorum => None,
            Consistency::LocalQuorum(datacenter) => Some(datacenter),
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Consistency::Quorum => f.write_str("QUORUM"),
            Consistency::LocalQuorum(datacenter) => {
                write!(f, "LOCAL_QUORUM of data centre {datacenter:?}")
            }
        }
    }
}

/// Reads `quorum` or `local-quorum:DC`, with `DC` the data centre. Capitals and underscores of the
/// level don't matter, so that `LOCAL_QUORUM:dc1` is read too.
///
/// # Example
///
/// ```
/// use bakery_lock::Consistency;
///
/// # fn main() -> Result<(), bakery_lock::ParseConsistencyError> {
/// let consistency: Consistency = "local-quorum:dc1".parse()?;
/// assert_eq!(consistency, Consistency::LocalQuorum("dc1".to_owned()));
/// let error = "one".parse::<Consistency>().expect_err("two could hold one lock");
/// assert!(error.to_string().contains("use quorum or local-quorum:DC"));
/// # Ok(())
/// # }
/// ```
impl FromStr for Consistency {
    type Err = ParseConsistencyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (level, datacenter) = match text.split_once(':') {
            Some((level, datacenter)) => (level, Some(datacenter)),
            None => (text, None),
        };
        match (level.to_ascii_lowercase().replace('_', "-").as_str(), datacenter) {
            ("quorum", None) => Ok(Consistency::Quorum),
            ("local-quorum", None | Some("")) => Err(ParseConsistencyError::NoDatacenter),
            ("local-quorum", Some(datacenter)) => {
                Ok(Consistency::LocalQuorum(datacenter.to_owned()))
            }
            _ => Err(ParseConsistencyError::OtherLevel { text: text.to_owned() }),
        }
    }
}

/// Why a text is no [`Consistency`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseConsistencyError {
    /// The data centre is missing.
    #[error(
        "name the data centre whose replicas keep the locks, the same for all clients: \
         local-quorum:DC"
    )]
    NoDatacenter,
    /// It is another level of the database, or none.
    #[error(
        "{text:?} is no consistency for locks: use quorum or local-quorum:DC. With fewer replicas \
         two clients could hold one lock, because their reads and writes need not meet; with more, \
         one dead node would stop all locks"
    )]
    OtherLevel {
        /// What it is.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_that_exclude_are_read() {
        for text in ["quorum", "QUORUM"] {
            assert_eq!(text.parse(), Ok(Consistency::Quorum));
        }
        for text in ["local-quorum:DC1", "LOCAL_QUORUM:DC1"] {
            assert_eq!(text.parse(), Ok(Consistency::LocalQuorum("DC1".to_owned())));
        }
        let odd = "local-quorum:a:b".parse();
        assert_eq!(odd, Ok(Consistency::LocalQuorum("a:b".to_owned())));
        for text in ["local-quorum", "local_quorum:"] {
            let error = text.parse::<Consistency>().expect_err("there is no data centre");
            assert_eq!(error, ParseConsistencyError::NoDatacenter);
        }
        for text in
            ["one", "all", "two", "each-quorum", "any", "local-one", "", "one:DC1", "quorum:DC1"]
        {
            let error = text.parse::<Consistency>().expect_err("there is no such level");
            assert_eq!(error, ParseConsistencyError::OtherLevel { text: text.to_owned() });
        }
    }
}
