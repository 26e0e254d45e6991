//! Errors as clients see them: the first word says which, for programs.

use bakery_lock::{ContenderInfo, EnsureError, FencingError, LockError, TableError, UnlockError};

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
        match &error {
            LockError::Option(_) => Refusal::error(&chain(&error)),
            LockError::TimedOut { cause: None, user, ahead, .. } => {
                let who = user.as_ref().map(|user| user.owner.as_str());
                let who = who.or_else(|| ahead.first().map(first_owner));
                Refusal::of("LOCKFAILED", &format!("timedout {}", who.unwrap_or("nobody known")))
            }
            LockError::Revoked { .. } => Refusal::of("LOCKFAILED", &format!("revoked {error}")),
            LockError::Lost { .. } => Refusal::of("LOCKFAILED", &format!("lost {error}")),
            LockError::TimedOut { .. }
            | LockError::Refused { .. }
            | LockError::RowMissing { .. }
            | LockError::WorkStopped { .. }
            | LockError::NoTicketLeft { .. }
            | LockError::MarkOutOfReach { .. }
            | LockError::HostRemoved { .. }
            | LockError::ClocksDiffer { .. }
            | LockError::TableGone { .. }
            | LockError::Closed
            | LockError::Forked
            | _ => Refusal::no_lock(&chain(&error)),
        }
    }
}

fn first_owner(contender: &ContenderInfo) -> &str {
    contender.owner.as_str()
}

impl From<EnsureError> for Refusal {
    fn from(error: EnsureError) -> Self {
        match &error {
            EnsureError::Lost { .. } | EnsureError::Released { .. } => {
                Refusal::of("LOST", &chain(&error))
            }
            EnsureError::TooLong { .. } | EnsureError::Unchangeable { .. } => {
                Refusal::limit(&chain(&error))
            }
            EnsureError::Option(_) => Refusal::error(&chain(&error)),
            EnsureError::Unconfirmed { .. } | EnsureError::Closed | _ => {
                Refusal::no_lock(&chain(&error))
            }
        }
    }
}

impl From<FencingError> for Refusal {
    fn from(error: FencingError) -> Self {
        match &error {
            FencingError::Lost { .. } => Refusal::of("LOST", &chain(&error)),
            FencingError::Limited { .. }
            | FencingError::Downgraded { .. }
            | FencingError::Poisoned { .. }
            | FencingError::Refused { .. }
            | FencingError::TimedOut { .. }
            | FencingError::Released { .. }
            | FencingError::Closed
            | _ => Refusal::of("NOTOKEN", &chain(&error)),
        }
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
