//! What a store promises that writes and reads in one round trip.

use tokio::join;

use super::{LONG_TTL, Object, claim, front, rows_of};
use crate::core::bakery::{Change, Claim, ContenderId, Read, StoredRow, Write};
use crate::store::Exchanges;

/// How often two exchange at the same time.
const PAIRS: i64 = 50;

/// Checks a store that exchanges. The object is new.
pub(super) async fn exchanges_write_and_read(object: &Object<'_>) {
    if let Some(store) = object.rows.exchanges() {
        an_exchange_shows_its_own_write(store, object).await;
        one_of_two_exchanges_shows_the_other(store, object).await;
    }
}

async fn exchange(
    store: &dyn Exchanges,
    name: &str,
    (claim, stamp): (&Claim, i64),
    read: Read,
) -> Vec<StoredRow> {
    let change = Change::Put { claim: claim.clone(), ttl_seconds: LONG_TTL };
    let seen = store.exchange(name, &Write { stamp, change }, read).await;
    let mut rows = seen.expect("an exchange is answered").rows;
    rows.sort_by(|a, b| (a.contender, &a.row_name).cmp(&(b.contender, &b.row_name)));
    rows
}

/// It shows as much of the object as was asked for, with the write. Repeated, it brings nothing
/// back that was deleted.
async fn an_exchange_shows_its_own_write(store: &dyn Exchanges, object: &Object<'_>) {
    let [first, other] = [(1, None), (2, Some(7))].map(|(number, ticket)| claim(number, 1, ticket));
    let both = [rows_of(&first), rows_of(&other)].concat();
    let do_exchange = async |claim, stamp, read| {
        exchange(store, &object.name, (claim, object.stamp + stamp), read).await
    };
    assert_eq!(do_exchange(&first, 10, Read::Object).await, rows_of(&first));
    assert_eq!(do_exchange(&other, 11, Read::Object).await, both);
    let one = Read::Entering(first.contender);
    assert_eq!(do_exchange(&other, 11, one).await, rows_of(&first));
    let own = Read::Contender(other.contender);
    assert_eq!(do_exchange(&first, 10, own).await, rows_of(&other));
    let own_and_other = front(first.contender, &[other.contender]);
    assert_eq!(do_exchange(&first, 10, own_and_other).await, both);
    object.expect(Read::Object, &both).await;
    object.delete(first.contender, 12).await;
    assert_eq!(do_exchange(&first, 10, Read::Object).await, rows_of(&other));
    object.expect(Read::Object, &rows_of(&other)).await;
}

/// Of two that begin together, at least one finds the other.
async fn one_of_two_exchanges_shows_the_other(store: &dyn Exchanges, object: &Object<'_>) {
    for pair in 0..PAIRS {
        let name = format!("{}::{pair}", object.name);
        let claims = [1, 2].map(|number| claim(number, 1, None));
        let [one, other] = &claims;
        let (ours, theirs) = join!(
            exchange(store, &name, (one, object.stamp), Read::Object),
            exchange(store, &name, (other, object.stamp), Read::Object),
        );
        let shows =
            |rows: &[StoredRow], whom: ContenderId| rows.iter().any(|row| row.contender == whom);
        assert!(shows(&ours, one.contender) && shows(&theirs, other.contender), "own rows");
        assert!(
            shows(&ours, other.contender) || shows(&theirs, one.contender),
            "neither shows the other: {ours:?}, {theirs:?}"
        );
    }
}
