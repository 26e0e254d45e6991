//! What the figures shall be.

use std::time::Duration;

use common::outcome::{Bound, Outcome};
use common::record::{Record, Which};

use crate::bench::JUDGED_BY;
use crate::measures::{distinct, hot_name, uncontended};
use crate::servers::cassandra::Paxos;
use crate::sides::Kind;

const JUDGED: u64 = JUDGED_BY as u64;

/// More than clients usually have: they shall only not fail.
const MANY: u64 = 128;

/// A round trip to Redis servers that outweighs what a client computes.
const FAR: Duration = Duration::from_micros(500);

pub(crate) fn judge(records: &[Record], redis_delay: Duration) -> Vec<Outcome> {
    let mut outcomes = on_cassandra(records);
    outcomes.extend(alone_on_redis(records, redis_delay));
    for (kind, label) in [(Kind::MastersSubleases, "subleases"), (Kind::Masters, "table only")] {
        outcomes.extend(contended_on_redis(records, kind, &format!("on Redis, {label}")));
    }
    outcomes
}

/// Uncontended: two requests and one against one and one, so the round trips alone are 1.5 to 1.
fn alone_on_redis(records: &[Record], redis_delay: Duration) -> [Outcome; 2] {
    let (ours, both) = (alone(Kind::Masters.label()), "both_ms.p50");
    let (bound, what) = if redis_delay < FAR {
        (2.0, "on Redis: lock + unlock / Redlock".to_owned())
    } else {
        (1.25, format!("on Redis, {redis_delay:?} away: lock + unlock / Redlock"))
    };
    let redlock = (alone(Kind::Redlock.label()), both);
    [
        Outcome::ratio(what, Bound::AtMost(bound), records, (ours, both), redlock),
        Outcome::figure(
            "on Redis, uncontended: errors",
            Bound::AtMost(0.0),
            records,
            ours,
            "errors",
        ),
    ]
}

fn contended_on_redis(records: &[Record], kind: Kind, label: &str) -> [Outcome; 4] {
    let ours = hot(kind.label());
    let figure = |what: &str, bound, which, path: &str| {
        Outcome::figure(
            format!("{JUDGED_BY} processes, {label}: {what}"),
            bound,
            records,
            which,
            path,
        )
    };
    let many = Which { parameter: Some((hot_name::CONTENDERS, MANY)), ..ours };
    let handoffs = "handoffs_per_second";
    [
        Outcome::ratio(
            format!("{JUDGED_BY} processes, {label}: handoffs / Redlock"),
            Bound::AtLeast(3.0),
            records,
            (ours, handoffs),
            (hot(Kind::Redlock.label()), handoffs),
        ),
        figure("worst share", Bound::AtLeast(0.97), ours, "worst_share"),
        figure("errors", Bound::AtMost(0.0), ours, "errors"),
        Outcome::figure(
            format!("{MANY} processes, {label}: errors"),
            Bound::AtMost(0.0),
            records,
            many,
            "errors",
        ),
    ]
}

fn on_cassandra(records: &[Record]) -> Vec<Outcome> {
    let ratio =
        |what: &str, bound, ours, theirs| Outcome::ratio(what, bound, records, ours, theirs);
    let (v1, v2) = (Paxos::V1.label(), Paxos::V2.label());
    let ours = alone(Kind::LocalTurns.label());
    let both = "both_ms.p50";
    let handoffs = |side| (hot(side), "handoffs_per_second");
    let table = Kind::Bakery.label();
    let subleases = Kind::Subleases.label();
    let distinct = |side| (many(side), "grants_per_second");
    let of_subleases =
        |what: &str, bound, path: &str| Outcome::figure(what, bound, records, hot(subleases), path);
    vec![
        ratio(
            "lock / (bare write + bare read)",
            Bound::AtMost(1.1),
            (ours, "lock_ms.p50"),
            (alone(Kind::Bare.label()), both),
        ),
        Outcome::figure("uncontended: errors", Bound::AtMost(0.0), records, ours, "errors"),
        ratio("lock + unlock / LWT v1", Bound::AtMost(0.55), (ours, both), (alone(v1), both)),
        ratio("lock + unlock / LWT v2", Bound::AtMost(0.65), (ours, both), (alone(v2), both)),
        ratio(
            "32 processes, subleases: handoffs / etcd",
            Bound::AtLeast(10.0),
            handoffs(subleases),
            handoffs(Kind::Etcd.label()),
        ),
        ratio(
            "32 processes, subleases: handoffs / Redlock",
            Bound::Above(1.0),
            handoffs(subleases),
            handoffs(Kind::Redlock.label()),
        ),
        of_subleases("32 processes, subleases: worst share", Bound::AtLeast(0.9), "worst_share"),
        of_subleases("32 processes, subleases: errors", Bound::AtMost(0.0), "errors"),
        ratio(
            "32 processes, table only: handoffs / LWT v1",
            Bound::AtLeast(3.0),
            handoffs(table),
            handoffs(v1),
        ),
        ratio(
            "32 processes, table only: handoffs / LWT v2",
            Bound::AtLeast(1.5),
            handoffs(table),
            handoffs(v2),
        ),
        Outcome::figure(
            "32 processes, table only: errors",
            Bound::AtMost(0.0),
            records,
            hot(table),
            "errors",
        ),
        ratio(
            "32 callers, distinct names: grants / LWT v1",
            Bound::AtLeast(1.6),
            distinct(Kind::LocalTurns.label()),
            distinct(v1),
        ),
        ratio(
            "32 callers, distinct names: grants / LWT v2",
            Bound::AtLeast(1.6),
            distinct(Kind::LocalTurns.label()),
            distinct(v2),
        ),
    ]
}

fn alone(side: &str) -> Which<'_> {
    Which { side, measure: uncontended::MEASURE, parameter: None }
}

fn hot(side: &str) -> Which<'_> {
    Which { side, measure: hot_name::MEASURE, parameter: Some((hot_name::CONTENDERS, JUDGED)) }
}

fn many(side: &str) -> Which<'_> {
    Which { side, measure: distinct::MEASURE, parameter: Some((distinct::CALLERS, JUDGED)) }
}
