//! Errors as clients see them: the first word says which, for programs.

use bakery_lock::{EnsureError, FencingError, LockError, Owner, TableError, UnlockError};

use super::resp::Reply;
use crate::output::chain;

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(String);

impl Refusal {
    /// The command makes no sense as it is.
    pub(super) fn error(why: &str) -> Self {
        Refusal(format!("ERR {why}"))
    }

    /// The same with another first word.
    pub(super) fn of(code: &str, why: &str) -> Self {
        Refusal(format!("{code} {why}"))
    }

    /// No lock can be had at all: clients must not take that for a lock that is free or taken.
    pub(super) fn no_lock(why: &str) -> Self {
        Refusal::of("NOLOCK", why)
    }

    /// The daemon allows no more.
    pub(super) fn limit(why: &str) -> Self {
        Refusal::of("LIMIT", why)
    }

    /// The text.
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl From<Refusal> for Reply {
    fn from(Refusal(text): Refusal) -> Self {
        Reply::Error(text)
    }
}

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        if let LockError::TimedOut { cause: None, user, ahead, .. } = &error {
            let user = user.as_ref().map(|user| &user.owner);
            let who = user.or_else(|| ahead.first().map(|contender| &contender.owner));
            let who = who.map_or("an unknown holder", Owner::as_str);
            Refusal::of("LOCKFAILED", &format!("timedout {who}"))
        } else if let LockError::Revoked { .. } = &error {
            Refusal::of("LOCKFAILED", &format!("revoked {error}"))
        } else if let LockError::Lost { .. } = &error {
            Refusal::of("LOCKFAILED", &format!("lost {error}"))
        } else if let LockError::Option(_) = &error {
            Refusal::error(&chain(&error))
        } else {
            Refusal::no_lock(&chain(&error))
        }
    }
}

impl From<EnsureError> for Refusal {
    fn from(error: EnsureError) -> Self {
        let text = chain(&error);
        if matches!(error, EnsureError::Lost { .. } | EnsureError::Released { .. }) {
            Refusal::of("LOST", &text)
        } else if matches!(error, EnsureError::TooLong { .. } | EnsureError::Unchangeable { .. }) {
            Refusal::limit(&text)
        } else if let EnsureError::Option(_) = error {
            Refusal::error(&text)
        } else {
            Refusal::no_lock(&text)
        }
    }
}

impl From<FencingError> for Refusal {
    fn from(error: FencingError) -> Self {
        let is_lost = matches!(error, FencingError::Lost { .. });
        Refusal::of(if is_lost { "LOST" } else { "NOTOKEN" }, &chain(&error))
    }
}

impl From<UnlockError> for Refusal {
    fn from(error: UnlockError) -> Self {
        Refusal::no_lock(&chain(&error))
    }
}

impl From<TableError> for Refusal {
    fn from(error: TableError) -> Self {
        Refusal::no_lock(&chain(&error))
    }
}
