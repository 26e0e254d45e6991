//! Classifies errors of the driver by the outcome of the request.

use std::sync::Arc;

use scylla::errors::{
    ConnectionPoolError, DbError, ExecutionError, PrepareError, RequestAttemptError,
};

use super::login::refuses_login;
use crate::store::{DatabaseError, Denial, MissingPermission, Outcome};

/// Classifies the failure of a request.
///
/// With the fall-through retry policy and without speculative execution, the driver reports the
/// error of the only attempt that was sent. The driver's enums may grow: an error unknown here
/// counts as an unknown outcome, which is always safe.
pub(super) fn classify(error: &ExecutionError) -> DatabaseError {
    verdict(error).of(error.clone()).denied(denial(error))
}

/// Classifies a failure to prepare a statement. Preparing changes nothing.
pub(super) fn classify_preparation(error: &PrepareError) -> DatabaseError {
    preparation(error).of(error.clone()).denied(denied_preparation(error))
}

/// The outcome of a request, and whether to retry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Not applied; the statement itself is refused.
    Refused,
    /// Not applied; a retry may succeed.
    NotApplied,
    /// May be applied, now or later.
    Unknown,
}

impl Verdict {
    fn of(self, error: impl std::error::Error + Send + Sync + 'static) -> DatabaseError {
        match self {
            Verdict::Refused => DatabaseError::permanent(error),
            Verdict::NotApplied => DatabaseError::new(Outcome::NotApplied, error),
            Verdict::Unknown => DatabaseError::new(Outcome::Unknown, error),
        }
    }
}

fn verdict(error: &ExecutionError) -> Verdict {
    match error {
        ExecutionError::BadQuery(_) => Verdict::Refused,
        ExecutionError::EmptyPlan => Verdict::NotApplied,
        ExecutionError::ConnectionPoolError(error) => no_connection(error),
        ExecutionError::PrepareError(error) => preparation(error),
        ExecutionError::LastAttemptError(error) => attempt(error),
        // After a timeout the request stays in flight. The other three come after an answer.
        ExecutionError::RequestTimeout(_)
        | ExecutionError::UseKeyspaceError(_)
        | ExecutionError::SchemaAgreementError(_)
        | ExecutionError::MetadataError(_)
        | _ => Verdict::Unknown,
    }
}

fn preparation(error: &PrepareError) -> Verdict {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => match attempt(first_attempt) {
            Verdict::Refused => Verdict::Refused,
            Verdict::NotApplied | Verdict::Unknown => Verdict::NotApplied,
        },
        PrepareError::ConnectionPoolError(error) => no_connection(error),
        PrepareError::PreparedStatementIdsMismatch | _ => Verdict::NotApplied,
    }
}

/// No node took the request. A refused login is refused again: a session does not change its
/// credentials.
fn no_connection(error: &ConnectionPoolError) -> Verdict {
    if refuses_login(error) { Verdict::Refused } else { Verdict::NotApplied }
}

fn attempt(error: &RequestAttemptError) -> Verdict {
    match error {
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_) => Verdict::Refused,
        // The node did not know the prepared statement, so it executed nothing, and preparing it
        // again gave a different one: the table was replaced.
        RequestAttemptError::RepreparedIdChanged { .. }
        | RequestAttemptError::RepreparedIdMissingInBatch => Verdict::Refused,
        RequestAttemptError::UnableToAllocStreamId => Verdict::NotApplied,
        RequestAttemptError::DbError(error, _) => answer(error),
        RequestAttemptError::BrokenConnectionError(_)
        | RequestAttemptError::BodyExtensionsParseError(_)
        | RequestAttemptError::CqlResultParseError(_)
        | RequestAttemptError::CqlErrorParseError(_)
        | RequestAttemptError::UnexpectedResponse(_)
        | RequestAttemptError::NonfinishedPagingState
        | _ => Verdict::Unknown,
    }
}

fn answer(error: &DbError) -> Verdict {
    match error {
        // `Invalid` is also the answer when the table is gone.
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::AlreadyExists { .. }
        | DbError::AuthenticationError
        | DbError::Unauthorized
        | DbError::ConfigError => Verdict::Refused,
        // A coordinator counts live replicas before it sends a plain write to any.
        DbError::Unavailable { .. } | DbError::IsBootstrapping | DbError::Unprepared { .. } => {
            Verdict::NotApplied
        }
        DbError::RateLimitReached { rejected_by_coordinator: true, .. } => Verdict::NotApplied,
        // `Overloaded` is mostly reported before execution, but mostly is not enough.
        DbError::RateLimitReached { .. }
        | DbError::Overloaded
        | DbError::WriteTimeout { .. }
        | DbError::WriteFailure { .. }
        | DbError::ReadTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::FunctionFailure { .. }
        | DbError::TruncateError
        | DbError::ServerError
        | DbError::ProtocolError
        | DbError::Other(_)
        | _ => Verdict::Unknown,
    }
}

/// What was denied, if that is the cause.
fn denial(error: &ExecutionError) -> Option<Denial> {
    if let ExecutionError::PrepareError(error) = error {
        denied_preparation(error)
    } else if let ExecutionError::LastAttemptError(attempt) = error {
        denied_attempt(attempt)
    } else if let ExecutionError::ConnectionPoolError(error) = error {
        denied_connection(error)
    } else {
        None
    }
}

fn denied_preparation(error: &PrepareError) -> Option<Denial> {
    if let PrepareError::AllAttemptsFailed { first_attempt } = error {
        denied_attempt(first_attempt)
    } else if let PrepareError::ConnectionPoolError(error) = error {
        denied_connection(error)
    } else {
        None
    }
}

fn denied_attempt(attempt: &RequestAttemptError) -> Option<Denial> {
    if let RequestAttemptError::DbError(DbError::Unauthorized, said) = attempt {
        MissingPermission::parse(said).map(|grant| Denial::Permission(Arc::new(grant)))
    } else if let RequestAttemptError::DbError(DbError::AuthenticationError, _) = attempt {
        Some(Denial::Login)
    } else {
        None
    }
}

fn denied_connection(error: &ConnectionPoolError) -> Option<Denial> {
    refuses_login(error).then_some(Denial::Login)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::errors::{
        BadKeyspaceName, BadQuery, BrokenConnectionErrorKind, ConnectionError, CqlResponseKind,
        OperationType, SchemaAgreementError, UseKeyspaceError, WriteType,
    };
    use scylla::statement::Consistency;

    use super::*;

    const QUORUM: Consistency = Consistency::Quorum;

    fn check_answers(expected: Verdict, answers: impl IntoIterator<Item = DbError>) {
        for error in answers {
            let error = RequestAttemptError::DbError(error, "said the server".into());
            assert_eq!(attempt(&error), expected, "{error:?}");
            assert_eq!(verdict(&error.clone().into()), expected, "{error:?}");
        }
    }

    #[test]
    fn answers_that_say_that_nothing_was_applied() {
        let refused = [
            DbError::SyntaxError,
            DbError::Invalid,
            DbError::AlreadyExists { keyspace: "k".into(), table: "t".into() },
            DbError::AuthenticationError,
            DbError::Unauthorized,
            DbError::ConfigError,
        ];
        check_answers(Verdict::Refused, refused);
        let op_type = OperationType::Write;
        let not_applied = [
            DbError::Unavailable { consistency: QUORUM, required: 2, alive: 1 },
            DbError::IsBootstrapping,
            DbError::Unprepared { statement_id: Vec::new().into() },
            DbError::RateLimitReached { op_type, rejected_by_coordinator: true },
        ];
        check_answers(Verdict::NotApplied, not_applied);
    }

    #[test]
    fn answers_that_leave_the_outcome_open() {
        let (consistency, received, required, numfailures) = (QUORUM, 1, 2, 1);
        let (write_type, data_present) = (WriteType::UnloggedBatch, false);
        let op_type = OperationType::Write;
        let (keyspace, function, arg_types) = ("k".into(), "f".into(), Vec::new());
        let unknown = [
            DbError::WriteTimeout { consistency, received, required, write_type },
            DbError::WriteFailure {
                consistency,
                received,
                required,
                numfailures,
                write_type: WriteType::Simple,
            },
            DbError::ReadTimeout { consistency, received, required, data_present },
            DbError::ReadFailure { consistency, received, required, numfailures, data_present },
            DbError::RateLimitReached { op_type, rejected_by_coordinator: false },
            DbError::Overloaded,
            DbError::TruncateError,
            DbError::ServerError,
            DbError::ProtocolError,
            DbError::FunctionFailure { keyspace, function, arg_types },
            DbError::Other(0x1700),
        ];
        check_answers(Verdict::Unknown, unknown);
    }

    #[test]
    fn attempts_that_brought_no_answer() {
        let broken = BrokenConnectionErrorKind::TooManyOrphanedStreamIds(1).into();
        for (error, expected) in [
            (RequestAttemptError::UnableToAllocStreamId, Verdict::NotApplied),
            (RequestAttemptError::BrokenConnectionError(broken), Verdict::Unknown),
            (RequestAttemptError::UnexpectedResponse(CqlResponseKind::Ready), Verdict::Unknown),
            (RequestAttemptError::NonfinishedPagingState, Verdict::Unknown),
            (RequestAttemptError::RepreparedIdMissingInBatch, Verdict::Refused),
            (
                RequestAttemptError::RepreparedIdChanged {
                    statement: "SELECT".into(),
                    expected_id: vec![1],
                    reprepared_id: vec![2],
                },
                Verdict::Refused,
            ),
        ] {
            assert_eq!(attempt(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn requests_that_the_driver_gave_up() {
        let io = ConnectionError::IoError(Arc::new(std::io::ErrorKind::ConnectionRefused.into()));
        let pool = ConnectionPoolError::Broken { last_connection_error: io };
        let refused = PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(DbError::Invalid, "no table".into()),
        };
        let slow = PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(DbError::ServerError, "busy".into()),
        };
        for (error, expected) in [
            (BadQuery::PartitionKeyExtraction.into(), Verdict::Refused),
            (BadQuery::ValuesTooLongForKey(65_536, 65_535).into(), Verdict::Refused),
            (ExecutionError::EmptyPlan, Verdict::NotApplied),
            (pool.clone().into(), Verdict::NotApplied),
            (PrepareError::from(pool).into(), Verdict::NotApplied),
            (PrepareError::PreparedStatementIdsMismatch.into(), Verdict::NotApplied),
            (refused.into(), Verdict::Refused),
            (slow.into(), Verdict::NotApplied),
            (ExecutionError::RequestTimeout(Duration::from_secs(1)), Verdict::Unknown),
            (UseKeyspaceError::from(BadKeyspaceName::Empty).into(), Verdict::Unknown),
            (SchemaAgreementError::Timeout(Duration::from_secs(1)).into(), Verdict::Unknown),
        ] {
            assert_eq!(verdict(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn missing_grant_is_told() {
        let denied = |said: &str| RequestAttemptError::DbError(DbError::Unauthorized, said.into());
        let said = "User app has no MODIFY permission on <table k.t> or any of its parents";
        let prepared = PrepareError::AllAttemptsFailed { first_attempt: denied(said) };
        for error in [
            classify(&denied(said).into()),
            classify(&prepared.clone().into()),
            classify_preparation(&prepared),
        ] {
            let expected = "a request failed and was not applied; user \"app\" lacks a permission: \
                            run `GRANT MODIFY ON TABLE \"k\".\"t\" TO \"app\";`";
            assert_eq!((error.to_string().as_str(), error.is_permanent()), (expected, true));
        }
        let invalid = RequestAttemptError::DbError(DbError::Invalid, said.into());
        for error in [denied("not now"), invalid] {
            assert_eq!(classify(&error.into()).missing_permission(), None);
        }
    }

    #[test]
    fn refused_login_is_told_from_a_missing_grant() {
        let answer = RequestAttemptError::DbError(DbError::AuthenticationError, "no".into());
        let error = classify(&answer.into());
        assert!(error.is_login_refused() && error.missing_permission().is_none(), "{error:?}");
        let pool =
            ConnectionPoolError::Broken { last_connection_error: ConnectionError::ConnectTimeout };
        for error in [pool, ConnectionPoolError::Initializing] {
            assert!(!classify(&error.into()).is_login_refused());
        }
    }

    #[test]
    fn error_of_the_driver_is_kept() {
        let error = classify(&ExecutionError::RequestTimeout(Duration::from_secs(1)));
        assert_eq!((error.outcome(), error.is_permanent()), (Outcome::Unknown, false));
        let source = std::error::Error::source(&error).expect("an error of the driver is kept");
        assert!(source.to_string().contains("1000ms"), "{source}");
        let error = classify(&BadQuery::PartitionKeyExtraction.into());
        assert_eq!((error.outcome(), error.is_permanent()), (Outcome::NotApplied, true));
    }
}
