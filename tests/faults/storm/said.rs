//! What clients tell of their locks, as lines between processes.

use std::fmt;
use std::str::FromStr;

use support::history::{Drawn, Moment};

/// How the kinds of failures begin that mean a lost lock.
pub(crate) const LOST: &str = "lost: ";

/// Stands for an object in what a client says before it can lock any.
pub(crate) const NO_OBJECT: &str = "-";

/// What a client tells of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) object: String,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// It was let in after this many nanoseconds, perhaps by another client that keeps the place.
    LetIn { waited: u64, is_lent: bool },
    /// It holds the lock since then.
    Holds { from: u64 },
    /// It held the lock, or was done with a round.
    Past(Moment),
    /// It drew a token.
    Drew(Drawn),
    /// Something did not come to a good end: a kind of error.
    Failed(String),
    /// It got the lock after all had been healed.
    Served,
    /// It gave this many turns of places that it had kept.
    UsedKept(u64),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.object)?;
        match &self.what {
            What::LetIn { waited, is_lent } => {
                write!(f, "let-in {waited} {}", u64::from(*is_lent))
            }
            What::Holds { from } => write!(f, "holds {from}"),
            What::Past(moment) => write!(f, "past {moment}"),
            What::Drew(Drawn { asked, given, value }) => write!(f, "drew {asked} {given} {value}"),
            What::Failed(how) => write!(f, "failed {how}"),
            What::Served => write!(f, "served"),
            What::UsedKept(turns) => write!(f, "used-kept {turns}"),
        }
    }
}

impl FromStr for Said {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let not_said = || format!("nothing that a client says: {line:?}");
        let (object, rest) = line.split_once(' ').ok_or_else(not_said)?;
        let (what, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
        let what = match (what, numbers.as_deref()) {
            ("let-in", Ok(&[waited, lent])) => What::LetIn { waited, is_lent: lent != 0 },
            ("holds", Ok(&[from])) => What::Holds { from },
            ("past", _) => What::Past(rest.parse()?),
            ("drew", _) => What::Drew(drawn(rest).ok_or_else(not_said)?),
            ("failed", _) => What::Failed(rest.to_owned()),
            ("served", _) => What::Served,
            ("used-kept", Ok(&[turns])) => What::UsedKept(turns),
            _ => return Err(not_said()),
        };
        Ok(Said { object: object.to_owned(), what })
    }
}

/// Tokens are signed, times are not.
fn drawn(text: &str) -> Option<Drawn> {
    let mut words = text.split(' ');
    let (asked, given) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Drawn { asked, given, value: words.next()?.parse().ok()? })
}

// Goal: what a client says survives its way to the listener.
// Method: there and back.
#[test]
fn reports_survive_as_lines() {
    let held = Moment::Held { from: 3, until: 4 };
    for what in [
        What::LetIn { waited: 1, is_lent: true },
        What::Holds { from: 2 },
        What::Past(held),
        What::Drew(Drawn { asked: 5, given: 6, value: -7 }),
        What::Failed("lost: the lease ran out".to_owned()),
        What::Served,
        What::UsedKept(8),
    ] {
        let said = Said { object: "hot-1".to_owned(), what };
        assert_eq!(said.to_string().parse(), Ok(said));
    }
    assert!("hot-1 holds".parse::<Said>().is_err());
    assert!("hot-1".parse::<Said>().is_err());
}
