//! The tables of a client, as hashes on the servers.

use std::time::Duration;

use uuid::Uuid;

use super::MastersStore;
use super::cells::Merged;
use super::codec::{self, LAST_RELEASE, MARK, NEXT, ONLY, SWEEPS};
use super::scripts::Script;
use crate::core::bakery::{
    Change, ContenderId, FENCE_TTL_SECONDS, LAST_RELEASE_TTL_SECONDS, Read, Seen, StoredRow,
    TIME_IN_FLIGHT, Write, row_name,
};
use crate::store::{
    Cursor, DatabaseError, Exchanges, HOSTS_PER_PAGE, HostRow, HostTable, LockRows, PEER_TTL_MAX,
    Page, Part, PeerRow, PeerTable, RowStamp, StoreFuture, StoredMark, TimedRow,
};

/// Cells and keys that have no end.
const FOR_EVER: Duration = Duration::ZERO;

/// For how long a cell lives.
#[derive(Clone, Copy)]
enum Lives {
    Seconds(i32),
    ForEver,
    /// It is deleted.
    No,
}

/// The cells of one write.
#[derive(Default)]
struct Cells(Vec<Vec<u8>>);

impl Cells {
    fn put(mut self, field: String, stamp: i64, lives: Lives, content: String) -> Self {
        let (kind, millis) = match lives {
            Lives::Seconds(seconds) => ("L", i64::from(seconds) * 1000),
            Lives::ForEver => ("L", -1),
            Lives::No => ("D", 0),
        };
        let parts = [field, codec::digits(stamp), kind.to_owned(), millis.to_string(), content];
        self.0.extend(parts.map(String::into_bytes));
        self
    }

    fn row(self, row: &StoredRow, stamp: i64, ttl_seconds: i32) -> Self {
        let field = codec::field(&row.row_name, row.contender);
        self.put(field, stamp, Lives::Seconds(ttl_seconds), codec::row_content(row))
    }

    /// The cells of a write; of a sweep there are none.
    fn of(write: &Write) -> Self {
        let (cells, stamp) = (Cells::default(), write.stamp);
        match &write.change {
            Change::Put { claim, ttl_seconds } => {
                cells.row(&StoredRow::entering(claim), stamp, *ttl_seconds)
            }
            Change::Revoke { revocation, ttl_seconds } => {
                cells.row(&StoredRow::revoked(revocation), stamp, *ttl_seconds)
            }
            Change::Delete { contender, last_release, .. } => {
                let names = write.change.deleted_rows();
                let cells = names.iter().fold(cells, |cells, name| {
                    cells.put(codec::field(name, *contender), stamp, Lives::No, String::new())
                });
                match last_release {
                    Some(last) => {
                        let lives = Lives::Seconds(LAST_RELEASE_TTL_SECONDS);
                        let content = codec::release_content(*last);
                        cells.put(LAST_RELEASE.to_owned(), last.stamp, lives, content)
                    }
                    None => cells,
                }
            }
            Change::Mark => cells.put(MARK.to_owned(), stamp, Lives::ForEver, codec::digits(stamp)),
            Change::Sweep { .. } => cells,
        }
    }
}

/// The fields that a read of an object needs; none: all.
fn fields(read: Read) -> Vec<String> {
    let entering = |contender| codec::field(row_name::ENTERING, contender);
    let both = |contender| [entering(contender), codec::field(row_name::REVOKED, contender)];
    let rows: Vec<_> = match read {
        Read::Object => return Vec::new(),
        Read::Contender(contender) => both(contender).into(),
        Read::Entering(contender) => vec![entering(contender)],
        Read::Front { own, ahead } => {
            both(own).into_iter().chain(ahead.into_iter().flatten().map(entering)).collect()
        }
    };
    rows.into_iter().chain([LAST_RELEASE, MARK, SWEEPS].map(str::to_owned)).collect()
}

impl MastersStore {
    async fn object(&self, object: &str, read: Read) -> Result<Merged, DatabaseError> {
        self.read_hash(self.keys.object(object), &fields(read)).await
    }

    /// For how long an object's dead cells hide older ones.
    fn keep(&self) -> Duration {
        self.settings().over_after()
    }

    async fn write_cells(
        &self,
        key: String,
        keep: Duration,
        cells: Cells,
    ) -> Result<(), DatabaseError> {
        self.change(Script::Write, key, keep, cells.0).await
    }

    async fn registry(&self, cells: Cells) -> Result<(), DatabaseError> {
        self.write_cells(self.keys.registry.clone(), FOR_EVER, cells).await
    }
}

impl LockRows for MastersStore {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (key, keep) = (self.keys.object(object), self.keep());
            let Change::Sweep { spared } = &write.change else {
                return self.write_cells(key, keep, Cells::of(write)).await;
            };
            let spared: Vec<_> = spared.iter().map(ContenderId::to_string).collect();
            let rest = [codec::digits(write.stamp), spared.join(",")].map(String::into_bytes);
            self.change(Script::Sweep, key, keep, rest.into()).await
        })
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        Box::pin(async move { self.object(object, read).await?.seen() })
    }

    fn exchanges(&self) -> Option<&dyn Exchanges> {
        Some(self)
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        Box::pin(async move { self.object(object, Read::Object).await?.rows() })
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::WHOLE]
    }

    fn read_page<'a>(&'a self, _: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        Box::pin(self.page(from))
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        Box::pin(async move {
            let merged = self.read_one(object, self.keys.object(object)).await?;
            Ok(merged.rows()?.into_iter().map(|timed| timed.row).collect())
        })
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        Box::pin(async move {
            let rows = self.object(object, Read::Contender(contender)).await?.rows()?;
            Ok(rows.into_iter().filter_map(RowStamp::of).collect())
        })
    }

    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        Box::pin(async move {
            self.read_hash(self.keys.object(object), &[MARK.to_owned()]).await?.mark()
        })
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        Box::pin(async move {
            let merged = self.read_hash(self.keys.fence(object), &[ONLY.to_owned()]).await?;
            Ok(merged.cell(ONLY).map(|cell| cell.stamp))
        })
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let lives = Lives::Seconds(FENCE_TTL_SECONDS);
            let cells = Cells::default().put(ONLY.to_owned(), value, lives, String::new());
            self.write_cells(self.keys.fence(object), self.keep(), cells).await
        })
    }
}

impl Exchanges for MastersStore {
    fn exchange<'a>(
        &'a self,
        object: &'a str,
        write: &'a Write,
        read: Read,
    ) -> StoreFuture<'a, Seen> {
        Box::pin(async move {
            let (key, keep) = (self.keys.object(object), self.keep());
            let cells = Cells::of(write).0;
            let merged = self.change_and_read(key, keep, cells, fields(read)).await?;
            merged.seen().map_err(DatabaseError::after_write)
        })
    }
}

impl HostTable for MastersStore {
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async move {
            let fields = codec::host_fields(name);
            let merged = self.read_hash(self.keys.registry.clone(), &fields).await?;
            let [row, seen] = fields.each_ref().map(|field| merged.cell(field));
            row.map(|row| codec::host(name, row, seen).ok_or_else(unreadable_host)).transpose()
        })
    }

    fn read_host_nearby<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(async { Ok(None) })
    }

    fn read_hosts<'a>(&'a self, after: &'a str) -> StoreFuture<'a, Vec<HostRow>> {
        Box::pin(async move {
            let merged = self.read_hash(self.keys.registry.clone(), &[]).await?;
            let rows = merged.fields().filter_map(|(field, row)| {
                Some((codec::host_name(field).filter(|name| *name > after)?, row))
            });
            let host = |(name, row)| {
                let [_, seen] = codec::host_fields(name);
                codec::host(name, row, merged.cell(&seen)).ok_or_else(unreadable_host)
            };
            rows.take(HOSTS_PER_PAGE).map(host).collect()
        })
    }

    fn read_next(&self) -> StoreFuture<'_, i32> {
        Box::pin(async move {
            let merged = self.read_hash(self.keys.registry.clone(), &[NEXT.to_owned()]).await?;
            let next = merged.cell(NEXT).map_or(0, |cell| cell.stamp);
            i32::try_from(next).map_err(DatabaseError::permanent)
        })
    }

    fn raise_next(&self, next: i32) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (field, lives) = (NEXT.to_owned(), Lives::ForEver);
            self.registry(Cells::default().put(field, next.into(), lives, String::new())).await
        })
    }

    fn write_host<'a>(&'a self, host: &'a HostRow) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let [field, _] = codec::host_fields(&host.name);
            let (stamp, content) = (host.stamp, codec::host_content(host));
            self.registry(Cells::default().put(field, stamp, Lives::ForEver, content)).await
        })
    }

    /// Each version has written them.
    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>> {
        Box::pin(async { Ok(Some(0)) })
    }

    fn write_last_seen<'a>(&'a self, name: &'a str, at_micros: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let [_, field] = codec::host_fields(name);
            let cells = Cells::default().put(field, at_micros, Lives::ForEver, String::new());
            self.registry(cells).await
        })
    }
}

fn unreadable_host() -> DatabaseError {
    DatabaseError::permanent("a row of the registry of hosts can't be understood")
}

impl PeerTable for MastersStore {
    fn write_peer<'a>(&'a self, peer: &'a PeerRow, ttl_seconds: i32) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (lives, content) = (Lives::Seconds(ttl_seconds), codec::peer_content(peer));
            let cells = Cells::default().put(ONLY.to_owned(), peer.stamp, lives, content);
            self.write_cells(self.keys.peer(peer.client), self.keep_peers(), cells).await
        })
    }

    fn read_peer(&self, client: Uuid) -> StoreFuture<'_, Option<PeerRow>> {
        Box::pin(async move {
            let merged = self.read_hash(self.keys.peer(client), &[ONLY.to_owned()]).await?;
            let read = |cell| {
                let unreadable = || format!("the row of peer {client} can't be understood");
                codec::peer(client, cell).ok_or_else(|| DatabaseError::permanent(unreadable()))
            };
            merged.cell(ONLY).map(read).transpose()
        })
    }

    fn delete_peer(&self, client: Uuid, stamp: i64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let cells = Cells::default().put(ONLY.to_owned(), stamp, Lives::No, String::new());
            self.write_cells(self.keys.peer(client), self.keep_peers(), cells).await
        })
    }
}

impl MastersStore {
    /// Rows of peers live longer than those of locks.
    fn keep_peers(&self) -> Duration {
        PEER_TTL_MAX + TIME_IN_FLIGHT + self.settings().max_clock_skew
    }
}
