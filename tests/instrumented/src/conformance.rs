//! The contract of all stores, as one body of tests.
//!
//! The protocol is proved on the promises of [`LockRows`]; here the stores prove that they keep
//! them.

mod deletes;
mod exchanges;
mod expiry;
pub(crate) mod peers;
mod statics;
mod ties;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::statement::Consistency::Quorum;
use scylla::statement::unprepared::Statement;
use uuid::Uuid;

use self::deletes::deletes_and_sweeps_stand_beside_each_other;
use self::exchanges::exchanges_write_and_read;
use self::expiry::rows_end_as_written;
use self::peers::{absent_peers_are_refused, peers_are_kept, peers_in_cql};
use self::statics::statics_need_no_rows;
use self::ties::ties_are_settled;
use crate::clock::{Clock, SystemClock};
use crate::core::bakery::{
    Change, Claim, ContenderId, FENCE_TTL_SECONDS, LAST_RELEASE_TTL_SECONDS, LastRelease, Mode,
    Read, Revocation, RevokeKind, Statics, StoredRow, Write, row_name,
};
use crate::options::{Consistency, NAME_BYTES_MAX};
#[cfg(feature = "redis")]
use crate::setup::masters;
#[cfg(feature = "redis")]
use crate::store::Masters;
use crate::store::{
    CassandraStore, Catalog, Extras, HOSTS_PER_PAGE, HostRow, HostTable, Identifier, LockRows,
    NodeProbe, NodeReport, RowStamp, Store, TimedRow,
};

/// Longer than any test here takes.
const LONG_TTL: i32 = 600;

/// The TTL of rows that are to expire, and for how long after a write they live for certain: a
/// cluster counts whole seconds.
const SHORT_TTL: i32 = 3;
const LIVES: Duration = Duration::from_secs(2);

/// A node that does not answer for so long hangs.
const BUSY_MAX: Duration = Duration::from_secs(600);

/// Names that a store might mistake for something else.
const ODD_NAMES: [&str; 8] = [
    "'quoted' \"twice\"; DROP TABLE lock_table",
    "entering::",
    "a::b::\u{0}::c",
    "Zürich, 東京 and 🦀",
    " leading and trailing ",
    "line\nfeed",
    "%s {} $1 ?",
    "null",
];

/// Checks a store on a cluster.
///
/// # Panics
///
/// When the store breaks a promise.
pub async fn cassandra_conforms(session: &Arc<Session>, keyspace: &str, tag: &str) {
    let keyspace = Identifier::keyspace(keyspace).expect("a keyspace of tests has a legal name");
    let lock_table = Identifier::table("lock_table").expect("the default name is legal");
    let prepare = async |peers| {
        let extras = Extras { last_seen: true, peers };
        let level = Consistency::Quorum;
        let session = Arc::clone(session);
        let store = CassandraStore::prepare(session, &keyspace, &lock_table, &level, extras).await;
        store.expect("the tables are there")
    };
    let store = Arc::new(prepare(true).await);
    conforms(&Arc::clone(&store).into(), tag).await;
    let table = format!("\"{keyspace}\".\"{lock_table}\"");
    writes_touch_no_other_column(&store, session, &table, &format!("{tag}::columns")).await;
    peers_in_cql(&store, session, keyspace.as_str()).await;
    absent_peers_are_refused(&prepare(false).await).await;
}

/// Checks a store on masters, whose table was made with TTLs up to those used here.
///
/// # Panics
///
/// When the store breaks a promise.
#[cfg(feature = "redis")]
pub async fn masters_conform(addresses: &[String], tag: &str) {
    let masters = Masters::connect(addresses).await.expect("these are addresses");
    let store = masters::open(&masters, "lock_table").await.expect("the table is there");
    conforms(&store.into(), tag).await;
}

/// The current id of the default lock table of a keyspace.
///
/// # Panics
///
/// When the cluster does not answer.
pub async fn lock_table_id(session: &Session, keyspace: &str) -> Option<Uuid> {
    let keyspace = Identifier::keyspace(keyspace).expect("a keyspace of tests has a legal name");
    let lock_table = Identifier::table("lock_table").expect("the default name is legal");
    let id = Catalog::new(session).table_id(&keyspace, &lock_table).await;
    id.expect("the cluster answers")
}

/// Checks a store. Object names begin with `tag`, which must be new each time.
pub(crate) async fn conforms(store: &Store, tag: &str) {
    let Store { rows, hosts, peers, nodes } = store;
    let (rows, hosts) = (&**rows, &**hosts);
    let clock = SystemClock::new();
    let object =
        |case: &str| Object { rows, name: format!("{tag}::{case}"), stamp: clock.unix_micros() };
    acknowledged_writes_are_seen(&object("seen")).await;
    the_higher_stamp_wins(&object("stamps")).await;
    a_delete_of_the_same_stamp_wins(&object("ties")).await;
    ties_are_settled(&object("tied")).await;
    an_older_write_does_not_come_back(&object("older")).await;
    deletes_and_sweeps_stand_beside_each_other(&object("deleted")).await;
    a_row_is_written_as_one(&object("pairs")).await;
    rows_expire(&object("ttl")).await;
    rows_end_as_written(&object("ends")).await;
    reads_return_what_was_asked_for(&object("reads")).await;
    objects_do_not_mix(rows, tag, clock.unix_micros()).await;
    many_contenders_are_read_at_once(&object("many")).await;
    revocations_stand_beside_the_rows(&object("revoked")).await;
    the_last_release_is_told(&object("released")).await;
    the_mark_only_grows(&object("marked")).await;
    statics_need_no_rows(&object("static")).await;
    exchanges_write_and_read(&object("exchanged")).await;
    a_sweep_hides_what_was_written_up_to_it(&object("swept")).await;
    stamps_are_told(&object("told")).await;
    times_are_told(&object("times")).await;
    all_objects_are_found(rows, tag, clock.unix_micros()).await;
    one_replica_shows_several_objects(rows, tag, clock.unix_micros()).await;
    the_fence_only_grows(&object("fence")).await;
    rows_and_fence_do_not_touch_each_other(&object("fenced")).await;
    the_registry_keeps_hosts(hosts, tag, clock.unix_micros()).await;
    last_seen_touches_nothing_else(hosts, tag, clock.unix_micros()).await;
    hosts_come_page_by_page(hosts, tag, clock.unix_micros()).await;
    the_registry_only_grows(hosts).await;
    peers_are_kept(&**peers, clock.unix_micros()).await;
    nodes_say_what_locks_rely_on(&**nodes).await;
}

/// An object, and the stamp from which later ones are counted.
struct Object<'a> {
    rows: &'a dyn LockRows,
    name: String,
    stamp: i64,
}

impl Object<'_> {
    async fn put(&self, claim: &Claim, stamp: i64, ttl_seconds: i32) {
        let change = Change::Put { claim: claim.clone(), ttl_seconds };
        self.write(stamp, change).await;
    }

    async fn delete(&self, contender: ContenderId, stamp: i64) {
        let change = Change::Delete { contender, revoked: false, last_release: None };
        self.write(stamp, change).await;
    }

    async fn revoke(&self, revocation: &Revocation, stamp: i64, ttl_seconds: i32) {
        let change = Change::Revoke { revocation: revocation.clone(), ttl_seconds };
        self.write(stamp, change).await;
    }

    /// The rows in the order of their names, with stamps counted from the object's.
    async fn stamps(&self, contender: ContenderId) -> Vec<RowStamp> {
        let stamps = self.rows.read_stamps(&self.name, contender).await;
        let mut stamps = stamps.expect("a read is answered");
        stamps.iter_mut().for_each(|row| row.stamp -= self.stamp);
        stamps.sort_by(|a, b| a.row_name.cmp(&b.row_name));
        stamps
    }

    async fn write(&self, stamp: i64, change: Change) {
        let write = Write { stamp: self.stamp + stamp, change };
        self.rows.write(&self.name, &write).await.expect("a write is acknowledged");
    }

    /// Sweeps the object, and leaves the rows of some contenders, which are in the order of their
    /// keys.
    async fn sweep(&self, stamp: i64, spared: &[ContenderId]) {
        self.write(stamp, Change::Sweep { spared: spared.to_vec() }).await;
    }

    async fn read(&self, read: Read) -> Vec<StoredRow> {
        let rows = self.rows.read(&self.name, read).await;
        let mut rows = rows.expect("a read is answered").rows;
        rows.sort_by(|a, b| (a.contender, &a.row_name).cmp(&(b.contender, &b.row_name)));
        rows
    }

    async fn statics(&self, read: Read) -> Statics {
        self.rows.read(&self.name, read).await.expect("a read is answered").statics
    }

    async fn raise_fence(&self, stamp: i64) {
        let written = self.rows.write_fence(&self.name, self.stamp + stamp).await;
        written.expect("a write is acknowledged");
    }

    /// The fence, counted from the object's stamp; `None` if there is none.
    async fn fence(&self) -> Option<i64> {
        let fence = self.rows.read_fence(&self.name).await.expect("a read is answered");
        fence.map(|fence| fence - self.stamp)
    }

    async fn expect(&self, read: Read, expected: &[StoredRow]) {
        assert_eq!(self.read(read).await, expected, "{read:?} of {:?}", self.name);
    }
}

fn contender(number: i16) -> ContenderId {
    // A uuid with its highest bit set, and a negative host, are valid too.
    let client = u128::MAX - u128::from(number.unsigned_abs());
    ContenderId { host: i32::from(number) - 2, client, slot: number }
}

fn claim(number: i16, round: i64, ticket: Option<i64>) -> Claim {
    let (contender, mode, owner) =
        (contender(number), Mode::Exclusive, format!("owner {number}").into());
    Claim { contender, round, mode, ticket, owner, held_since: None }
}

/// A revocation of a claim.
fn revocation(claim: &Claim) -> Revocation {
    Revocation {
        contender: claim.contender,
        round: claim.round,
        by: "ops".to_owned(),
        why: "it hangs; \"ask\" 'Anna'".to_owned(),
        kind: RevokeKind::Request,
    }
}

/// The read of the rows of one contender, and of those of others ahead of it.
fn front(own: ContenderId, others: &[ContenderId]) -> Read {
    Read::front(own, others.iter().copied())
}

/// The rows of a claim.
fn rows_of(claim: &Claim) -> Vec<StoredRow> {
    vec![StoredRow::entering(claim)]
}

async fn acknowledged_writes_are_seen(object: &Object<'_>) {
    let id = contender(1);
    object.expect(Read::Object, &[]).await;
    for round in 1..=30 {
        let claim = claim(1, round, (round % 3 == 0).then_some(i64::MAX - round));
        let claim = Claim { held_since: (round % 2 == 0).then_some(round), ..claim };
        object.put(&claim, 2 * round, LONG_TTL).await;
        object.expect(Read::Object, &rows_of(&claim)).await;
        object.expect(Read::Contender(id), &rows_of(&claim)).await;
        object.expect(Read::Entering(id), &rows_of(&claim)).await;
        object.delete(id, 2 * round + 1).await;
        object.expect(Read::Object, &[]).await;
    }
    for (stamp, mode) in (100..).step_by(2).zip([Mode::Shared, Mode::Limited(7), Mode::Exclusive]) {
        object.put(&Claim { mode, ..claim(1, stamp, None) }, stamp, LONG_TTL).await;
        let rows = object.read(Read::Entering(id)).await;
        assert_eq!((rows[0].mode, rows[0].max_holders), (Some(mode.code()), mode.max_holders()));
        object.delete(id, stamp + 1).await;
    }
}

async fn the_higher_stamp_wins(object: &Object<'_>) {
    let (low, high) = (claim(1, 1, Some(5)), claim(1, 2, Some(6)));
    object.put(&low, 10, LONG_TTL).await;
    object.put(&high, 20, LONG_TTL).await;
    object.expect(Read::Object, &rows_of(&high)).await;
    object.put(&low, 19, LONG_TTL).await;
    object.expect(Read::Object, &rows_of(&high)).await;
    // Repeating the write changes nothing.
    object.put(&high, 20, LONG_TTL).await;
    object.expect(Read::Object, &rows_of(&high)).await;
}

async fn a_delete_of_the_same_stamp_wins(object: &Object<'_>) {
    let claim = claim(1, 1, Some(5));
    object.put(&claim, 10, LONG_TTL).await;
    object.delete(claim.contender, 10).await;
    object.expect(Read::Object, &[]).await;
    object.delete(claim.contender, 20).await;
    object.put(&claim, 20, LONG_TTL).await;
    object.expect(Read::Object, &[]).await;
    object.put(&claim, 21, LONG_TTL).await;
    object.expect(Read::Object, &rows_of(&claim)).await;
}

async fn an_older_write_does_not_come_back(object: &Object<'_>) {
    let claim = claim(1, 1, Some(5));
    object.put(&claim, 10, LONG_TTL).await;
    object.delete(claim.contender, 30).await;
    object.put(&claim, 20, LONG_TTL).await;
    object.expect(Read::Object, &[]).await;
    // An older delete does not remove a newer row, either.
    object.put(&claim, 40, LONG_TTL).await;
    object.delete(claim.contender, 39).await;
    object.expect(Read::Object, &rows_of(&claim)).await;
}

async fn a_row_is_written_as_one(object: &Object<'_>) {
    object.put(&claim(1, 0, Some(0)), 0, LONG_TTL).await;
    let writing = async {
        for round in 1..=100 {
            object.put(&claim(1, round, Some(round)), round, LONG_TTL).await;
        }
    };
    let reading = async {
        let mut latest = 0;
        while latest < 100 {
            let rows = object.read(Read::Object).await;
            let rounds: Vec<_> = rows.iter().map(|row| (row.round, row.ticket)).collect();
            let round = rows[0].round.expect("rows are written whole");
            assert_eq!(rounds, [(Some(round), Some(round))]);
            latest = round;
        }
    };
    tokio::join!(writing, reading);
}

async fn rows_expire(object: &Object<'_>) {
    let (short, long) = (claim(1, 1, Some(1)), claim(2, 1, None));
    object.put(&long, 2, LONG_TTL).await;
    let clock = SystemClock::new();
    object.put(&short, 1, SHORT_TTL).await;
    let rows = [rows_of(&short), rows_of(&long)].concat();
    for wait in [0, 1_000] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let seen = object.read(Read::Object).await;
        assert!(seen == rows || clock.elapsed() >= LIVES, "{seen:?} of {:?}", object.name);
    }
    tokio::time::sleep(Duration::from_millis(3_000)).await;
    object.expect(Read::Object, &rows_of(&long)).await;
    // An expired row still hides older writes.
    object.put(&short, 0, LONG_TTL).await;
    object.expect(Read::Contender(short.contender), &[]).await;
}

async fn reads_return_what_was_asked_for(object: &Object<'_>) {
    let mut claims = [claim(1, 1, Some(3)), claim(1, 2, None), claim(1, 3, Some(4))];
    // Each differs in one part of the key.
    claims[1].contender.slot += 1;
    claims[2].contender.client ^= 1;
    for (stamp, claim) in (1..).zip(&claims) {
        object.put(claim, stamp, LONG_TTL).await;
    }
    for claim in &claims {
        object.expect(Read::Contender(claim.contender), &rows_of(claim)).await;
        object.expect(Read::Entering(claim.contender), &rows_of(claim)).await;
    }
    assert_eq!(object.read(Read::Object).await.len(), 3);
    let absent = ContenderId { host: 77, ..contender(1) };
    object.expect(Read::Contender(absent), &[]).await;
    object.expect(Read::Entering(absent), &[]).await;
    object.expect(front(absent, &[]), &[]).await;
    let [one, own, other] = claims.each_ref().map(|claim| claim.contender);
    for claim in &claims {
        object.revoke(&revocation(claim), 5, LONG_TTL).await;
    }
    let [of_one, of_own, of_other] = claims.each_ref().map(rows_of);
    let revoked = vec![StoredRow::revoked(&revocation(&claims[1]))];
    let expected = [&of_one[..], &of_own, &revoked, &of_other].concat();
    let read = object.read(front(own, &[one, other, absent])).await;
    assert_eq!(read.len(), expected.len(), "own rows, and announcements of others: {read:?}");
    assert!(expected.iter().all(|row| read.contains(row)), "{read:?}");
    object.delete(claims[0].contender, 10).await;
    object.expect(Read::Entering(claims[0].contender), &[]).await;
    let revoked = StoredRow::revoked(&revocation(&claims[0]));
    object.expect(Read::Contender(claims[0].contender), &[revoked]).await;
    object.expect(front(absent, &[one, other]), &of_other).await;
}

async fn objects_do_not_mix(rows: &dyn LockRows, tag: &str, stamp: i64) {
    let mut names: Vec<_> = ODD_NAMES.iter().map(|odd| format!("{tag}{odd}")).collect();
    names.extend([format!("{tag}É"), format!("{tag}E\u{301}"), format!("{tag}é"), tag.to_owned()]);
    let filling = NAME_BYTES_MAX - tag.len();
    names.push(format!("{tag}{}", "x".repeat(filling)));
    names.push(format!("{tag}{}", "x".repeat(filling - 1)));
    let objects: Vec<_> = names.into_iter().map(|name| Object { rows, name, stamp }).collect();
    for (round, object) in (1..).zip(&objects) {
        object.put(&claim(1, round, Some(round)), 1, LONG_TTL).await;
    }
    for (round, object) in (1..).zip(&objects) {
        object.expect(Read::Object, &rows_of(&claim(1, round, Some(round)))).await;
        object.delete(contender(1), 2).await;
    }
}

async fn many_contenders_are_read_at_once(object: &Object<'_>) {
    let claims: Vec<_> = (1..=300).map(|number| claim(number, 1, Some(number.into()))).collect();
    for claim in &claims {
        object.put(claim, 1, LONG_TTL).await;
    }
    let seen = object.read(Read::Object).await;
    let ids: BTreeSet<_> = seen.iter().map(|row| row.contender).collect();
    assert_eq!((seen.len(), ids.len()), (300, 300));
    let expected: Vec<_> = claims.iter().flat_map(rows_of).collect();
    assert!(expected.iter().all(|row| seen.contains(row)), "a row is not as it was written");
}

async fn revocations_stand_beside_the_rows(object: &Object<'_>) {
    let claim = claim(1, 7, Some(5));
    let id = claim.contender;
    object.put(&claim, 10, LONG_TTL).await;
    let revocation = revocation(&claim);
    object.revoke(&revocation, 11, LONG_TTL).await;
    let revoked = StoredRow::revoked(&revocation);
    let mut all = [rows_of(&claim), vec![revoked.clone()]].concat();
    all.sort_by(|a, b| a.row_name.cmp(&b.row_name));
    object.expect(Read::Object, &all).await;
    object.expect(Read::Contender(id), &all).await;
    object.expect(Read::Entering(id), &rows_of(&claim)).await;
    // It stays when the other rows are deleted, and is deleted with them on request.
    object.delete(id, 12).await;
    object.expect(Read::Contender(id), std::slice::from_ref(&revoked)).await;
    object.put(&claim, 20, LONG_TTL).await;
    object.revoke(&revocation, 20, LONG_TTL).await;
    let change = Change::Delete { contender: id, revoked: true, last_release: None };
    object.write(21, change).await;
    object.expect(Read::Contender(id), &[]).await;
    // It has a TTL of its own.
    object.put(&claim, 30, LONG_TTL).await;
    object.revoke(&revocation, 31, SHORT_TTL).await;
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    object.expect(Read::Contender(id), &rows_of(&claim)).await;
}

/// All reads by which waiters pace themselves show the release with the highest stamp, in whatever
/// order the releases came, and whichever contender's row is read. A release touches no other row.
async fn the_last_release_is_told(object: &Object<'_>) {
    let claims = [1, 2, 3].map(|number| claim(number, 7, Some(i64::from(number))));
    let waiter = claims[2].contender;
    for claim in &claims {
        object.put(claim, 10, LONG_TTL).await;
    }
    let last_release = async |read| object.statics(read).await.last_release;
    assert_eq!(last_release(Read::Object).await, None);
    let release = async |claim: &Claim, told: i64| {
        let ContenderId { client, .. } = claim.contender;
        let (handoff, stamp) = (Duration::from_micros(1_234), object.stamp + told);
        let last = LastRelease { client, round: claim.round, handoff, stamp };
        let change =
            Change::Delete { contender: claim.contender, revoked: false, last_release: Some(last) };
        object.write(20, change).await;
        Some(last)
    };
    let first = release(&claims[0], 31).await;
    assert_eq!(last_release(Read::Object).await, first);
    assert_eq!(last_release(Read::Entering(waiter)).await, first);
    let second = release(&claims[1], 30).await;
    assert_ne!(first, second);
    assert_eq!(last_release(Read::Object).await, first, "the later release has a lower stamp");
    let third = release(&claims[1], 32).await;
    assert_eq!(last_release(Read::Entering(waiter)).await, third);
    assert_eq!(last_release(front(waiter, &[claims[0].contender])).await, third);
    object.delete(waiter, 20).await;
    object.expect(Read::Object, &[]).await;
    assert_eq!(last_release(Read::Object).await, third, "it belongs to no row");
}

/// Reads of the object show the highest mark, and it touches no row.
async fn the_mark_only_grows(object: &Object<'_>) {
    let claim = claim(1, 7, Some(5));
    object.put(&claim, 10, LONG_TTL).await;
    let expect = async |mark: Option<i64>| {
        let mark = mark.map(|mark| object.stamp + mark);
        assert_eq!(object.statics(Read::Object).await.mark, mark);
        object.expect(Read::Object, &rows_of(&claim)).await;
    };
    expect(None).await;
    for (mark, highest) in [(20, 20), (20, 20), (5, 20), (21, 21)] {
        object.write(mark, Change::Mark).await;
        expect(Some(highest)).await;
    }
    object.delete(claim.contender, 15).await;
    object.expect(Read::Object, &[]).await;
    let mark = object.statics(Read::Object).await.mark;
    assert_eq!(mark, Some(object.stamp + 21), "it is shown without any row");
    object.put(&claim, 30, LONG_TTL).await;
    expect(Some(21)).await;
}

/// A sweep hides the rows of all contenders as far as they were written up to it, also those that
/// arrive later, and nothing else.
async fn a_sweep_hides_what_was_written_up_to_it(object: &Object<'_>) {
    let [early, late] = [(1, 10), (2, 21)].map(|(number, round)| claim(number, round, Some(5)));
    object.raise_fence(10).await;
    object.put(&early, 20, LONG_TTL).await;
    object.put(&late, 21, LONG_TTL).await;
    object.revoke(&revocation(&early), 15, LONG_TTL).await;
    object.sweep(20, &[]).await;
    let revoked = StoredRow::revoked(&revocation(&early));
    let left = [std::slice::from_ref(&revoked), &rows_of(&late)].concat();
    object.expect(Read::Object, &left).await;
    object.expect(Read::Entering(early.contender), &[]).await;
    assert_eq!(object.fence().await, Some(10));
    object.put(&early, 19, LONG_TTL).await;
    object.put(&claim(3, 18, None), 18, LONG_TTL).await;
    object.sweep(17, &[]).await;
    object.expect(Read::Object, &left).await;
    object.put(&claim(1, 22, Some(6)), 22, LONG_TTL).await;
    object.expect(Read::Entering(early.contender), &rows_of(&claim(1, 22, Some(6)))).await;
}

async fn stamps_are_told(object: &Object<'_>) {
    let claim = claim(1, 7, Some(5));
    let id = claim.contender;
    assert_eq!(object.stamps(id).await, []);
    object.put(&Claim { ticket: None, ..claim.clone() }, 10, LONG_TTL).await;
    let row_stamp = |name: &str, stamp| RowStamp { row_name: name.to_owned(), round: 7, stamp };
    assert_eq!(object.stamps(id).await, [row_stamp(row_name::ENTERING, 10)]);
    object.put(&claim, 20, LONG_TTL).await;
    object.revoke(&revocation(&claim), 30, LONG_TTL).await;
    let revoked = row_stamp(row_name::REVOKED, 30);
    assert_eq!(object.stamps(id).await, [row_stamp(row_name::ENTERING, 20), revoked.clone()]);
    assert_eq!(object.stamps(contender(2)).await, [], "they are another contender's");
    object.delete(id, 40).await;
    assert_eq!(object.stamps(id).await, [revoked]);
}

async fn times_are_told(object: &Object<'_>) {
    const SHORTER: i32 = LONG_TTL / 2;
    let read_with_times = async || {
        let rows = object.rows.read_with_times(&object.name).await.expect("a read is answered");
        let rows = rows.into_iter().map(|TimedRow { row, stamp, ttl_seconds }| {
            let stamp = stamp.expect("the row has a round") - object.stamp;
            (row, stamp, ttl_seconds.expect("the row has a TTL"))
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(_, stamp, _)| *stamp);
        rows
    };
    assert_eq!(read_with_times().await, []);
    object.raise_fence(1).await;
    assert_eq!(read_with_times().await, [], "the fence is no row");

    let (long, short) = (claim(1, 7, None), claim(2, 8, None));
    object.put(&long, 10, LONG_TTL).await;
    object.put(&short, 20, SHORTER).await;
    object.revoke(&revocation(&long), 30, LONG_TTL).await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let seen = read_with_times().await;
    let rows: Vec<_> = seen.iter().map(|(row, stamp, _)| (row, *stamp)).collect();
    let revoked = StoredRow::revoked(&revocation(&long));
    let (long, short) = (StoredRow::entering(&long), StoredRow::entering(&short));
    assert_eq!(rows, [(&long, 10), (&short, 20), (&revoked, 30)]);
    for ((.., left), ttl) in seen.iter().zip([LONG_TTL, SHORTER, LONG_TTL]) {
        // How long the cluster took is unknown.
        assert!((1..ttl - 1).contains(left), "{left} s are left of {ttl}");
    }
    object.put(&claim(2, 8, None), 40, LONG_TTL).await;
    let renewed = read_with_times().await;
    assert_eq!(renewed.last().map(|(row, stamp, _)| (row, *stamp)), Some((&short, 40)));
    assert!(renewed.last().is_some_and(|(.., left)| *left > SHORTER), "{renewed:?}");
}

async fn one_replica_shows_several_objects(table: &dyn LockRows, tag: &str, stamp: i64) {
    let object = |number: i16| {
        let name = format!("{tag}::several::{number}");
        Object { rows: table, name, stamp }
    };
    // The last one has no rows.
    let names: Vec<Arc<str>> = (0..31).map(|number| object(number).name.into()).collect();
    for number in 0..30 {
        object(number).put(&claim(number, 7, Some(1)), 10, LONG_TTL).await;
    }
    let mut expected: Vec<_> = (0..30)
        .map(|number| (object(number).name, StoredRow::entering(&claim(number, 7, Some(1)))))
        .collect();
    expected.sort_by(|(one, _), (other, _)| one.cmp(other));
    // One replica may learn of a write late.
    for count in [1, names.len()] {
        let expected = &expected[..count.min(expected.len())];
        let shown = async {
            loop {
                let shown = table.read_one_replica_of_each(&names[..count]).await;
                let mut shown = shown.expect("a read is answered");
                shown.sort_by(|(one, _), (other, _)| one.cmp(other));
                if shown.len() >= expected.len() {
                    break shown;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let shown = tokio::time::timeout(BUSY_MAX, shown).await;
        assert_eq!(shown.expect("replicas learn of writes"), expected);
    }
}

async fn all_objects_are_found(table: &dyn LockRows, tag: &str, stamp: i64) {
    // One object has more rows than a page.
    let tag = format!("{tag}::found::");
    let object = |name: &str| Object { rows: table, name: format!("{tag}{name}"), stamp };
    let names: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    for name in &names {
        object(name).put(&claim(1, 7, Some(1)), 10, LONG_TTL).await;
    }
    let (crowded, free) = (object("0"), object("free"));
    for number in 2..600 {
        crowded.put(&claim(number, 7, None), 10, LONG_TTL).await;
    }
    free.raise_fence(20).await;
    object("marked").write(20, Change::Mark).await;
    free.put(&claim(1, 7, None), 10, LONG_TTL).await;
    free.delete(contender(1), 11).await;

    let (mut found, mut ended) = (BTreeMap::<String, Vec<TimedRow>>::new(), BTreeSet::new());
    for part in table.parts() {
        let (mut next, mut last) = (None, None);
        loop {
            let page = table.read_page(part, next.as_ref()).await.expect("a read is answered");
            for (name, row) in page.rows {
                if last.as_ref() != Some(&name) {
                    ended.extend(last.replace(name.clone()));
                    assert!(!ended.contains(&name), "{name:?} is found twice");
                }
                found.entry(name).or_default().push(row);
            }
            let Some(cursor) = page.next else { break };
            next = Some(cursor);
        }
        ended.extend(last);
    }
    found.retain(|name, _| name.starts_with(&tag));
    let expected: BTreeSet<_> = names.iter().map(|name| format!("{tag}{name}")).collect();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for (name, mut rows) in found {
        let mut expected = table.read_with_times(&name).await.expect("a read is answered");
        let key = |timed: &TimedRow| (timed.row.contender, timed.row.row_name.clone());
        rows.sort_by_key(key);
        expected.sort_by_key(key);
        let untimed = |rows: Vec<TimedRow>| -> Vec<_> {
            rows.into_iter().map(|timed| (timed.row, timed.stamp)).collect()
        };
        assert_eq!(untimed(rows), untimed(expected), "{name:?}");
    }
}

async fn the_fence_only_grows(object: &Object<'_>) {
    assert_eq!(object.fence().await, None);
    // Above the stamps of all rows, below them, and late ones in between.
    for (written, expected) in [(5, 5), (9, 9), (7, 9), (9, 9), (8, 9), (1_000_000, 1_000_000)] {
        object.raise_fence(written).await;
        assert_eq!(object.fence().await, Some(expected), "after {written} was written");
    }
    // All replicas that may answer say the same.
    for _ in 0..10 {
        object.raise_fence(0).await;
        assert_eq!(object.fence().await, Some(1_000_000));
    }
}

async fn rows_and_fence_do_not_touch_each_other(object: &Object<'_>) {
    let (one, other) = (claim(1, 1, Some(5)), claim(2, 1, None));
    object.raise_fence(10).await;
    object.expect(Read::Object, &[]).await;
    for stamp in [1, 20] {
        object.put(&one, stamp, LONG_TTL).await;
        object.put(&other, stamp, LONG_TTL).await;
        object.expect(Read::Object, &[rows_of(&one), rows_of(&other)].concat()).await;
        assert_eq!(object.fence().await, Some(10));
        object.delete(one.contender, stamp + 1).await;
        assert_eq!(object.fence().await, Some(10));
        object.delete(other.contender, stamp + 1).await;
        object.expect(Read::Object, &[]).await;
        assert_eq!(object.fence().await, Some(10));
    }
    object.put(&one, 30, LONG_TTL).await;
    object.raise_fence(40).await;
    object.expect(Read::Contender(one.contender), &rows_of(&one)).await;
    object.delete(one.contender, 50).await;
    assert_eq!(object.fence().await, Some(40));
    let unfenced = Object { name: format!("{} too", object.name), ..*object };
    unfenced.put(&one, 1, LONG_TTL).await;
    assert_eq!(unfenced.fence().await, None, "rows alone are no fence");
}

async fn the_registry_keeps_hosts(table: &dyn HostTable, tag: &str, stamp: i64) {
    let host = |name: &str, number| HostRow {
        name: format!("{tag}.{name}"),
        number,
        added_at_millis: 1_700_000_000_123,
        removed_at_millis: None,
        seen_at_millis: None,
        stamp,
    };
    let mut hosts = [host("a", 1), host("b", i32::MAX)];
    let seen = async || {
        let mut seen = Vec::new();
        for host in ["a", "b", "c"] {
            let host = table.read_host(&format!("{tag}.{host}")).await;
            seen.extend(host.expect("a host is read"));
        }
        seen
    };
    for host in &hosts {
        table.write_host(host).await.expect("a host is written");
    }
    assert_eq!(seen().await, hosts);
    let late = HostRow { stamp: stamp - 1, number: 9, ..hosts[0].clone() };
    hosts[0] = HostRow { removed_at_millis: Some(1), stamp: stamp + 1, ..hosts[0].clone() };
    table.write_host(&hosts[0]).await.expect("a host is written");
    table.write_host(&late).await.expect("a host is written");
    assert_eq!(seen().await, hosts, "the higher stamp wins");
    hosts[0] = HostRow { removed_at_millis: None, stamp: stamp + 2, ..hosts[0].clone() };
    table.write_host(&hosts[0]).await.expect("a host is written");
    assert_eq!(seen().await, hosts, "a removed host is added again");
}

/// The time that a host was seen survives writes of the row, and creates no row of its own.
async fn last_seen_touches_nothing_else(table: &dyn HostTable, tag: &str, stamp: i64) {
    let name = format!("{tag}.seen");
    let seen = async || table.read_host(&name).await.expect("a host is read");
    let see = async |at| table.write_last_seen(&name, at).await.expect("it is written");
    see(stamp).await;
    assert_eq!(seen().await, None, "being seen makes no host");
    let mut host = HostRow {
        name: name.clone(),
        number: 7,
        added_at_millis: 1,
        removed_at_millis: Some(2),
        seen_at_millis: None,
        stamp,
    };
    table.write_host(&host).await.expect("a host is written");
    // Older and newer than the row: only the newest time counts.
    for (at, newest) in [(stamp + 2_000, stamp + 2_000), (stamp - 2_000, stamp + 2_000)] {
        see(at).await;
        host.seen_at_millis = Some(newest / 1000);
        assert_eq!(seen().await.as_ref(), Some(&host));
    }
    host = HostRow { removed_at_millis: None, stamp: stamp + 1, ..host };
    table.write_host(&HostRow { seen_at_millis: None, ..host.clone() }).await.expect("it is");
    assert_eq!(seen().await, Some(host), "the row was written without that time");
    assert!(table.read_seen_since().await.expect("it is read").is_some());
}

/// A page is full, in the byte order of names, and begins after the requested name.
async fn hosts_come_page_by_page(table: &dyn HostTable, tag: &str, stamp: i64) {
    let name = |number: usize| format!("{tag}.page.{number:05}");
    for number in 1..=HOSTS_PER_PAGE + 2 {
        let host = HostRow {
            name: name(number),
            number: 1,
            added_at_millis: 1,
            removed_at_millis: (number % 2 == 0).then_some(1),
            seen_at_millis: None,
            stamp,
        };
        table.write_host(&host).await.expect("a host is written");
    }
    let page = async |after: &str| -> Vec<String> {
        let page = table.read_hosts(after).await.expect("a page is read");
        page.into_iter().map(|host| host.name).collect()
    };
    let names = |numbers: RangeInclusive<usize>| numbers.map(name).collect::<Vec<_>>();
    assert_eq!(page(&name(0)).await, names(1..=HOSTS_PER_PAGE));
    assert_eq!(page(&name(1)).await, names(2..=HOSTS_PER_PAGE + 1));
    let last = page(&name(HOSTS_PER_PAGE)).await;
    assert_eq!(last[..2], names(HOSTS_PER_PAGE + 1..=HOSTS_PER_PAGE + 2));
    let first = page("").await;
    assert!(first.len() == HOSTS_PER_PAGE && first.is_sorted(), "{first:?}");
}

/// Others may use the registry at the same time.
async fn the_registry_only_grows(table: &dyn HostTable) {
    let next = async || table.read_next().await.expect("the register is read");
    let first = next().await;
    table.raise_next(first + 10).await.expect("the register is written");
    assert!(next().await >= first + 10);
    table.raise_next(first + 5).await.expect("the register is written");
    assert!(next().await >= first + 10, "a smaller value replaced a larger one");
}

/// All nodes have one table, and clocks with which clients are not refused.
async fn nodes_say_what_locks_rely_on(nodes: &dyn NodeProbe) {
    let clock = SystemClock::new();
    let told = loop {
        let seen = nodes.probe_nodes().await;
        let told: Vec<_> = seen.iter().filter_map(|(_, report)| *report).collect();
        if !told.is_empty() && told.len() == seen.len() {
            break told;
        }
        assert!(clock.elapsed() < BUSY_MAX, "a node is silent: {seen:?}");
    };
    for NodeReport { clock, lock_table } in &told {
        assert!(clock.earliest() <= 1_000_000 && clock.latest() >= -1_000_000, "{clock:?}");
        assert!(lock_table.is_some() && *lock_table == told[0].lock_table, "{told:?}");
    }
}

/// What only CQL can show: rows do not change the fence; it and the mark outlive the table's TTL,
/// the last release does not; a row keeps nothing of the one that it overwrites.
async fn writes_touch_no_other_column(
    store: &CassandraStore,
    session: &Session,
    table: &str,
    name: &str,
) {
    let object =
        Object { rows: store, name: name.to_owned(), stamp: SystemClock::new().unix_micros() };
    let execute = async |cql: String| {
        let mut statement = Statement::new(cql);
        statement.set_consistency(Quorum);
        session.query_unpaged(statement, (name,)).await.expect("the cluster answers")
    };
    store.write_fence(name, 5).await.expect("a write is acknowledged");
    object.expect(Read::Object, &[]).await;
    let limited = Claim { mode: Mode::Limited(7), ..claim(1, 1, Some(1)) };
    object.put(&limited, 1, LONG_TTL).await;
    object.put(&claim(1, 2, Some(2)), 2, LONG_TTL).await;
    let rows = object.read(Read::Object).await;
    assert_eq!(rows.iter().map(|row| row.max_holders).collect::<Vec<_>>(), [None]);
    object.write(3, Change::Mark).await;
    let (handoff, stamp) = (Duration::from_micros(1_234), object.stamp + 3);
    let last_release = Some(LastRelease { client: 1, round: 2, handoff, stamp });
    let contender = contender(1);
    let release = Change::Delete { contender, revoked: false, last_release };
    object.write(3, release).await;
    let columns = "fence, WRITETIME(fence), TTL(fence), TTL(last_release), TTL(mark)";
    let statics = execute(format!("SELECT {columns} FROM {table} WHERE object_name = ?")).await;
    let statics = statics.into_rows_result().expect("a read brings rows");
    type Ttl = Option<i32>;
    let statics = statics.single_row::<(Option<i64>, Option<i64>, Ttl, Ttl, Ttl)>();
    let (value, stamp, fence, released, mark) = statics.expect("the static part is there");
    assert_eq!((value, stamp), (Some(5), Some(5)));
    // How long the cluster took is unknown.
    for (left, ttl) in [(fence, FENCE_TTL_SECONDS), (released, LAST_RELEASE_TTL_SECONDS)] {
        let left = left.expect("it does not live for ever");
        assert!((1..=ttl).contains(&left), "{left} s are left of {ttl}");
    }
    assert!(fence > Some(FENCE_TTL_SECONDS / 2), "{fence:?}");
    assert_eq!(mark, None, "the mark expires");
}
