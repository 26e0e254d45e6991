//! The settings of a lock table: recorded once, the same for all its clients.

use std::time::Duration;

use scylla::client::session::Session;

use super::existing::Names;
use super::{SchemaError, tables};
use crate::clock::{Clock, SystemClock};
use crate::finding::Finding;
use crate::options::{Consistency, PROTOCOL, Settings};
use crate::store::{DatabaseError, Outcome, Recorded, forget_settings_cql};

/// Records settings and the protocol unless they are recorded already. Returns whether it did. The
/// tables exist, with all their columns.
pub(super) async fn record(
    session: &Session,
    names: &Names,
    wanted: &Settings,
) -> Result<bool, SchemaError> {
    let record = names.record(session, true);
    let mut recorded = record.read().await?;
    let is_new = recorded.is_none();
    if is_new {
        record.write(wanted, SystemClock::new().unix_micros()).await?;
        recorded = record.read().await?;
    }
    let Some(recorded) = known(names, recorded)? else {
        let hidden = "the settings were written but are not there: the client that deleted older \
                      ones has a clock that is ahead; do the same again";
        return Err(DatabaseError::new(Outcome::Unknown, hidden).into());
    };
    match difference(names, &recorded, wanted) {
        None => Ok(is_new),
        Some(difference) => Err(SchemaError::Differs { differences: vec![difference] }),
    }
}

/// The recorded settings, if any. Refuses those of a protocol that this version does not know.
pub(super) fn known(
    names: &Names,
    recorded: Option<Recorded>,
) -> Result<Option<Settings>, SchemaError> {
    match recorded {
        None => Ok(None),
        Some(Recorded::Settings(settings)) => Ok(Some(settings)),
        Some(Recorded::OtherProtocol(recorded)) => {
            let (keyspace, lock_table) = (names.keyspace.to_string(), names.lock_table.to_string());
            Err(SchemaError::OtherProtocol { keyspace, lock_table, recorded, known: PROTOCOL })
        }
    }
}

/// The finding if recorded settings differ from `wanted`.
pub(super) fn difference(names: &Names, recorded: &Settings, wanted: &Settings) -> Option<Finding> {
    (recorded != wanted).then(|| {
        let change = how_to_change(names.keyspace.as_str(), names.lock_table.as_str());
        let found = format!("{recorded} are recorded, not {wanted}");
        Finding::error(subject(names), found, format!("use what is recorded, or {change}"))
    })
}

/// The settings of a client, which must use the recorded consistency.
pub(super) fn agreed(
    names: &Names,
    max_ttl: Duration,
    recorded: Option<Recorded>,
    asked_for: &Consistency,
) -> Result<Settings, SchemaError> {
    let (keyspace, lock_table) = (names.keyspace.to_string(), names.lock_table.to_string());
    match known(names, recorded)? {
        None => Err(SchemaError::NotRecorded { keyspace, lock_table, max_ttl }),
        Some(settings) if settings.consistency == *asked_for => Ok(settings),
        Some(Settings { consistency: recorded, .. }) => {
            let asked_for = asked_for.clone();
            Err(SchemaError::OtherConsistency { keyspace, lock_table, recorded, asked_for })
        }
    }
}

/// The finding about the settings.
pub(super) fn finding(
    names: &Names,
    max_ttl: Duration,
    recorded: Result<Option<Recorded>, DatabaseError>,
    asked_for: &Consistency,
) -> Finding {
    match recorded {
        Ok(recorded) => match agreed(names, max_ttl, recorded, asked_for) {
            Ok(settings) => {
                let found = format!("{settings} are recorded, for clients of protocol {PROTOCOL}");
                Finding::ok(subject(names), found)
            }
            Err(error) => tables::refusal(subject(names), &error),
        },
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let found = format!("they can't be read: {}", cause.unwrap_or_default());
            let advice = match error.missing_permission() {
                Some(grant) => format!("run `{grant}`"),
                None => "see what is said about the quorum".to_owned(),
            };
            Finding::error(subject(names), found, advice)
        }
    }
}

/// How to change the settings. Clients read them only when they are built.
pub(super) fn how_to_change(keyspace: &str, lock_table: &str) -> String {
    let forget = forget_settings_cql(keyspace, lock_table);
    format!("stop all clients, run {forget}, and then `lock-hosts init` with other settings")
}

/// How to let clients of another protocol use a table.
pub(super) fn how_to_change_the_protocol(keyspace: &str, lock_table: &str) -> String {
    let forget = forget_settings_cql(keyspace, lock_table);
    format!(
        "stop all clients for the longest ttl of the table, run {forget}, and then `lock-hosts \
         init` of the version that all of them shall use"
    )
}

fn subject(names: &Names) -> String {
    format!("settings of {}", names.lock_table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    const MAX_TTL: Duration = Duration::from_secs(60);

    fn names() -> Names {
        Names::check("k", "t").expect("these are names")
    }

    fn settings(consistency: Consistency, millis: u64) -> Settings {
        Settings { consistency, max_clock_skew: Duration::from_millis(millis) }
    }

    fn recorded(settings: Settings) -> Recorded {
        Recorded::Settings(settings)
    }

    fn local() -> Consistency {
        Consistency::LocalQuorum("dc1".to_owned())
    }

    #[test]
    fn other_settings_are_refused_with_both_and_what_to_do() {
        let recorded = settings(Consistency::Quorum, 1_000);
        assert_eq!(difference(&names(), &recorded, &recorded), None);
        let told = |wanted| difference(&names(), &recorded, &wanted).map(|told| told.to_string());
        for (wanted, shown) in [
            (settings(local(), 1_000), "not LOCAL_QUORUM of data centre \"dc1\" and"),
            (settings(Consistency::Quorum, 250), "not QUORUM and a max_clock_skew of 250ms;"),
        ] {
            let told = told(wanted).expect("they differ");
            assert!(told.contains("QUORUM and a max_clock_skew of 1s are recorded"), "{told}");
            assert!(told.contains(shown), "{told}");
            let change = "stop all clients, run DELETE FROM \"k\".\"lock_hosts\" WHERE \
                          registry = 'lock_tables' AND host_name = 't', and then `lock-hosts init`";
            assert!(told.contains(change), "{told}");
        }
    }

    #[test]
    fn client_goes_by_the_record() {
        let local_settings = settings(local(), 250);
        let recorded = recorded(local_settings.clone());
        let agreed = |recorded, asked_for| agreed(&names(), MAX_TTL, recorded, &asked_for);
        assert_eq!(agreed(Some(recorded.clone()), local()).ok(), Some(local_settings));
        let error = agreed(None, local()).expect_err("nothing is recorded").to_string();
        let command = "run `lock-hosts init --keyspace k --lock-table t --max-ttl 60s`";
        assert!(error.contains(command), "{error}");
        let error = agreed(Some(recorded), Consistency::Quorum).expect_err("they differ");
        let told = "is used with LOCAL_QUORUM of data centre \"dc1\", but this client asks for \
                    QUORUM: ";
        assert!(error.to_string().contains(told), "{error}");
    }

    // Goal: a client refuses a table of another protocol, whatever consistency it asks for, with
    // both numbers and what to do; so does a check.
    // Method: an earlier, the next and an absurd number.
    #[test]
    fn other_protocol_is_refused_with_advice() {
        for number in [i32::MIN, PROTOCOL - 1, PROTOCOL + 1] {
            let other = || Some(Recorded::OtherProtocol(number));
            for asked_for in [Consistency::Quorum, local()] {
                let error = agreed(&names(), MAX_TTL, other(), &asked_for);
                let message = error.expect_err("the protocol is unknown").to_string();
                let both = format!(
                    "lock table \"t\" is for clients of protocol {number}, and this version knows \
                     protocol {PROTOCOL}: "
                );
                assert!(message.starts_with(&both), "{message}");
                let change = "stop all clients for the longest ttl of the table, run DELETE FROM \
                              \"k\".\"lock_hosts\" WHERE registry = 'lock_tables' AND host_name = \
                              't', and then `lock-hosts init`";
                assert!(message.contains(change), "{message}");
                let finding = finding(&names(), MAX_TTL, Ok(other()), &asked_for);
                assert_eq!(finding.severity, Severity::Error, "{finding}");
            }
        }
    }

    #[test]
    fn check_tells_what_is_recorded() {
        let told = |recorded| finding(&names(), MAX_TTL, recorded, &Consistency::Quorum);
        let settings = |level, millis| Ok(Some(recorded(settings(level, millis))));
        let fine = told(settings(Consistency::Quorum, 250));
        assert_eq!(fine.severity, Severity::Ok, "{fine}");
        let found = "QUORUM and a max_clock_skew of 250ms are recorded, for clients of protocol 2";
        assert_eq!(fine.found, found);
        let unread = Err(DatabaseError::new(Outcome::NotApplied, "no quorum"));
        for recorded in [Ok(None), settings(local(), 250), unread] {
            let wrong = told(recorded);
            assert_eq!(wrong.severity, Severity::Error, "{wrong}");
            assert!(wrong.advice.is_some_and(|advice| !advice.is_empty()));
        }
    }
}
