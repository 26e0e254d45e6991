//! Encoding of the values bound to statements, and decoding of their results.

use std::time::Duration;

use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::value::{CqlTimestamp, CqlValue, Row};
use scylla::{DeserializeRow, SerializeRow};
use uuid::Uuid;

use crate::core::bakery::{
    Claim, ContenderId, FENCE_TTL_SECONDS, LAST_RELEASE_TTL_SECONDS, LastRelease, Revocation,
    Statics, StoredRow, row_name,
};
use crate::store::{DatabaseError, HostRow, RowStamp, StoredMark, TimedRow};

/// The values to insert the row of a claim.
pub(super) fn claim_values<'a>(
    object: &'a str,
    claim: &Claim,
    stamp: i64,
    ttl_seconds: i32,
) -> impl SerializeRow + use<'a> {
    let since = CqlTimestamp(claim.since_millis());
    Insertion::new(object, StoredRow::entering(claim), since, stamp, ttl_seconds)
}

/// The values to insert the row of a revocation.
pub(super) fn revocation_values<'a>(
    object: &'a str,
    revocation: &Revocation,
    stamp: i64,
    ttl_seconds: i32,
) -> impl SerializeRow + use<'a> {
    let since = CqlTimestamp(stamp / 1000);
    Insertion::new(object, StoredRow::revoked(revocation), since, stamp, ttl_seconds)
}

/// What decides, in one cell: round, mode, `max_holders`, ticket, and since when it is held.
type State = (Option<i64>, Option<i8>, Option<i32>, Option<i64>, Option<CqlTimestamp>);

/// What people want to know, in one cell: owner, reason, and since when the row stands.
type About = (Option<String>, Option<String>, Option<CqlTimestamp>);

/// The last release, in one cell: client, round, and microseconds of a handoff.
type Released = (Option<Uuid>, Option<i64>, Option<i64>);

/// The values to insert one row, in the order of the markers.
#[derive(SerializeRow)]
#[scylla(flavor = "enforce_order", skip_name_checks)]
struct Insertion<'a> {
    object: &'a str,
    row_name: String,
    host: i32,
    client: Uuid,
    slot: i16,
    state: State,
    about: About,
    stamp: i64,
    ttl_seconds: i32,
}

impl<'a> Insertion<'a> {
    fn new(
        object: &'a str,
        row: StoredRow,
        since: CqlTimestamp,
        stamp: i64,
        ttl_seconds: i32,
    ) -> Self {
        let held_since = row.held_since.map(CqlTimestamp);
        Insertion {
            object,
            row_name: row.row_name,
            host: row.contender.host,
            client: Uuid::from_u128(row.contender.client),
            slot: row.contender.slot,
            state: (row.round, row.mode, row.max_holders, row.ticket, held_since),
            about: (row.owner, row.why, Some(since)),
            stamp,
            ttl_seconds,
        }
    }
}

/// The values that select a contender in a read.
pub(super) fn contender_key(object: &str, contender: ContenderId) -> impl SerializeRow {
    let ContenderId { host, client, slot } = contender;
    (object, host, Uuid::from_u128(client), slot)
}

/// The keys of both rows of a contender, and of the `entering::` rows of those ahead of it.
pub(super) fn front_keys(
    object: &str,
    own: ContenderId,
    ahead: &[Option<ContenderId>],
) -> impl SerializeRow {
    let key = |name: &'static str, contender: ContenderId| {
        (name, contender.host, Uuid::from_u128(contender.client), contender.slot)
    };
    let own = [row_name::ENTERING, row_name::REVOKED].map(|name| key(name, own));
    let ahead = ahead.iter().flatten().map(|contender| key(row_name::ENTERING, *contender));
    (object.to_owned(), own.into_iter().chain(ahead).collect::<Vec<_>>())
}

/// The values to delete each row of a contender.
pub(super) fn deletions(
    object: &str,
    contender: ContenderId,
    row_names: &[&'static str],
    stamp: i64,
) -> Vec<impl SerializeRow> {
    let ContenderId { host, client, slot } = contender;
    let deletion =
        |name: &&'static str| (stamp, object, *name, host, Uuid::from_u128(client), slot);
    row_names.iter().map(deletion).collect()
}

/// The values to write what a release reports to waiters.
pub(super) fn last_release_values(object: &str, last: LastRelease) -> impl SerializeRow {
    let LastRelease { client, round, handoff, stamp } = last;
    let micros = i64::try_from(handoff.as_micros()).unwrap_or(i64::MAX);
    let released: Released = (Some(Uuid::from_u128(client)), Some(round), Some(micros));
    (stamp, LAST_RELEASE_TTL_SECONDS, released, object)
}

/// The values to raise the mark of an object to the stamp.
pub(super) fn mark_values(object: &str, stamp: i64) -> impl SerializeRow {
    (stamp, stamp, object)
}

/// The values to delete the `entering::` rows of all contenders but some, which are in the order of
/// their keys: each range lies between two of them.
pub(super) fn swept_ranges<'a>(
    object: &'a str,
    spared: &[ContenderId],
    stamp: i64,
) -> Vec<impl SerializeRow + use<'a>> {
    let key = |contender: ContenderId| {
        let ContenderId { host, client, slot } = contender;
        (host, Uuid::from_u128(client), slot)
    };
    // Uuids of these versions come first and last.
    let first = (i32::MIN, Uuid::nil(), i16::MIN);
    let last = (i32::MAX, Uuid::max(), i16::MAX);
    let spared: Vec<_> = spared.iter().copied().map(key).collect();
    let starts = std::iter::once(first).chain(spared.iter().copied());
    let ends = spared.iter().copied().chain([last]);
    let range = |((h, c, s), (host, client, slot))| {
        (stamp, object, row_name::ENTERING, h, c, s, row_name::ENTERING, host, client, slot)
    };
    starts.zip(ends).map(range).collect()
}

/// The values to write a fence.
pub(super) fn fence_values(object: &str, value: i64) -> impl SerializeRow {
    let stamp = value;
    (stamp, FENCE_TTL_SECONDS, value, object)
}

/// The values to insert a host.
pub(super) fn host_values(registry: &str, host: &HostRow) -> impl SerializeRow {
    let added_at = CqlTimestamp(host.added_at_millis);
    // A null on purpose if there is no time: a host that is added again is no longer removed.
    let removed_at = host.removed_at_millis.map(CqlTimestamp);
    (registry, host.name.as_str(), host.number, added_at, removed_at, host.stamp)
}

/// Whether the coordinator warns that a read met more dead rows and cells than its
/// `tombstone_warn_threshold`, 1,000 by default. It says so in words only: in one way of what it
/// has read itself (`ReadCommand.java`), in another of what other nodes have
/// (`CoordinatorWarnings.java`).
pub(super) fn warns_of_dead_rows(result: &QueryResult) -> bool {
    result.warnings().any(|warning| warning.contains("tombstone"))
}

/// The rows of an object, and its static columns, which each row shows.
pub(super) fn stored_rows(result: QueryResult) -> Result<(Vec<StoredRow>, Statics), DatabaseError> {
    let rows = decode::<LockRow>(result)?;
    let statics = rows.first().map(LockRow::statics).unwrap_or_default();
    Ok((rows.into_iter().filter_map(LockRow::stored).collect(), statics))
}

/// Rows with their objects and times.
pub(super) fn timed_rows(result: QueryResult) -> Result<Vec<(String, TimedRow)>, DatabaseError> {
    let rows = decode::<TimedLockRow>(result)?;
    Ok(rows.into_iter().filter_map(TimedLockRow::timed).collect())
}

/// The rounds and stamps of a contender's rows. A row without a round has no stamp.
pub(super) fn row_stamps(result: QueryResult) -> Result<Vec<RowStamp>, DatabaseError> {
    let rows = decode::<(Option<String>, Option<State>, Option<i64>)>(result)?;
    let stamped = |(row_name, state, stamp): (Option<_>, Option<State>, Option<_>)| {
        Some(RowStamp { row_name: row_name?, round: state?.0?, stamp: stamp? })
    };
    Ok(rows.into_iter().filter_map(stamped).collect())
}

/// The columns of the lock table that the protocol reads.
#[derive(DeserializeRow)]
struct LockRow {
    row_name: Option<String>,
    host: Option<i32>,
    client: Option<Uuid>,
    slot: Option<i16>,
    state: Option<State>,
    about: Option<About>,
    last_release: Option<Released>,
    released_stamp: Option<i64>,
    mark: Option<i64>,
}

impl LockRow {
    /// `None` for the row without a key that a partition with only a static part shows: it is no
    /// row.
    fn stored(self) -> Option<StoredRow> {
        let client = self.client?.as_u128();
        let (round, mode, max_holders, ticket, held_since) = self.state.unwrap_or_default();
        let (owner, why, _) = self.about.unwrap_or_default();
        Some(StoredRow {
            row_name: self.row_name?,
            contender: ContenderId { host: self.host?, client, slot: self.slot? },
            round,
            mode,
            max_holders,
            ticket,
            owner,
            why,
            held_since: held_since.map(|since| since.0),
        })
    }

    fn statics(&self) -> Statics {
        Statics { last_release: self.last_release(), mark: self.mark }
    }

    /// What the static columns say, if they say all.
    fn last_release(&self) -> Option<LastRelease> {
        let (client, round, micros) = self.last_release?;
        Some(LastRelease {
            client: client?.as_u128(),
            round: round?,
            handoff: Duration::from_micros(u64::try_from(micros?).ok()?),
            stamp: self.released_stamp?,
        })
    }
}

/// The same columns, with the object and the times of the row.
#[derive(DeserializeRow)]
struct TimedLockRow {
    object_name: String,
    row_name: Option<String>,
    host: Option<i32>,
    client: Option<Uuid>,
    slot: Option<i16>,
    state: Option<State>,
    about: Option<About>,
    stamp: Option<i64>,
    ttl_seconds: Option<i32>,
}

impl TimedLockRow {
    fn timed(self) -> Option<(String, TimedRow)> {
        let row = LockRow {
            row_name: self.row_name,
            host: self.host,
            client: self.client,
            slot: self.slot,
            state: self.state,
            about: self.about,
            last_release: None,
            released_stamp: None,
            mark: None,
        };
        let row = row.stored()?;
        let timed = TimedRow { row, stamp: self.stamp, ttl_seconds: self.ttl_seconds };
        Some((self.object_name, timed))
    }
}

/// The fence of an object: no row if the partition is empty, a null if it has only rows.
pub(super) fn fence(result: QueryResult) -> Result<Option<i64>, DatabaseError> {
    let rows = decode::<(String, Option<i64>)>(result)?;
    Ok(rows.into_iter().find_map(|(_, fence)| fence))
}

/// The mark of an object: no row if the partition is empty, nulls if it has none.
pub(super) fn mark(result: QueryResult) -> Result<Option<StoredMark>, DatabaseError> {
    let rows = decode::<(Option<i64>, Option<i64>)>(result)?;
    let mark =
        |(value, stamp): (Option<_>, Option<_>)| Some(StoredMark { stamp: stamp?, value: value? });
    Ok(rows.into_iter().find_map(mark))
}

/// The values to write when a host was seen.
pub(super) fn last_seen_values(registry: &str, name: &str, at_micros: i64) -> impl SerializeRow {
    (at_micros, CqlTimestamp(at_micros / 1000), registry, name)
}

/// Since when hosts are seen, in milliseconds: from the beginning if that is not stated.
pub(super) fn seen_since(result: QueryResult) -> Result<i64, DatabaseError> {
    let rows = decode::<(Option<CqlTimestamp>,)>(result)?;
    Ok(rows.into_iter().find_map(|(begin,)| begin).map_or(0, |begin| begin.0))
}

/// Hosts of the registry; a table of an earlier version has one column less.
pub(super) fn hosts(result: QueryResult, are_seen: bool) -> Result<Vec<HostRow>, DatabaseError> {
    let rows: Vec<RegistryRow> = if are_seen {
        decode::<(HostName, Number, Time, Time, Stamp, Time)>(result)?
            .into_iter()
            .map(|(host_name, number, added_at, removed_at, stamp, seen_at)| RegistryRow {
                host_name,
                number,
                added_at,
                removed_at,
                stamp,
                seen_at,
            })
            .collect()
    } else {
        decode::<(HostName, Number, Time, Time, Stamp)>(result)?
            .into_iter()
            .map(|(host_name, number, added_at, removed_at, stamp)| RegistryRow {
                host_name,
                number,
                added_at,
                removed_at,
                stamp,
                seen_at: None,
            })
            .collect()
    };
    rows.into_iter().filter_map(|row| row.host().transpose()).collect()
}

type HostName = Option<String>;
type Number = Option<i32>;
type Time = Option<CqlTimestamp>;
type Stamp = Option<i64>;

/// The largest reserved number: no row if the registry is empty, a null if it has only hosts.
pub(super) fn next(result: QueryResult) -> Result<i32, DatabaseError> {
    let rows = decode::<(String, Option<i32>)>(result)?;
    Ok(rows.into_iter().find_map(|(_, next)| next).unwrap_or(0))
}

/// The columns of a host.
struct RegistryRow {
    host_name: HostName,
    number: Number,
    added_at: Time,
    removed_at: Time,
    stamp: Stamp,
    seen_at: Time,
}

impl RegistryRow {
    /// `None` for a row without a key, which is the static part of a registry without hosts; and
    /// for a row with only the time that it was seen, whose host was deleted by hand meanwhile.
    ///
    /// Any other host without a number is refused: skipping it could give it a second one.
    fn host(self) -> Result<Option<HostRow>, DatabaseError> {
        let Some(name) = self.host_name else {
            return Ok(None);
        };
        if (self.number, self.added_at, self.removed_at) == (None, None, None) {
            return Ok(None);
        }
        let (Some(number), Some(stamp)) = (self.number, self.stamp) else {
            let refusal = format!("host {name:?} has no number in lock_hosts: write or delete it");
            return Err(DatabaseError::permanent(refusal));
        };
        Ok(Some(HostRow {
            name,
            number,
            added_at_millis: self.added_at.map_or(0, |time| time.0),
            removed_at_millis: self.removed_at.map(|time| time.0),
            seen_at_millis: self.seen_at.map(|time| time.0),
            stamp,
        }))
    }
}

/// The rows of a result. A result of other types comes from another table.
pub(super) fn decode<R>(result: QueryResult) -> Result<Vec<R>, DatabaseError>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let result = result.into_rows_result().map_err(DatabaseError::permanent)?;
    let rows = result.rows::<R>().map_err(DatabaseError::permanent)?;
    rows.collect::<Result<_, _>>().map_err(DatabaseError::permanent)
}

/// The columns of these names. A row that lacks one, or has a null there, is left out.
pub(super) fn decode_columns<const N: usize>(
    result: QueryResult,
    names: [&str; N],
) -> Result<Vec<[CqlValue; N]>, DatabaseError> {
    let result = result.into_rows_result().map_err(DatabaseError::permanent)?;
    let specs = result.column_specs();
    let places = names.map(|name| specs.iter().position(|column| column.name() == name));
    let rows = result.rows::<Row>().map_err(DatabaseError::permanent)?;
    let rows = rows.collect::<Result<Vec<_>, _>>().map_err(DatabaseError::permanent)?;
    let picked = |mut row: Row| {
        let values = places.map(|place| row.columns.get_mut(place?)?.take());
        let values: Vec<CqlValue> = values.into_iter().collect::<Option<_>>()?;
        values.try_into().ok()
    };
    Ok(rows.into_iter().filter_map(picked).collect())
}

#[cfg(test)]
mod properties;
