//! A permission that the database user lacks.

use std::error::Error;

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

use crate::connect::ConnectOptions;

/// A permission that the database user lacks, and how to get it.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.found(), self.advice())]
pub(crate) struct Denied {
    user: String,
    keyspace: String,
    /// The database's message, which names the permission.
    said: String,
}

impl Denied {
    /// The denied permission, if that is the cause of an error.
    pub(crate) fn cause_of(
        error: &(dyn Error + 'static),
        connection: &ConnectOptions,
    ) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(said) = unauthorized(error) {
                let user = connection.user.clone().unwrap_or_default();
                let keyspace = connection.keyspace.clone();
                return Some(Denied { user, keyspace, said: said.to_owned() });
            }
            cause = error.source();
        }
        None
    }

    pub(crate) fn found(&self) -> String {
        format!("user {:?} lacks a permission: {}", self.user, self.said)
    }

    pub(crate) fn advice(&self) -> String {
        let Denied { user, keyspace, said } = self;
        if ["CREATE", "ALTER"].iter().any(|right| said.contains(&format!("no {right} permission")))
        {
            return "run `lock-hosts init` as a user that may create keyspaces and tables"
                .to_owned();
        }
        let user = user.replace('"', "\"\"");
        format!(
            "run GRANT SELECT, MODIFY ON KEYSPACE \"{keyspace}\" TO \"{user}\", or use another user"
        )
    }
}

/// The database's message, if it denied a request.
fn unauthorized<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let preparation = match error.downcast_ref() {
        Some(ExecutionError::LastAttemptError(attempt)) => return denial(attempt),
        Some(ExecutionError::PrepareError(error)) => Some(error),
        _ => error.downcast_ref(),
    };
    if let Some(PrepareError::AllAttemptsFailed { first_attempt }) = preparation {
        denial(first_attempt)
    } else {
        None
    }
}

fn denial(attempt: &RequestAttemptError) -> Option<&str> {
    if let RequestAttemptError::DbError(DbError::Unauthorized, said) = attempt {
        Some(said)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        connection: ConnectOptions,
    }

    #[derive(Debug)]
    struct Outer<E>(E);

    impl<E> fmt::Display for Outer<E> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("something failed")
        }
    }

    impl<E: Error + 'static> Error for Outer<E> {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn told(error: &(dyn Error + 'static)) -> Option<String> {
        let arguments = ["test", "--user", "app", "--keyspace", "K"];
        let Arguments { connection } = Arguments::parse_from(arguments);
        Denied::cause_of(error, &connection).map(|denied| denied.to_string())
    }

    #[test]
    fn a_missing_grant_is_found_below_other_errors() {
        let denied = |said: &str| RequestAttemptError::DbError(DbError::Unauthorized, said.into());
        let select = "User app has no SELECT permission on <table K.lock_hosts>";
        let error = Outer(Outer(ExecutionError::LastAttemptError(denied(select))));
        let expected = format!(
            "user \"app\" lacks a permission: {select}; run GRANT SELECT, MODIFY ON KEYSPACE \"K\" \
             TO \"app\", or use another user"
        );
        assert_eq!(told(&error), Some(expected.clone()));
        let prepared = PrepareError::AllAttemptsFailed { first_attempt: denied(select) };
        assert_eq!(told(&Outer(prepared.clone())), Some(expected.clone()));
        assert_eq!(told(&Outer(ExecutionError::PrepareError(prepared))), Some(expected));

        let create = denied("User app has no CREATE permission on <all keyspaces>");
        let told_of_create = told(&ExecutionError::LastAttemptError(create));
        assert!(told_of_create.is_some_and(|told| told.contains("may create keyspaces")));
        assert_eq!(told(&Outer(ExecutionError::EmptyPlan)), None);
        let invalid = RequestAttemptError::DbError(DbError::Invalid, select.into());
        assert_eq!(told(&ExecutionError::LastAttemptError(invalid)), None);
    }
}
