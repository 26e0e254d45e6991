//! What every store promises of the table of peers.

use std::error::Error;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::statement::Consistency::Quorum;
use scylla::statement::unprepared::Statement;
use uuid::Uuid;

use super::{LIVES, LONG_TTL, SHORT_TTL};
use crate::clock::{Clock, SystemClock};
use crate::store::{CassandraStore, DatabaseError, PeerRow, PeerTable};

/// Checks a store. Each client is new.
pub(crate) async fn peers_are_kept(peers: &dyn PeerTable, stamp: i64) {
    peers_read_as_written(peers, stamp).await;
    the_higher_stamp_wins(peers, stamp).await;
    rows_expire(peers, stamp).await;
}

/// Checks of a cluster what only CQL can show.
pub(super) async fn peers_in_cql(store: &CassandraStore, session: &Session, keyspace: &str) {
    let table = Table { session, name: format!("\"{keyspace}\".lock_peers") };
    rows_do_not_stay_for_ever(store, &table).await;
    rows_that_make_no_sense_are_refused(store, &table).await;
}

/// Checks a store in a keyspace that an earlier version made, which has no such table.
pub(super) async fn absent_peers_are_refused(store: &CassandraStore) {
    let peer = peer(1);
    let refused = |error: DatabaseError| {
        let told = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(error.is_permanent() && told.contains("run `lock-hosts init`"), "{error:?}");
    };
    refused(store.write_peer(&peer, LONG_TTL).await.expect_err("there is no table"));
    refused(store.read_peer(peer.client).await.expect_err("there is no table"));
    refused(store.delete_peer(peer.client, 2).await.expect_err("there is no table"));
}

/// A peer that no other test has.
fn peer(stamp: i64) -> PeerRow {
    PeerRow {
        client: Uuid::new_v4(),
        addresses: vec!["[2001:db8::1]:7000".to_owned(), "häuschen.example:65535".to_owned()],
        key: std::array::from_fn(|byte| u8::try_from(byte * 8).expect("it is below 256")),
        version: 1,
        stamp,
    }
}

async fn write(peers: &dyn PeerTable, peer: &PeerRow) {
    peers.write_peer(peer, LONG_TTL).await.expect("a write is acknowledged");
}

async fn delete(peers: &dyn PeerTable, client: Uuid, stamp: i64) {
    peers.delete_peer(client, stamp).await.expect("a delete is acknowledged");
}

async fn expect(peers: &dyn PeerTable, client: Uuid, expected: Option<&PeerRow>) {
    let peer = peers.read_peer(client).await.expect("a read is answered");
    assert_eq!(peer.as_ref(), expected);
}

async fn peers_read_as_written(peers: &dyn PeerTable, stamp: i64) {
    let one = peer(stamp);
    let other = PeerRow { version: i32::MIN, ..peer(stamp) };
    let silent = PeerRow { addresses: Vec::new(), key: [0; 32], ..peer(stamp) };
    for peer in [&one, &other, &silent] {
        expect(peers, peer.client, None).await;
        write(peers, peer).await;
    }
    for peer in [&one, &other, &silent] {
        expect(peers, peer.client, Some(peer)).await;
    }
    delete(peers, one.client, stamp + 1).await;
    expect(peers, one.client, None).await;
    expect(peers, other.client, Some(&other)).await;
}

async fn the_higher_stamp_wins(peers: &dyn PeerTable, stamp: i64) {
    let low = peer(stamp);
    let at = |later, version| PeerRow { version, stamp: stamp + later, ..low.clone() };
    let (middle, high) = (at(10, 2), at(20, 3));
    for peer in [&low, &high, &middle, &high] {
        write(peers, peer).await;
    }
    expect(peers, low.client, Some(&high)).await;
    delete(peers, low.client, middle.stamp).await;
    expect(peers, low.client, Some(&high)).await;
    // A delete beats a write of the same stamp, whichever came first.
    delete(peers, low.client, high.stamp).await;
    write(peers, &high).await;
    write(peers, &middle).await;
    expect(peers, low.client, None).await;
    let higher = at(30, 4);
    write(peers, &higher).await;
    expect(peers, low.client, Some(&higher)).await;
}

async fn rows_expire(peers: &dyn PeerTable, stamp: i64) {
    let (short, renewed) = (peer(stamp), peer(stamp));
    for peer in [&short, &renewed] {
        let clock = SystemClock::new();
        peers.write_peer(peer, SHORT_TTL).await.expect("a write is acknowledged");
        let seen = peers.read_peer(peer.client).await.expect("a read is answered");
        assert!(seen.as_ref() == Some(peer) || clock.elapsed() >= LIVES, "{seen:?}");
    }
    let renewed = PeerRow { stamp: stamp + 1, ..renewed };
    write(peers, &renewed).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    expect(peers, short.client, None).await;
    expect(peers, renewed.client, Some(&renewed)).await;
    // An expired row still hides older writes.
    write(peers, &PeerRow { stamp: stamp - 1, ..short.clone() }).await;
    expect(peers, short.client, None).await;
}

/// The table itself.
struct Table<'a> {
    session: &'a Session,
    name: String,
}

impl Table<'_> {
    /// Writes a row as a client never does.
    async fn insert(&self, client: Uuid, columns: &str, values: &str) {
        let name = &self.name;
        let cql = format!("INSERT INTO {name} (client{columns}) VALUES (?{values}) USING TTL 60");
        let mut insert = Statement::new(cql);
        insert.set_consistency(Quorum);
        self.session.query_unpaged(insert, (client,)).await.expect("the cluster answers");
    }
}

/// Each column has the TTL that was bound.
async fn rows_do_not_stay_for_ever(store: &CassandraStore, table: &Table<'_>) {
    let peer = peer(5);
    write(store, &peer).await;
    let columns = "TTL(addresses), TTL(public_key), TTL(version), WRITETIME(public_key)";
    let select = format!("SELECT {columns} FROM {} WHERE client = ?", table.name);
    let mut select = Statement::new(select);
    select.set_consistency(Quorum);
    let row = table.session.query_unpaged(select, (peer.client,)).await;
    let row = row.expect("the cluster answers").into_rows_result().expect("a read brings rows");
    type Ttl = Option<i32>;
    let row = row.single_row::<(Ttl, Ttl, Ttl, Option<i64>)>().expect("there is one row");
    let (addresses, key, version, stamp) = row;
    for ttl in [addresses, key, version] {
        assert!(ttl.is_some_and(|ttl| (LONG_TTL / 2..=LONG_TTL).contains(&ttl)), "{ttl:?}");
    }
    assert_eq!(stamp, Some(5));
}

/// What other programs may have written never panics, and the error says what is wrong.
async fn rows_that_make_no_sense_are_refused(store: &CassandraStore, table: &Table<'_>) {
    let key = format!("0x{}", "5e".repeat(32));
    let long = format!("0x{}", "5e".repeat(33));
    for (columns, values, told) in [
        ("", String::new(), "has no addresses"),
        (", addresses", ", ['a']".to_owned(), "has no public_key"),
        (", addresses, public_key, version", format!(", ['a'], {long}, 1"), "of 33 bytes, not 32"),
        (", addresses, public_key, version", ", ['a'], 0x, 1".to_owned(), "of 0 bytes, not 32"),
        (", addresses, public_key", format!(", ['a'], {key}"), "has no version"),
    ] {
        let client = Uuid::new_v4();
        table.insert(client, columns, &values).await;
        let error = store.read_peer(client).await.expect_err("the row makes no sense");
        let text = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(error.is_permanent() && text.contains(told), "{told}: {error:?}");
        assert!(text.contains(&client.to_string()), "{text}");
    }
}
