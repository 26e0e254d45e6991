//! The settings of lock tables, as recorded in the registry.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::statement::unprepared::Statement;
use scylla::value::CqlTimestamp;

use super::classify::classify;
use super::codec::decode;
use super::cql::{Template, query};
use super::execution_profile::Terms;
use crate::options::{Consistency, MAX_CLOCK_SKEW_RANGE, Settings};
use crate::store::{DatabaseError, Identifier, or_nearby};

/// The partition of the registry that holds settings: a row for each lock table, under its name.
pub(super) const LOCK_TABLES: &str = "lock_tables";

/// The row there that states since when sightings are recorded. No lock table has this name.
pub(super) const SIGHTINGS: &str = "lock_hosts";

/// The recorded values of the consistency.
const QUORUM: &str = "QUORUM";
const LOCAL_QUORUM: &str = "LOCAL_QUORUM";

/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The record of one lock table. It is written with a quorum of all replicas, whatever it says, and
/// read with one as long as one answers, so that clients of all data centres see the same.
#[derive(Debug)]
pub(crate) struct SettingsRecord<'a> {
    session: &'a Session,
    keyspace: &'a Identifier,
    lock_table: &'a Identifier,
}

impl<'a> SettingsRecord<'a> {
    pub(crate) fn new(
        session: &'a Session,
        keyspace: &'a Identifier,
        lock_table: &'a Identifier,
    ) -> Self {
        SettingsRecord { session, keyspace, lock_table }
    }

    /// Reads the recorded settings, if any. One try.
    pub(crate) async fn read(&self) -> Result<Option<Settings>, DatabaseError> {
        self.read_with(&Consistency::Quorum).await
    }

    /// Reads the recorded settings as far as a client with this consistency can see them: nearby,
    /// if not all data centres answer. One try of each.
    pub(crate) async fn read_for(
        &self,
        client: &Consistency,
    ) -> Result<Option<Settings>, DatabaseError> {
        let nearby = async {
            match client {
                Consistency::Quorum => Ok(None),
                Consistency::LocalQuorum(_) => self.read_with(client).await,
            }
        };
        or_nearby(Box::pin(self.read()), Box::pin(nearby)).await
    }

    /// Records when sightings begin, in a registry that an earlier version made. One try.
    pub(crate) async fn begin_sightings(&self, now_micros: i64) -> Result<(), DatabaseError> {
        let insert = self.statement(Template::BeginSightings, &Consistency::Quorum);
        let now = CqlTimestamp(now_micros / 1000);
        let values = (LOCK_TABLES, SIGHTINGS, now, now_micros);
        let result = query(self.session, insert, values).await;
        result.map(drop).map_err(|error| classify(&error))
    }

    async fn read_with(
        &self,
        consistency: &Consistency,
    ) -> Result<Option<Settings>, DatabaseError> {
        let select = self.statement(Template::ReadSettings, consistency);
        let key = (LOCK_TABLES, self.lock_table.as_str());
        let result = query(self.session, select, key).await;
        let rows = decode::<Row>(result.map_err(|error| classify(&error))?)?;
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
        rows.into_iter().next().map(understood).transpose()
    }

    /// Records settings, whole. One try.
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
        let values = (key.0, key.1, consistency, datacenter, millis, stamp);
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

/// Consistency, data centre, and clock skew in milliseconds.
type Row = (Option<String>, Option<String>, Option<i32>);

fn parse((consistency, datacenter, millis): &Row) -> Option<Settings> {
    let consistency = match (consistency.as_deref()?, datacenter) {
        (QUORUM, None) => Consistency::Quorum,
        (LOCAL_QUORUM, Some(datacenter)) => Consistency::LocalQuorum(datacenter.clone()),
        _ => return None,
    };
    let max_clock_skew = Duration::from_millis(u64::try_from((*millis)?).ok()?);
    let settings = Settings { consistency, max_clock_skew };
    MAX_CLOCK_SKEW_RANGE.contains(&max_clock_skew).then_some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(consistency: &str, datacenter: Option<&str>, millis: i32) -> Option<Settings> {
        parse(&(Some(consistency.to_owned()), datacenter.map(str::to_owned), Some(millis)))
    }

    #[test]
    fn records_are_read() {
        let max_clock_skew = Duration::from_millis(250);
        let quorum = Settings { consistency: Consistency::Quorum, max_clock_skew };
        assert_eq!(parsed("QUORUM", None, 250), Some(quorum));
        let consistency = Consistency::LocalQuorum("dc1".to_owned());
        let local = Settings { consistency, max_clock_skew };
        assert_eq!(parsed("LOCAL_QUORUM", Some("dc1"), 250), Some(local));
    }

    #[test]
    fn records_that_make_no_sense_are_refused() {
        assert_eq!(parsed("QUORUM", Some("dc1"), 250), None);
        assert_eq!(parsed("LOCAL_QUORUM", None, 250), None);
        assert_eq!(parsed("ONE", None, 250), None);
        for millis in [-1, 0, 1_500, i32::MAX] {
            assert_eq!(parsed("QUORUM", None, millis), None, "{millis}");
        }
        assert_eq!(parse(&(None, None, None)), None);
    }
}
