//! Rows as a table may hold them, those that no client writes among them.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;

use crate::core::bakery::{Claim, ContenderId, Mode, StoredRow, row_name};

/// The contender that looks at the rows.
pub(super) const ME: ContenderId = ContenderId { host: 5, client: 7, slot: 0 };

/// Contenders that are easily mistaken for [`ME`] or for each other.
const CONTENDERS: [ContenderId; 8] = [
    ME,
    ContenderId { slot: 1, ..ME },
    ContenderId { slot: i16::MIN, ..ME },
    ContenderId { client: 6, ..ME },
    ContenderId { client: u128::MAX, ..ME },
    ContenderId { host: 4, ..ME },
    ContenderId { host: 6, ..ME },
    ContenderId { host: i32::MIN, client: 0, slot: i16::MAX },
];

/// Names of rows: those in use, and what a careless eye takes for one of them.
const ROW_NAMES: [&str; 8] = [
    row_name::ENTERING,
    row_name::REVOKED,
    "priority::",
    "Entering::",
    "entering:",
    "entering::\0",
    " revoked::",
    "",
];

/// All rows of an object: some of clients that keep to the protocol, some that no client writes.
pub(super) fn table() -> impl Strategy<Value = Vec<StoredRow>> {
    (vec(claim(), 0..5), vec(any_row(), 0..4)).prop_map(|(claims, odd)| {
        let rows = claims.iter().flat_map(rows_of);
        one_of_each_key(rows.chain(odd).collect())
    })
}

/// The first row of each key: a table has no other.
pub(super) fn one_of_each_key(mut rows: Vec<StoredRow>) -> Vec<StoredRow> {
    let mut keys = HashSet::new();
    rows.retain(|row| keys.insert((row.row_name.clone(), row.contender)));
    rows
}

/// The claim of any contender, with or without a ticket.
pub(super) fn claim() -> impl Strategy<Value = Claim> {
    (contender(), number(), mode(), weighted(0.7, number()), held_since()).prop_map(
        |(contender, round, mode, ticket, held_since)| {
            let owner = format!("host {}", contender.host);
            Claim { contender, round, mode, ticket, owner: owner.into(), held_since }
        },
    )
}

/// The rows of a claim.
pub(super) fn rows_of(claim: &Claim) -> Vec<StoredRow> {
    vec![StoredRow::entering(claim)]
}

/// Any row at all: any name, nulls anywhere, numbers of no use.
pub(super) fn any_row() -> impl Strategy<Value = StoredRow> {
    let name = prop_oneof![
        9 => select(&ROW_NAMES[..]).prop_map(str::to_owned),
        1 => ".{0,12}",
    ];
    let mode = weighted(0.8, prop_oneof![4 => 0_i8..4, 1 => any::<i8>()]);
    let most = weighted(0.5, prop_oneof![4 => -1_i32..4, 1 => any::<i32>()]);
    let numbers = (weighted(0.8, number()), weighted(0.7, number()), held_since());
    (name, contender(), mode, most, numbers, of(text()), of(text())).prop_map(
        |(row_name, contender, mode, max_holders, (round, ticket, held_since), owner, why)| {
            StoredRow {
                row_name,
                contender,
                round,
                mode,
                max_holders,
                ticket,
                owner,
                why,
                held_since,
            }
        },
    )
}

pub(super) fn contender() -> impl Strategy<Value = ContenderId> {
    prop_oneof![
        9 => select(&CONTENDERS[..]),
        1 => (any::<i32>(), any::<u128>(), any::<i16>())
            .prop_map(|(host, client, slot)| ContenderId { host, client, slot }),
    ]
}

/// A contender, or its neighbour if it is this one.
pub(super) fn other_than(this: ContenderId, contender: ContenderId) -> ContenderId {
    let slot = if contender == this { contender.slot ^ 1 } else { contender.slot };
    ContenderId { slot, ..contender }
}

pub(super) fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        2 => prop_oneof![4 => 1_i32..4, 1 => Just(i32::MAX)].prop_map(Mode::Limited),
    ]
}

/// A round or a ticket: mostly one that others have as well.
pub(super) fn number() -> impl Strategy<Value = i64> {
    let extremes = [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX];
    prop_oneof![6 => 0_i64..4, 1 => select(extremes.to_vec()), 1 => any::<i64>()]
}

/// Most rows are of waiters; of the holders, half are later than all others.
fn held_since() -> impl Strategy<Value = Option<i64>> {
    weighted(0.4, prop_oneof![number(), Just(i64::MAX)])
}

fn text() -> impl Strategy<Value = String> {
    select(&["", "ops", "snap \u{0} \u{10ffff}"][..]).prop_map(str::to_owned)
}
