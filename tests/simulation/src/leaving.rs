//! A client that is asked to leave does so, and none is sent away without being asked.

use std::collections::BTreeSet;
use std::time::Duration;

use bakery_lock::LockMode;
use bakery_lock::testing::{WriteKind, WriteRecord};

use super::batch::{Invariant, assert_kept};
use super::log::Log;
use super::operator::REVOKED;

/// A client that stays although it was asked to leave, or that was told to leave and was not asked
/// to.
pub(crate) fn check(log: &Log) -> Option<String> {
    let told = log.told().find_map(|(client, object, at, why)| {
        let is_asked = if why.contains("Revoked") {
            log.requests_to_leave(client, object).any(|request| request.sent <= at)
        } else if why.contains("Closed") {
            log.shutdowns.iter().any(|shutdown| shutdown.client == client && shutdown.asked <= at)
        } else {
            true
        };
        (!is_asked).then(|| format!("client {client} was told at {at:?} for no reason: {why}"))
    });
    told.or_else(|| {
        let stays =
            asked(log).find_map(|(target, round, request)| stays(log, target, round, request));
        stays.map(|(target, at)| format!("client {target} was asked to leave, and stays at {at:?}"))
    })
}

/// Each client that was asked to leave, its round, and the write that says so.
fn asked(log: &Log) -> impl Iterator<Item = (usize, i64, &WriteRecord)> {
    log.writes.iter().filter_map(|write| match write.kind {
        WriteKind::Revoke { whom: target, round } => Some((target, round, write)),
        WriteKind::Put { .. } | WriteKind::Delete { .. } => None,
    })
}

/// When a client wrote its rows although it must have seen that it is asked to leave.
///
/// It reads its rows before each write of them, and again after it. One write may therefore follow
/// the request, by a read that began before that was acknowledged; before another one, a read shows
/// the request. A write is retried with its stamp. A request that was lost asks for nothing.
fn stays(log: &Log, target: usize, round: i64, request: &WriteRecord) -> Option<(usize, Duration)> {
    let acknowledged = request.acknowledged?;
    let lost = log.losses.iter().find(|loss| {
        (loss.client, &loss.object) == (target, &request.object) && loss.row_name == REVOKED
    });
    if lost.is_some() {
        return None;
    }
    let of_round = log.writes.iter().filter(|write| match write.kind {
        WriteKind::Put { round: of, .. } => {
            // Another slot may have a round of the same number, just above a mark.
            let of_place = (write.client, write.slot, of) == (target, request.slot, round);
            of_place && write.object == request.object
        }
        WriteKind::Revoke { .. } | WriteKind::Delete { .. } => false,
    });
    let is_earlier = |write: &&WriteRecord| write.sent <= acknowledged;
    let earlier: BTreeSet<_> = of_round.clone().filter(is_earlier).map(|it| it.stamp).collect();
    let mut later = of_round.filter(|write| !earlier.contains(&write.stamp));
    let first = later.next()?.stamp;
    let another = later.find(|write| write.stamp != first)?;
    Some((target, another.sent))
}

// Goal: a client that is asked to leave does, and none is told so that was not asked.
// Method: the histories of all seeds.
#[test]
fn client_that_is_asked_leaves() {
    assert_kept(Invariant::Leaving);
}

// Goal: the check finds a client that stays, and one that is sent away for no reason.
// Method: made-up histories of two clients, of which one asks the other one.
#[test]
fn client_that_stays_is_found() {
    let ms = Duration::from_millis;
    let write = |client, stamp, sent, acknowledged: Option<u64>, kind| {
        let (object, acknowledged) = ("a".to_owned(), acknowledged.map(ms));
        WriteRecord { client, object, slot: 0, stamp, sent: ms(sent), acknowledged, kind }
    };
    let put = |round, stamp, sent| {
        let (mode, ticket, ttl) = (LockMode::Exclusive, None, ms(5_000));
        write(0, stamp, sent, None, WriteKind::Put { round, mode, ticket, ttl })
    };
    let found = |acknowledged, puts: &[WriteRecord], why: &str, at| {
        let request = write(1, 1, 100, acknowledged, WriteKind::Revoke { whom: 0, round: 7 });
        let mut log = Log { writes: [&[request], puts].concat(), ..Log::default() };
        let (object, why) = ("a".to_owned(), why.to_owned());
        log.failures.push(super::log::Failure { client: 0, object, at: ms(at), why });
        check(&log).is_some()
    };
    let one = [put(7, 8, 150), put(7, 8, 300), put(7, 9, 400), put(7, 9, 500)];
    let another = [&one[..], &[put(7, 10, 600)]].concat();
    let of_next_round = [&one[..], &[put(8, 10, 600)]].concat();
    let of_another_slot: Vec<_> =
        another.iter().map(|write| WriteRecord { slot: 1, ..write.clone() }).collect();
    assert!(!found(Some(200), &one, "Revoked", 100), "one more was under way");
    assert!(found(Some(200), &another, "Revoked", 100), "it stays");
    assert!(!found(None, &another, "Revoked", 100), "it may never have been asked");
    assert!(!found(Some(200), &of_next_round, "Revoked", 100), "it was another round");
    assert!(!found(Some(200), &of_another_slot, "Revoked", 100), "it was another slot");
    assert!(found(Some(200), &one, "Revoked", 99), "it was not asked yet");
    assert!(found(Some(200), &one, "ClientClosed", 300), "it was not shut down");
}
