//! Failures and their exit codes.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use bakery_lock::hosts::RegistryError;
use bakery_lock::schema::SchemaError;
use bakery_lock::{BuildError, LockError, TableError};

use crate::output::chain;

/// Why a command failed.
///
/// The text has only the outermost cause; [`Error::source`] leads to the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The answer is no: the database answered, and something is wrong.
    #[error(transparent)]
    No(Box<dyn Error + Send + Sync>),
    /// The command makes no sense as written. Nothing was sent.
    #[error(transparent)]
    Usage(Box<dyn Error + Send + Sync>),
    /// The database can't be reached, refuses the login, or does not answer.
    #[error(transparent)]
    Unreachable(Box<dyn Error + Send + Sync>),
    /// It failed before the command of `lockctl run` was started.
    #[error("{cause}")]
    BeforeCommand {
        /// The exit code.
        code: u8,
        /// Why it failed.
        #[source]
        cause: Box<Failure>,
    },
    /// A signal ended the command.
    #[error("interrupted")]
    Interrupted {
        /// The number of the signal.
        signal: u8,
    },
    /// Standard output can't be written.
    #[error("standard output can't be written")]
    Output(#[source] io::Error),
    /// The operating system refused something.
    #[error("{what}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

impl Failure {
    /// The exit code for what may fail before a command is started, as of `env` and `timeout`.
    pub(crate) const BEFORE_COMMAND: u8 = 125;

    /// The failure of a call of the operating system.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Failure::System { what, cause }
    }

    /// The exit code: 1 when the answer is no, 2 for usage, 3 when the database can't be reached,
    /// and the code of a shell when a signal ended the command.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// The same as a number.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::No(_) | Failure::Output(_) | Failure::System { .. } => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable(_) => 3,
            Failure::BeforeCommand { code, .. } => *code,
            Failure::Interrupted { signal } => 128 + signal,
        }
    }

    /// The same with an exit code that is not mistaken for one of a command: 69 if the database
    /// can't be reached, 125 for what else may fail.
    pub(crate) fn before_a_command(self) -> Self {
        let code = match &self {
            Failure::Unreachable(_) => 69,
            Failure::Interrupted { .. } => return self,
            Failure::No(_)
            | Failure::Usage(_)
            | Failure::Output(_)
            | Failure::System { .. }
            | Failure::BeforeCommand { .. } => Failure::BEFORE_COMMAND,
        };
        Failure::BeforeCommand { code, cause: Box::new(self) }
    }

    /// The text of a failure that may pass, for commands that continue until then.
    ///
    /// # Errors
    ///
    /// Any other failure.
    pub(crate) fn passing(self) -> Result<String, Self> {
        let may_pass = matches!(self, Failure::Unreachable(_));
        if may_pass { Ok(chain(&self)) } else { Err(self) }
    }

    /// Whether the reader of the output has gone, as with `lock-hosts list | head -1`: not a
    /// failure of the command.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let kind = match &error {
            LockError::Option(_) => Failure::Usage,
            LockError::TimedOut { .. } => Failure::Unreachable,
            LockError::Refused { .. }
            | LockError::RowMissing { .. }
            | LockError::Revoked { .. }
            | LockError::Lost { .. }
            | LockError::WorkStopped { .. }
            | LockError::NoTicketLeft { .. }
            | LockError::MarkOutOfReach { .. }
            | LockError::HostRemoved { .. }
            | LockError::ClocksDiffer { .. }
            | LockError::TableGone { .. }
            | LockError::Closed
            | LockError::Forked
            | _ => Failure::No,
        };
        kind(Box::new(error))
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        let kind = match &error {
            RegistryError::Schema(error) => return Failure::from(error.clone()),
            RegistryError::Masters(error) => return Failure::from(error.clone()),
            RegistryError::Name(_) | RegistryError::UnseenTooShort { .. } => Failure::Usage,
            RegistryError::Locked(LockError::TimedOut { cause: Some(_), .. })
            | RegistryError::Unanswered(_)
            | RegistryError::Unconfirmed { .. } => Failure::Unreachable,
            // A variant that is added later is an answer too.
            RegistryError::Locked(_)
            | RegistryError::Refused(_)
            | RegistryError::NotSeen
            | RegistryError::NoNumberLeft
            | _ => Failure::No,
        };
        kind(Box::new(error))
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        let kind = match &error {
            SchemaError::Name(_)
            | SchemaError::ReservedName
            | SchemaError::MaxTtl { .. }
            | SchemaError::MaxClockSkew { .. }
            | SchemaError::NoReplicas => Failure::Usage,
            SchemaError::Database(cause) if !cause.is_permanent() => Failure::Unreachable,
            SchemaError::Database(_)
            | SchemaError::MissingKeyspace { .. }
            | SchemaError::MissingTable { .. }
            | SchemaError::Differs { .. }
            | SchemaError::Unfit { .. }
            | SchemaError::Unmeasurable { .. }
            | SchemaError::NotRecorded { .. }
            | SchemaError::OtherConsistency { .. }
            | SchemaError::OtherProtocol { .. }
            | SchemaError::ClocksDiffer { .. }
            | SchemaError::Replaced { .. }
            | _ => Failure::No,
        };
        kind(Box::new(error))
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::Schema(error) => return Failure::from(error.clone()),
            BuildError::Registry(error) => return Failure::from(error.clone()),
            BuildError::Masters(error) => return Failure::from(error.clone()),
            BuildError::Option(_) => Failure::Usage,
            BuildError::Database(cause) if !cause.is_permanent() => Failure::Unreachable,
            BuildError::Database(_)
            | BuildError::UnknownHost { .. }
            | BuildError::HostRemoved { .. }
            | BuildError::Peers { .. }
            | BuildError::NotAdvertised { .. }
            | BuildError::NoRoute { .. }
            | BuildError::NoRandomness(_)
            | _ => Failure::No,
        };
        kind(Box::new(error))
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        let kind = match &error {
            TableError::Option(_) => Failure::Usage,
            TableError::TimedOut { .. } => Failure::Unreachable,
            TableError::Refused { .. }
            | TableError::Gone { .. }
            | TableError::Unreadable { .. }
            | TableError::MarkOutOfReach { .. }
            | TableError::Closed
            | TableError::Forked
            | _ => Failure::No,
        };
        kind(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_may_pass_and_nothing_else() {
        let why = || "no quorum answers".into();
        assert_eq!(
            Failure::Unreachable(why()).passing().ok().as_deref(),
            Some("no quorum answers")
        );
        assert!(Failure::No(why()).passing().is_err());
    }
}
