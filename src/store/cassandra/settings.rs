//! The settings of lock tables, as recorded in the registry.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::statement::unprepared::Statement;
use scylla::value::CqlTimestamp;

use super::classify::classify;
use super::codec::decode;
use super::cql::{Template, query};
use super::execution_profile::Terms;
use crate::options::{Consistency, MAX_CLOCK_SKEW_RANGE, PROTOCOL, Settings};
use crate::store::{DatabaseError, Identifier, or_nearby};

/// The partition of the registry that holds settings: a row for each lock table, under its name.
pub(super) const LOCK_TABLES: &str = "lock_tables";

/// The row there that states since when hosts are seen. No lock table has this name.
pub(super) const LAST_SEEN: &str = "lock_hosts";

/// The recorded values of the consistency.
const QUORUM: &str = "QUORUM";
const LOCAL_QUORUM: &str = "LOCAL_QUORUM";

/// The protocol of a record without a number: that of the versions that recorded none.
const PROTOCOL_WITHOUT_NUMBER: i32 = 1;

/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What is recorded of a lock table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Settings, for clients of this version's protocol.
    Settings(Settings),
    /// The number of another protocol, which this version does not know.
    OtherProtocol(i32),
}

/// The record of one lock table. It is written with a quorum of all replicas, whatever it says, and
/// read with one as long as one answers, so that clients of all data centres see the same.
#[derive(Debug)]
pub(crate) struct SettingsRecord<'a> {
    session: &'a Session,
    keyspace: &'a Identifier,
    lock_table: &'a Identifier,
    /// Whether the registry has a column for the protocol; one of an earlier version has none.
    has_protocol: bool,
}

impl<'a> SettingsRecord<'a> {
    pub(crate) fn new(
        session: &'a Session,
        keyspace: &'a Identifier,
        lock_table: &'a Identifier,
        has_protocol: bool,
    ) -> Self {
        SettingsRecord { session, keyspace, lock_table, has_protocol }
    }

    /// Reads what is recorded, if anything is. One try.
    pub(crate) async fn read(&self) -> Result<Option<Recorded>, DatabaseError> {
        self.read_with(&Consistency::Quorum).await
    }

    /// Reads what is recorded as far as a client with this consistency can see it: nearby, if not
    /// all data centres answer. One try of each.
    pub(crate) async fn read_for(
        &self,
        client: &Consistency,
    ) -> Result<Option<Recorded>, DatabaseError> {
        let nearby = async {
            match client {
                Consistency::Quorum => Ok(None),
                Consistency::LocalQuorum(_) => self.read_with(client).await,
            }
        };
        or_nearby(Box::pin(self.read()), Box::pin(nearby)).await
    }

    /// The names under which anything is recorded: lock tables, which may have been dropped, and
    /// since when hosts are seen. One try.
    pub(crate) async fn names(&self) -> Result<Vec<String>, DatabaseError> {
        let select = self.statement(Template::ListSettings, &Consistency::Quorum);
        let result = query(self.session, select, (LOCK_TABLES,)).await;
        let rows = decode::<(String,)>(result.map_err(|error| classify(&error))?)?;
        Ok(rows.into_iter().map(|(name,)| name).collect())
    }

    /// Records since when hosts are seen, in a registry that an earlier version made. One try.
    pub(crate) async fn begin_seen(&self, now_micros: i64) -> Result<(), DatabaseError> {
        let insert = self.statement(Template::BeginLastSeen, &Consistency::Quorum);
        let now = CqlTimestamp(now_micros / 1000);
        let values = (LOCK_TABLES, LAST_SEEN, now, now_micros);
        let result = query(self.session, insert, values).await;
        result.map(drop).map_err(|error| classify(&error))
    }

    async fn read_with(
        &self,
        consistency: &Consistency,
    ) -> Result<Option<Recorded>, DatabaseError> {
        let template = if self.has_protocol {
            Template::ReadSettings
        } else {
            Template::ReadSettingsWithoutProtocol
        };
        let select = self.statement(template, consistency);
        let key = (LOCK_TABLES, self.lock_table.as_str());
        let result = query(self.session, select, key).await.map_err(|error| classify(&error))?;
        let row = if self.has_protocol {
            decode::<Row>(result)?.into_iter().next()
        } else {
            let rows = decode::<RowWithoutProtocol>(result)?.into_iter();
            rows.map(|(level, datacenter, millis)| (level, datacenter, millis, None)).next()
        };
        let understood = |row: Row| {
            parse(&row).ok_or_else(|| {
                let table = &self.lock_table;
                let problem = format!(
                    "the settings that lock_hosts holds for lock table {table} are {row:?}, which \
                     can't be understood: delete them, and run `lock-hosts init`"
                );
                DatabaseError::permanent(problem)
            })
        };
        row.map(understood).transpose()
    }

    /// Records settings and the protocol, whole. The registry has a column for it. One try.
    pub(crate) async fn write(&self, settings: &Settings, stamp: i64) -> Result<(), DatabaseError> {
        let insert = self.statement(Template::WriteSettings, &Consistency::Quorum);
        let consistency = match &settings.consistency {
            Consistency::Quorum => QUORUM,
            Consistency::LocalQuorum(_) => LOCAL_QUORUM,
        };
        // A null on purpose if there is no data centre: nothing of an older record may stay.
        let datacenter = settings.consistency.datacenter();
        let millis = i32::try_from(settings.max_clock_skew.as_millis());
        let millis = millis.expect("options are checked before: a skew is a second or so");
        let key = (LOCK_TABLES, self.lock_table.as_str());
        let values = (key.0, key.1, consistency, datacenter, millis, PROTOCOL, stamp);
        let result = query(self.session, insert, values).await;
        result.map(drop).map_err(|error| classify(&error))
    }

    fn statement(&self, template: Template, consistency: &Consistency) -> Statement {
        let terms = Terms::new(self.session, consistency);
        let mut statement = template.fill(&[("keyspace", self.keyspace.as_str())]).unprepared();
        statement.set_execution_profile_handle(Some(terms.profile));
        statement.set_consistency(terms.consistency);
        statement.set_serial_consistency(Some(terms.serial_consistency));
        statement.set_request_timeout(Some(TIMEOUT));
        statement.set_is_idempotent(true);
        statement
    }
}

/// The statement with which an operator deletes a record.
pub(crate) fn forget_settings_cql(keyspace: &str, lock_table: &str) -> String {
    format!(
        "DELETE FROM \"{keyspace}\".\"lock_hosts\" WHERE registry = '{LOCK_TABLES}' AND \
         host_name = '{lock_table}'"
    )
}

/// Consistency, data centre, clock skew in milliseconds, and protocol.
type Row = (Option<String>, Option<String>, Option<i32>, Option<i32>);

/// The same of a registry without a column for the protocol.
type RowWithoutProtocol = (Option<String>, Option<String>, Option<i32>);

/// The rest of a record with another protocol may have another meaning, so it is not looked at.
fn parse((consistency, datacenter, millis, protocol): &Row) -> Option<Recorded> {
    let protocol = protocol.unwrap_or(PROTOCOL_WITHOUT_NUMBER);
    if protocol != PROTOCOL {
        return Some(Recorded::OtherProtocol(protocol));
    }
    let consistency = match (consistency.as_deref()?, datacenter) {
        (QUORUM, None) => Consistency::Quorum,
        (LOCAL_QUORUM, Some(datacenter)) => Consistency::LocalQuorum(datacenter.clone()),
        _ => return None,
    };
    let max_clock_skew = Duration::from_millis(u64::try_from((*millis)?).ok()?);
    let recorded = Recorded::Settings(Settings { consistency, max_clock_skew });
    MAX_CLOCK_SKEW_RANGE.contains(&max_clock_skew).then_some(recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(consistency: &str, datacenter: Option<&str>, millis: i32) -> Option<Recorded> {
        let datacenter = datacenter.map(str::to_owned);
        parse(&(Some(consistency.to_owned()), datacenter, Some(millis), Some(PROTOCOL)))
    }

    fn settings(settings: Settings) -> Option<Recorded> {
        Some(Recorded::Settings(settings))
    }

    #[test]
    fn records_are_read() {
        let max_clock_skew = Duration::from_millis(250);
        let quorum = Settings { consistency: Consistency::Quorum, max_clock_skew };
        assert_eq!(parsed("QUORUM", None, 250), settings(quorum));
        let consistency = Consistency::LocalQuorum("dc1".to_owned());
        let local = Settings { consistency, max_clock_skew };
        assert_eq!(parsed("LOCAL_QUORUM", Some("dc1"), 250), settings(local));
    }

    #[test]
    fn records_that_make_no_sense_are_refused() {
        assert_eq!(parsed("QUORUM", Some("dc1"), 250), None);
        assert_eq!(parsed("LOCAL_QUORUM", None, 250), None);
        assert_eq!(parsed("ONE", None, 250), None);
        for millis in [-1, 0, 1_500, i32::MAX] {
            assert_eq!(parsed("QUORUM", None, millis), None, "{millis}");
        }
        assert_eq!(parse(&(None, None, None, Some(PROTOCOL))), None);
    }

    // Goal: another protocol is never taken for this one, whatever else is recorded; a record
    // without a protocol is that of an earlier version, which follows protocol 1.
    // Method: protocols around this one and extremes, with settings and without.
    #[test]
    fn other_protocol_is_seen_before_settings() {
        let row = |level: Option<&str>, millis, protocol| {
            parse(&(level.map(str::to_owned), None, millis, protocol))
        };
        let rest = [(Some("QUORUM"), Some(250)), (Some("NEW"), Some(-1)), (None, None)];
        for other in [i32::MIN, -1, 0, PROTOCOL - 1, PROTOCOL + 1, i32::MAX] {
            for (level, millis) in rest {
                let recorded = row(level, millis, Some(other));
                assert_eq!(recorded, Some(Recorded::OtherProtocol(other)));
            }
        }
        for (level, millis) in rest {
            assert_eq!(row(level, millis, None), Some(Recorded::OtherProtocol(1)));
        }
    }
}
