//! The scripts of lock clients: what each is to do, found by its text, which is not run.
//!
//! Clients of Redis send Lua. Here a script is recognised by what its text is without comments,
//! blanks and the kind of its quotes, so that versions of a client that differ in these are the
//! same. One that is not known is refused, with its SHA1 for the option `--script`.

mod catalogue;
mod normal;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use sha1_smol::Sha1;
use thiserror::Error;

pub(super) use self::catalogue::Behaviour;
use self::catalogue::{BY_NORMAL_FORM, BY_TEXT};
use self::normal::normal_form;

/// Scripts that clients have sent are remembered, this many of them.
const REMEMBERED_MAX: usize = 1_000;

/// The SHA1 of a script, by which clients name it.
pub(super) type Digest = [u8; 20];

/// Which script does what.
#[derive(Debug)]
pub(super) struct Scripts {
    /// As the operator says.
    given: HashMap<Digest, Behaviour>,
    /// Of scripts that clients have sent.
    seen: RwLock<HashMap<Digest, Behaviour>>,
}

/// A script that an operator wants to behave so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenScript {
    digest: Digest,
    behaviour: Behaviour,
}

/// Why an operator's words about a script can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum GivenScriptError {
    #[error("write SHA1=BEHAVIOUR, with the 40 hexadecimal digits that the daemon names")]
    Form,
    #[error("there is no behaviour {0:?}; there are {names}", names = known_behaviours())]
    Behaviour(String),
}

fn known_behaviours() -> String {
    Behaviour::names().join(", ")
}

impl Scripts {
    /// All that are known, and those that the operator knows.
    pub(super) fn new(given: impl IntoIterator<Item = GivenScript>) -> Self {
        let given = given.into_iter().map(|it| (it.digest, it.behaviour)).collect();
        Scripts { given, seen: RwLock::default() }
    }

    /// What a script does, of which the text is there.
    ///
    /// # Errors
    ///
    /// Its digest, if it is not known.
    pub(super) fn of_text(&self, text: &[u8]) -> Result<Behaviour, Digest> {
        let digest = digest(text);
        if let Some(known) = self.of_digest(&digest) {
            return Ok(known);
        }
        let normal = Sha1::from(normal_form(text)).digest().bytes();
        let found = BY_NORMAL_FORM.iter().find(|(form, _)| *form == hex(&normal));
        let (_, behaviour) = found.ok_or(digest)?;
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < REMEMBERED_MAX {
            seen.insert(digest, *behaviour);
        }
        Ok(*behaviour)
    }

    /// What a script does that a client names by its digest; `None` if the client must send it.
    pub(super) fn of_digest(&self, digest: &Digest) -> Option<Behaviour> {
        let given = self.given.get(digest).copied();
        let seen = || {
            let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
            seen.get(digest).copied()
        };
        let known = || {
            let text = hex(digest);
            BY_TEXT.iter().find(|(known, _)| *known == text).map(|(_, behaviour)| *behaviour)
        };
        given.or_else(seen).or_else(|| {
            let behaviour = known()?;
            self.seen.write().unwrap_or_else(PoisonError::into_inner).insert(*digest, behaviour);
            Some(behaviour)
        })
    }

    /// Forgets what clients have sent.
    pub(super) fn forget(&self) {
        self.seen.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The SHA1 of a text.
pub(super) fn digest(text: &[u8]) -> Digest {
    Sha1::from(text).digest().bytes()
}

/// The digest that 40 hexadecimal digits are.
pub(super) fn parse_digest(text: &[u8]) -> Option<Digest> {
    let text = str::from_utf8(text).ok()?;
    Some(sha1_smol::Digest::from_str(text).ok()?.bytes())
}

/// A digest in hexadecimal digits.
pub(super) fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FromStr for GivenScript {
    type Err = GivenScriptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digest, behaviour) = text.split_once('=').ok_or(GivenScriptError::Form)?;
        let digest = parse_digest(digest.as_bytes()).ok_or(GivenScriptError::Form)?;
        let known = Behaviour::of_name(behaviour);
        let behaviour = known.ok_or_else(|| GivenScriptError::Behaviour(behaviour.to_owned()))?;
        Ok(GivenScript { digest, behaviour })
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known of a script, for an operator.
pub(super) fn description(text: &[u8]) -> String {
    let found = Scripts::new([]).of_text(text);
    let known = found.map_or_else(|_| "unknown".to_owned(), |it| it.to_string());
    let normal = Sha1::from(normal_form(text)).digest();
    format!("{} {known} (normal form {normal})", hex(&digest(text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A release, as some client may write it.
    const RELEASE: &str = "
        if redis.call('get', KEYS[1]) == ARGV[1] then
            return redis.call('del', KEYS[1]) -- its own
        else
            return 0
        end";

    #[test]
    fn script_is_known_however_it_is_written() {
        let scripts = Scripts::new([]);
        let written = RELEASE.replace('\'', "\"").replace("get", "GET").replace('\n', " ;\r\n\t");
        let written = written.replace("-- its own", "--[[ its\n own ]]");
        for text in [RELEASE, &written] {
            assert_eq!(scripts.of_text(text.as_bytes()), Ok(Behaviour::Release), "{text}");
            assert_eq!(scripts.of_digest(&digest(text.as_bytes())), Some(Behaviour::Release));
        }
        let other = RELEASE.replace("return 0", "return 1");
        assert_eq!(scripts.of_text(other.as_bytes()), Err(digest(other.as_bytes())));
        assert_eq!(scripts.of_digest(&digest(other.as_bytes())), None);
        scripts.forget();
        assert_eq!(scripts.of_digest(&digest(written.as_bytes())), None, "it must be sent again");
    }

    #[test]
    fn operator_says_what_a_script_does() {
        let text = b"return redis.call('mine')";
        let given = format!("{}=extend", hex(&digest(text)));
        let scripts = Scripts::new([given.parse().expect("it is one")]);
        assert_eq!(scripts.of_text(text), Ok(Behaviour::Extend));
        let error = |text: &str| text.parse::<GivenScript>().expect_err("it is none").to_string();
        assert!(error("abc=extend").contains("40 hexadecimal digits"));
        assert!(error(&given.replace("extend", "steal")).contains("redisson-unlock"));
    }

    #[test]
    fn behaviours_have_names_of_their_own() {
        for name in Behaviour::names() {
            assert_eq!(Behaviour::of_name(name).map(Behaviour::name), Some(name));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_taken_for_a_script(text: Vec<u8>) {
            prop_assert!(Scripts::new([]).of_text(&text).is_err());
        }

        #[test]
        fn script_with_another_word_is_not_known(
            at in 0..RELEASE.len(),
            word in prop::sample::select(vec![
                "1", "'", "\"", "[[", "]]", "--[[", "--[==[", "(", "KEYS[2]", "not ", "redis.call",
            ]),
        ) {
            let text = [&RELEASE[..at], word, &RELEASE[at..]].concat();
            // Within a comment it is none.
            let is_comment = at > RELEASE.find("--").expect("it has one")
                && at <= RELEASE.find(" its own").expect("it has one") + " its own".len();
            let found = Scripts::new([]).of_text(text.as_bytes());
            prop_assert!(found.is_err() || is_comment, "{text}");
        }
    }
}
