//! Who may use the daemon, and what the names of their locks begin with.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bakery_lock::InvalidOption;
use bakery_lock::admin::check_name;
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::refusal::Refusal;

/// The name of the user that a password alone means.
const DEFAULT: &str = "default";

/// Those who may use the daemon.
#[derive(Clone, Debug)]
pub(super) struct Users {
    /// Empty: everyone may, without a password.
    known: Vec<(Arc<User>, String)>,
    anyone: Arc<User>,
}

/// A user.
#[derive(Debug, Default)]
pub(super) struct User {
    name: String,
    /// What the names of its locks begin with in the table.
    pub(super) prefix: String,
}

/// The name of a lock, as a user has it and as it stands in the table.
#[derive(Clone, Debug)]
pub(super) struct LockName {
    text: Arc<str>,
    prefix: usize,
}

/// Why a file of users can't be used.
#[derive(Debug, Error)]
pub(super) enum UsersError {
    #[error("{} can't be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{} can be read by others: let its mode be 600", path.display())]
    Open { path: PathBuf },
    #[error(
        "{}, line {line}: write NAME PASSWORD, and the prefix of its locks or nothing",
        path.display()
    )]
    Line { path: PathBuf, line: usize },
    #[error("{} names no user", path.display())]
    NoUser { path: PathBuf },
}

impl Users {
    /// Everyone, without a password.
    pub(super) fn everyone() -> Self {
        Users { known: Vec::new(), anyone: Arc::default() }
    }

    /// Those that a file names: in each line a name, a password and a prefix, which may be missing.
    /// Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    ///
    /// The file can't be read, others can read it, or a line is not of this form.
    pub(super) fn from_file(path: &Path) -> Result<Self, UsersError> {
        use std::os::unix::fs::MetadataExt;
        let read = |cause| UsersError::Read { path: path.to_owned(), cause };
        if fs::metadata(path).map_err(read)?.mode() & 0o077 != 0 {
            return Err(UsersError::Open { path: path.to_owned() });
        }
        let text = fs::read_to_string(path).map_err(read)?;
        let mut users = Users::everyone();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<_> = line.split_whitespace().collect();
            let (name, password, prefix) = match words[..] {
                [name, password] => (name, password, ""),
                [name, password, prefix] => (name, password, prefix),
                _ => return Err(UsersError::Line { path: path.to_owned(), line: number + 1 }),
            };
            let user = User { name: name.to_owned(), prefix: prefix.to_owned() };
            users.known.push((Arc::new(user), password.to_owned()));
        }
        if users.known.is_empty() {
            return Err(UsersError::NoUser { path: path.to_owned() });
        }
        Ok(users)
    }

    /// Whether a password is asked for.
    pub(super) fn are_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// The user of a connection before it logs in, if it need not.
    pub(super) fn anyone(&self) -> Option<Arc<User>> {
        (!self.are_known()).then(|| Arc::clone(&self.anyone))
    }

    /// The user with this name and password.
    pub(super) fn login(&self, name: Option<&str>, password: &[u8]) -> Result<Arc<User>, Refusal> {
        if !self.are_known() {
            return if name.is_none_or(|name| name == DEFAULT) {
                Err(Refusal::error(
                    "AUTH <password> called without any password configured for the default user",
                ))
            } else {
                Ok(Arc::clone(&self.anyone))
            };
        }
        let name = name.unwrap_or(DEFAULT);
        // All are compared, so that the time says nothing.
        let mut found = None;
        for (user, expected) in &self.known {
            let is_right = bool::from(expected.as_bytes().ct_eq(password));
            if user.name == name && is_right {
                found = Some(Arc::clone(user));
            }
        }
        found.ok_or_else(|| {
            Refusal::of("WRONGPASS", "invalid username-password pair or user is disabled.")
        })
    }
}

impl User {
    /// The lock that a user calls so.
    pub(super) fn lock(&self, name: &[u8]) -> Result<LockName, Refusal> {
        let name = str::from_utf8(name)
            .map_err(|_| Refusal::error("the name of a lock must be UTF-8 text"))?;
        let text: Arc<str> = format!("{}{name}", self.prefix).into();
        check_name(&text).map_err(|error: InvalidOption| Refusal::error(&error.to_string()))?;
        Ok(LockName { text, prefix: self.prefix.len() })
    }
}

impl LockName {
    /// A name as it stands in the table, of which this many bytes are not its user's.
    pub(super) fn of_table(text: &str, prefix: usize) -> Option<Self> {
        text.is_char_boundary(prefix).then(|| LockName { text: text.into(), prefix })
    }

    /// As it stands in the table.
    pub(super) fn in_table(&self) -> &str {
        &self.text
    }

    /// The same, shared.
    pub(super) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// As its user has it.
    pub(super) fn shown(&self) -> &str {
        &self.text[self.prefix..]
    }

    /// What it begins with in the table.
    pub(super) fn prefix(&self) -> &str {
        &self.text[..self.prefix]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        let user = |name: &str, prefix: &str| {
            Arc::new(User { name: name.to_owned(), prefix: prefix.to_owned() })
        };
        let known = vec![
            (user(DEFAULT, ""), "secret".to_owned()),
            (user("shop", "shop::"), "else".to_owned()),
        ];
        Users { known, ..Users::everyone() }
    }

    #[test]
    fn users_have_passwords_and_prefixes() {
        let users = users();
        assert!(users.anyone().is_none());
        let shop = users.login(Some("shop"), b"else").expect("it is its password");
        let name = shop.lock(b"cart").expect("it is a name");
        assert_eq!(
            (name.in_table(), name.shown(), name.prefix()),
            ("shop::cart", "cart", "shop::")
        );
        assert!(users.login(None, b"secret").is_ok());
        for (name, password) in [(None, "else"), (Some("shop"), "secret"), (Some("no"), "else")] {
            let refused = users.login(name, password.as_bytes()).expect_err("it is not");
            assert!(refused.text().starts_with("WRONGPASS "), "{refused:?}");
        }
    }

    #[test]
    fn names_are_those_that_the_table_takes() {
        let user = Users::everyone().anyone().expect("no one has a password");
        assert_eq!(user.lock("Zürich".as_bytes()).expect("it is one").shown(), "Zürich");
        for odd in [b"".as_slice(), b"\xff", &[b'a'; 65_536]] {
            let refused = user.lock(odd).expect_err("it is none");
            assert!(refused.text().starts_with("ERR "), "{refused:?}");
        }
    }
}
