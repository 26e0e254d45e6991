//! Why there is no session.

use std::fmt;
use std::time::Duration;

use scylla::errors::{
    BrokenConnectionError, BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError,
    ConnectionSetupRequestErrorKind, DbError, MetadataError, NewSessionError,
};

use super::{Node, PASSWORD_VARIABLE};
use crate::output::lower_first;

/// Why one node gave no session.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) node: Node,
    pub(super) cause: Cause,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Cause {
    /// The driver failed.
    Failed(NewSessionError),
    /// The node did not answer in time.
    Silent,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(
        "no node can be reached; check --nodes, and TLS if the nodes require it: {}",
        Reasons(refusals, *waited)
    )]
    Unreachable { refusals: Vec<Refusal>, waited: Duration },
    #[error(
        "the nodes require a login: give --user, and the password in {PASSWORD_VARIABLE} or with \
         --password-file"
    )]
    LoginRequired,
    #[error("the login of user {user:?} was refused, check user and password: {said}")]
    LoginRefused { user: String, said: String },
    #[error(
        "the nodes could not check the login of user {user:?}: too few replicas of keyspace \
         system_auth answer; start nodes, or replicate it on more of them: {said}"
    )]
    LoginUnchecked { user: String, said: String },
}

impl ConnectError {
    /// The error for the failed attempts of a user at some nodes. A node's answer to the login is
    /// more useful than the fact that another node can't be reached.
    pub(super) fn of(refusals: Vec<Refusal>, user: Option<&str>, waited: Duration) -> Self {
        let user = user.unwrap_or_default().to_owned();
        let logins = || refusals.iter().filter_map(Refusal::login);
        let refused = logins().find(|login| matches!(login, Login::Refused(_)));
        match refused.or_else(|| logins().next()) {
            Some(Login::Required) => ConnectError::LoginRequired,
            Some(Login::Refused(said)) => {
                ConnectError::LoginRefused { user, said: said.to_owned() }
            }
            Some(Login::Unchecked(said)) => {
                ConnectError::LoginUnchecked { user, said: said.to_owned() }
            }
            None => ConnectError::Unreachable { refusals, waited },
        }
    }
}

/// A node's answer to a login.
enum Login<'a> {
    Required,
    Refused(&'a str),
    Unchecked(&'a str),
}

impl Refusal {
    fn login(&self) -> Option<Login<'_>> {
        let ConnectionError::ConnectionSetupRequestError(setup) = self.connection_error()? else {
            return None;
        };
        if matches!(setup.error, ConnectionSetupRequestErrorKind::MissingAuthentication) {
            return Some(Login::Required);
        }
        let ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, said) =
            &setup.error
        else {
            return None;
        };
        Some(if was_unchecked(said) { Login::Unchecked(said) } else { Login::Refused(said) })
    }

    fn connection_error(&self) -> Option<&ConnectionError> {
        match &self.cause {
            Cause::Failed(NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
                ConnectionPoolError::Broken { last_connection_error, .. },
            ))) => Some(last_connection_error),
            Cause::Failed(_) | Cause::Silent => None,
        }
    }

    /// Whether the node accepted the connection and was then silent.
    fn is_mute(&self) -> bool {
        let broken = match self.connection_error() {
            Some(ConnectionError::BrokenConnection(broken)) => Some(broken),
            Some(ConnectionError::ConnectionSetupRequestError(setup)) => {
                if let ConnectionSetupRequestErrorKind::BrokenConnection(broken) = &setup.error {
                    Some(broken)
                } else {
                    None
                }
            }
            _ => None,
        };
        let kind = broken.and_then(BrokenConnectionError::downcast_ref);
        matches!(kind, Some(BrokenConnectionErrorKind::KeepaliveTimeout(_)))
    }
}

/// If a node can't look up the login, it answers with the error of a wrong password.
fn was_unchecked(said: &str) -> bool {
    let said = said.to_lowercase();
    ["unable to perform authentication", "cannot achieve", "timed out", "timeout", "unavailable"]
        .iter()
        .any(|part| said.contains(part))
}

/// Each node and its reason.
struct Reasons<'a>(&'a [Refusal], Duration);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reasons(refusals, waited) = self;
        for (index, refusal) in refusals.iter().enumerate() {
            let (comma, node) = (if index == 0 { "" } else { "; " }, &refusal.node);
            write!(f, "{comma}{node}{}: ", node.hint())?;
            match (&refusal.cause, refusal.connection_error()) {
                (Cause::Silent, _) => write!(f, "no answer within {waited:?}")?,
                (Cause::Failed(_), _) if refusal.is_mute() => {
                    f.write_str("it accepts connections, but does not answer")?;
                }
                (Cause::Failed(NewSessionError::FailedToResolveAnyHostname(_)), _) => {
                    f.write_str("its address can't be found")?;
                }
                (Cause::Failed(_), Some(error)) => f.write_str(&advised(&error.to_string()))?,
                (Cause::Failed(error), None) => f.write_str(&advised(&error.to_string()))?,
            }
        }
        Ok(())
    }
}

/// What the driver said, after what it means for certificates.
fn advised(said: &str) -> String {
    let meanings = [
        ("UnknownIssuer", "its certificate is not of the authority in --tls-ca"),
        (
            "certificate expired",
            "its certificate has expired: give it a new one; or this machine's clock is wrong",
        ),
        (
            "not valid yet",
            "its certificate is not valid yet: set this machine's clock, or that of its authority",
        ),
        ("not valid for name", "its certificate does not name this address"),
        ("CertificateRequired", "it asks for a certificate: give --tls-cert and --tls-key"),
        ("CertificateUnknown", "it does not trust the certificate in --tls-cert"),
        ("BadCertificate", "it does not take the certificate in --tls-cert, or asks for one"),
        // What netty's own TLS says of a certificate that it does not trust.
        ("alert: InternalError", "it may not trust the certificate in --tls-cert"),
    ];
    let said = lower_first(said);
    match meanings.iter().find(|(part, _)| said.contains(part)) {
        Some((_, meaning)) => format!("{meaning} ({said})"),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_told_by_what_to_do() {
        for (said, advice) in [
            ("Invalid peer certificate: UnknownIssuer", "--tls-ca"),
            ("invalid peer certificate: certificate expired: verification time 1", "a new one"),
            ("invalid peer certificate: certificate not valid yet: verification time 1", "clock"),
            ("received fatal alert: CertificateRequired", "give --tls-cert and --tls-key"),
        ] {
            let advised = advised(said);
            assert!(advised.contains(advice) && advised.contains(&lower_first(said)), "{advised}");
        }
        assert_eq!(advised("Connection refused"), "connection refused");
    }

    #[test]
    fn login_that_was_not_checked_is_not_wrong() {
        for said in [
            "Unable to perform authentication: Cannot achieve consistency level LOCAL_QUORUM",
            "Error during authentication of user app : Operation timed out - received only 1",
        ] {
            assert!(was_unchecked(said), "{said}");
        }
        for said in [
            "Provided username app and/or password are incorrect",
            "Username and/or password are incorrect",
            "app is not permitted to log in",
        ] {
            assert!(!was_unchecked(said), "{said}");
        }
    }
}
