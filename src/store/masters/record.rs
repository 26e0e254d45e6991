//! What each member has recorded about itself and the others.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::core::bakery::TIME_IN_FLIGHT;

/// The number of the protocol that clients of this version follow on masters. Increase it as that
/// of clusters: see `options.rs`. In protocol 2, waiters write their rows again with each question
/// (M11); one that only reads must not meet them. In protocol 3, the ticket is in the `entering::`
/// row.
pub(super) const PROTOCOL: i32 = 3;

/// A state of the membership. Views are ordered, and a member's only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct View {
    version: u64,
    /// Tells views apart that two clients make at the same time.
    id: Uuid,
}

impl View {
    /// The first one.
    pub(super) fn first(id: Uuid) -> Self {
        View { version: 1, id }
    }

    /// One after this one.
    pub(super) fn next(self, id: Uuid) -> Self {
        View { version: self.version + 1, id }
    }

    fn parse(text: &str) -> Option<Self> {
        let (version, id) = text.split_once(':')?;
        Some(View { version: version.parse().ok()?, id: id.parse().ok()? })
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.version, self.id.simple())
    }
}

/// The settings that all clients of a lock table share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MastersSettings {
    /// The longest TTL.
    pub(crate) max_ttl: Duration,
    /// How far clocks may differ.
    pub(crate) max_clock_skew: Duration,
}

impl MastersSettings {
    /// For how long a server that may have lost data takes no part, and for how long servers keep
    /// dead cells. What was acknowledged before is over then: its rows have expired, also those of
    /// writes that were still under way.
    pub(crate) fn over_after(self) -> Duration {
        self.max_ttl + TIME_IN_FLIGHT + self.max_clock_skew
    }
}

/// What a member has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Identifies the set of servers and its lock table.
    pub(super) cluster: Uuid,
    pub(super) settings: MastersSettings,
    pub(super) protocol: i32,
    /// Its place among the members.
    pub(super) index: usize,
    /// Identifies its data: it is new after a loss.
    pub(super) epoch: Uuid,
    /// The process that wrote this.
    pub(super) run_id: String,
    /// Whether what it acknowledges survives a crash.
    pub(super) is_durable: bool,
    pub(super) view: View,
    /// The epochs of all members, in the order of their places.
    pub(super) members: Vec<Uuid>,
    /// Since when it takes part, by its own clock, in ms since the Unix epoch.
    pub(super) usable_from: i64,
}

impl Record {
    /// Fields and values, but for the time from which it is usable, which the server adds.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let millis = |time: Duration| time.as_millis().to_string();
        vec![
            ("cluster", self.cluster.to_string()),
            ("protocol", self.protocol.to_string()),
            ("max_ttl_ms", millis(self.settings.max_ttl)),
            ("max_clock_skew_ms", millis(self.settings.max_clock_skew)),
            ("index", self.index.to_string()),
            ("epoch", self.epoch.to_string()),
            ("run_id", self.run_id.clone()),
            ("durable", u8::from(self.is_durable).to_string()),
            ("view", self.view.to_string()),
            ("members", members_text(&self.members)),
        ]
    }

    /// Reads a record.
    pub(super) fn read(fields: &[(String, String)]) -> Result<Option<Self>, String> {
        if fields.is_empty() {
            return Ok(None);
        }
        let read = || {
            let of: BTreeMap<_, _> =
                fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let millis = |name| Some(Duration::from_millis(of.get(name)?.parse().ok()?));
            let members = of.get("members")?.split(',').map(|member| member.parse().ok());
            Some(Record {
                cluster: of.get("cluster")?.parse().ok()?,
                protocol: of.get("protocol")?.parse().ok()?,
                settings: MastersSettings {
                    max_ttl: millis("max_ttl_ms")?,
                    max_clock_skew: millis("max_clock_skew_ms")?,
                },
                index: of.get("index")?.parse().ok()?,
                epoch: of.get("epoch")?.parse().ok()?,
                run_id: (*of.get("run_id")?).to_owned(),
                is_durable: *of.get("durable")? == "1",
                view: View::parse(of.get("view")?)?,
                members: members.collect::<Option<_>>()?,
                usable_from: of.get("usable_from")?.parse().ok()?,
            })
        };
        match read() {
            Some(record) if record.protocol != PROTOCOL => Err(format!(
                "its lock table is for clients of protocol {}, and this version knows protocol \
                 {PROTOCOL}: use a version that knows it",
                record.protocol
            )),
            Some(record) => Ok(Some(record)),
            None => Err("its record of the lock table can't be understood".to_owned()),
        }
    }
}

/// The epochs of members, as they are written.
pub(super) fn members_text(members: &[Uuid]) -> String {
    members.iter().map(Uuid::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            cluster: Uuid::from_u128(1),
            settings: MastersSettings {
                max_ttl: Duration::from_secs(30),
                max_clock_skew: Duration::from_millis(250),
            },
            protocol: PROTOCOL,
            index: 2,
            epoch: Uuid::from_u128(4),
            run_id: "ab".to_owned(),
            is_durable: true,
            view: View::first(Uuid::from_u128(7)).next(Uuid::from_u128(8)),
            members: (2..5).map(Uuid::from_u128).collect(),
            usable_from: 17,
        }
    }

    fn written(record: &Record) -> Vec<(String, String)> {
        let usable_from = ("usable_from", record.usable_from.to_string());
        let fields = record.fields().into_iter().chain([usable_from]);
        fields.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn records_are_read_as_written() {
        assert_eq!(Record::read(&written(&record())), Ok(Some(record())));
        assert_eq!(Record::read(&[]), Ok(None));
        for missing in 0..written(&record()).len() {
            let mut fields = written(&record());
            fields.remove(missing);
            assert!(Record::read(&fields).is_err(), "without {missing}");
        }
        let other = Record { protocol: PROTOCOL + 1, ..record() };
        let refusal = Record::read(&written(&other)).expect_err("it is another protocol");
        assert!(refusal.contains("use a version that knows it"), "{refusal}");
    }

    #[test]
    fn views_are_ordered_by_version() {
        let [low, high] = [1, u128::MAX].map(Uuid::from_u128);
        assert!(View::first(high) < View::first(low).next(low));
        assert!(View::first(low) < View::first(high));
        assert_eq!(View::parse(&View::first(low).to_string()), Some(View::first(low)));
    }

    #[test]
    fn quarantine_outlasts_rows_and_late_writes() {
        let over = record().settings.over_after();
        assert_eq!(over, Duration::from_millis(30_000 + 15_000 + 250));
    }
}
