//! What the figures shall be.

use common::outcome::{Bound, Outcome};
use common::record::{Record, Which};

use crate::bench::JUDGED_BY;
use crate::measures::{distinct, hot_name, uncontended};
use crate::servers::cassandra::Paxos;
use crate::sides::Kind;

const JUDGED: u64 = JUDGED_BY as u64;

pub(crate) fn judge(records: &[Record]) -> Vec<Outcome> {
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
