//! Logins that nodes refuse.
//!
//! A session keeps the credentials that it was built with, and logs in with them at each new
//! connection. Where they are no longer valid, locks work until the last connection ends.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
};
use tracing::{info, warn};

use crate::store::DatabaseError;

/// Whether a node refuses the login of new connections. A pool reports the last error of its node.
pub(super) fn refuses_login(error: &ConnectionPoolError) -> bool {
    let ConnectionPoolError::Broken { last_connection_error, .. } = error else {
        return false;
    };
    let ConnectionError::ConnectionSetupRequestError(setup) = last_connection_error else {
        return false;
    };
    if let ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, said) =
        &setup.error
    {
        return !was_unchecked(said);
    }
    matches!(setup.error, ConnectionSetupRequestErrorKind::MissingAuthentication)
}

/// Whether the node could not look up the login, because too few replicas of `system_auth` answer:
/// it answers with the error of a wrong password then. That passes.
fn was_unchecked(said: &str) -> bool {
    let said = said.to_lowercase();
    ["unable to perform authentication", "cannot achieve", "timed out", "timeout", "unavailable"]
        .iter()
        .any(|part| said.contains(part))
}

/// Logs that the login of a session is refused: once, until a request is answered again.
#[derive(Debug, Default)]
pub(super) struct LoginWatch {
    is_refused: AtomicBool,
}

impl LoginWatch {
    /// Looks at the answer of a request.
    pub(super) fn seen<T>(&self, answer: &Result<T, DatabaseError>) {
        let cause = answer.as_ref().err().and_then(Error::source);
        match self.change(answer) {
            Some(Change::Refused) => warn!(
                cause,
                "the nodes refuse the login of the session: no lock is granted or renewed; build \
                 another session with the present credentials, and another client on it"
            ),
            Some(Change::Accepted) => info!("the nodes accept the login of the session again"),
            None => {}
        }
    }

    fn change<T>(&self, answer: &Result<T, DatabaseError>) -> Option<Change> {
        match answer {
            Ok(_) => {
                let was_refused = self.is_refused.swap(false, Ordering::Relaxed);
                was_refused.then_some(Change::Accepted)
            }
            Err(error) if error.is_login_refused() => {
                let was_refused = self.is_refused.swap(true, Ordering::Relaxed);
                (!was_refused).then_some(Change::Refused)
            }
            Err(_) => None,
        }
    }
}

/// What is new about the login of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Refused,
    Accepted,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::spawn;

    use scylla::client::session_builder::SessionBuilder;
    use scylla::errors::{MetadataError, NewSessionError, PrepareError};

    use super::super::classify::{classify, classify_preparation};
    use super::*;
    use crate::store::{Denial, Outcome};

    const ERROR: u8 = 0x00;
    const STARTUP: u8 = 0x01;
    const AUTHENTICATE: u8 = 0x03;
    const SUPPORTED: u8 = 0x06;
    const AUTH_RESPONSE: u8 = 0x0F;

    const BAD_CREDENTIALS: u32 = 0x0100;

    /// The error of a session to a node that asks for a login and answers this.
    async fn login_answered(said: &'static str, user: Option<&str>) -> ConnectionPoolError {
        let node = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
        let address = node.local_addr().expect("it is bound").to_string();
        spawn(move || {
            for connection in node.incoming().flatten() {
                spawn(move || answer(connection, said));
            }
        });
        let builder = SessionBuilder::new().known_node(address);
        let builder = if let Some(user) = user { builder.user(user, "old") } else { builder };
        match builder.build().await {
            Err(NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error))) => error,
            other => panic!("it did not get as far as the login: {:?}", other.err()),
        }
    }

    /// Speaks as much of the protocol as a login takes, until the other end has gone.
    fn answer(mut connection: TcpStream, said: &str) {
        let mut header = [0; 9];
        while connection.read_exact(&mut header).is_ok() {
            let [_, _, stream_high, stream_low, opcode, length @ ..] = header;
            let length = usize::try_from(u32::from_be_bytes(length)).expect("it is short");
            if connection.read_exact(&mut vec![0; length]).is_err() {
                return;
            }
            let (opcode, body) = match opcode {
                STARTUP => (AUTHENTICATE, string("PasswordAuthenticator")),
                AUTH_RESPONSE => {
                    (ERROR, [&BAD_CREDENTIALS.to_be_bytes()[..], &string(said)].concat())
                }
                // What does it support? Nothing in particular.
                _ => (SUPPORTED, vec![0, 0]),
            };
            let length = u32::try_from(body.len()).expect("it is short").to_be_bytes();
            let header = [0x84, 0, stream_high, stream_low, opcode];
            let frame = [&header[..], &length, &body].concat();
            if connection.write_all(&frame).is_err() {
                return;
            }
        }
    }

    fn string(text: &str) -> Vec<u8> {
        let length = u16::try_from(text.len()).expect("it is short").to_be_bytes();
        [&length[..], text.as_bytes()].concat()
    }

    // Goal: a login that a node refuses to new connections is a refusal and is named, with what to
    // do; one that the node could not check is an outage.
    // Method: a session to a node that answers logins so; its error, as requests and preparations
    // get it from the pool of the node.
    #[tokio::test]
    async fn refused_login_is_a_refusal() {
        const APP: Option<&str> = Some("app");
        for (said, user, refused) in [
            ("Provided username app and/or password are incorrect", APP, true),
            ("app is not permitted to log in", APP, true),
            ("it is not asked", None, true),
            ("Unable to perform authentication: Cannot achieve consistency level ONE", APP, false),
        ] {
            let pool = login_answered(said, user).await;
            let prepared = PrepareError::from(pool.clone());
            for error in [
                classify(&pool.clone().into()),
                classify(&prepared.clone().into()),
                classify_preparation(&prepared),
            ] {
                let found = (error.is_login_refused(), error.is_permanent(), error.outcome());
                assert_eq!(found, (refused, refused, Outcome::NotApplied), "{said}: {error:?}");
                let text = error.to_string();
                assert_eq!(text.contains("build another session"), refused, "{said}: {text}");
            }
        }
    }

    #[test]
    fn refused_login_is_reported_once() {
        let watch = LoginWatch::default();
        let refused = || Err(DatabaseError::permanent("no").denied(Some(Denial::Login)));
        let silent = || Err(DatabaseError::new(Outcome::Unknown, "no answer"));
        for (answer, expected) in [
            (Ok(()), None),
            (refused(), Some(Change::Refused)),
            (silent(), None),
            (refused(), None),
            (Ok(()), Some(Change::Accepted)),
            (Ok(()), None),
            (silent(), None),
            (refused(), Some(Change::Refused)),
        ] {
            assert_eq!(watch.change(&answer), expected, "{answer:?}");
        }
    }
}
