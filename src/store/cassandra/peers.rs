//! The table of peers: its statements, the values bound to them, and what its rows say.

use scylla::client::session::Session;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use uuid::Uuid;

use super::codec::decode;
use super::cql::Template;
use super::execution_profile::Terms;
use super::statements::prepare;
use crate::options::Consistency;
use crate::store::{DatabaseError, Identifier, PeerRow};

/// The statements on the table of peers.
pub(super) struct PeerStatements {
    pub(super) write: PreparedStatement,
    pub(super) read: PreparedStatement,
    pub(super) delete: PreparedStatement,
}

impl PeerStatements {
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &Identifier,
        consistency: &Consistency,
    ) -> Result<Self, DatabaseError> {
        let terms = Terms::new(session, consistency);
        let names = [("keyspace", keyspace.as_str())];
        let prepare = async |it: Template| prepare(session, &terms, it.fill(&names)).await;
        Ok(PeerStatements {
            write: prepare(Template::WritePeer).await?,
            read: prepare(Template::ReadPeer).await?,
            delete: prepare(Template::DeletePeer).await?,
        })
    }
}

/// The values to write the row of a client.
pub(super) fn peer_values(peer: &PeerRow, ttl_seconds: i32) -> impl SerializeRow {
    let PeerRow { client, addresses, key, version, stamp } = peer;
    (client, addresses, key.as_slice(), version, stamp, ttl_seconds)
}

/// The row of a client.
pub(super) fn peer(client: Uuid, result: QueryResult) -> Result<Option<PeerRow>, DatabaseError> {
    let row = decode::<Columns>(result)?.into_iter().next();
    row.map(|columns| understood(client, columns)).transpose()
}

/// Addresses, public key, version and stamp.
type Columns = (Option<Vec<String>>, Option<Vec<u8>>, Option<i32>, Option<i64>);

/// Clients write their rows whole, so a row that lacks something is not theirs.
fn understood(client: Uuid, columns: Columns) -> Result<PeerRow, DatabaseError> {
    let (addresses, key, version, stamp) = columns;
    let refusal = |problem: String| {
        DatabaseError::permanent(format!("the row of client {client} in lock_peers {problem}"))
    };
    let lacks = |column: &str| refusal(format!("has no {column}"));
    let addresses = addresses.ok_or_else(|| lacks("addresses"))?;
    let key = key.ok_or_else(|| lacks("public_key"))?;
    let length = key.len();
    let not_32 = |_| refusal(format!("has a public_key of {length} bytes, not 32"));
    Ok(PeerRow {
        client,
        addresses,
        key: key.try_into().map_err(not_32)?,
        version: version.ok_or_else(|| lacks("version"))?,
        stamp: stamp.ok_or_else(|| lacks("stamp"))?,
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;
    use crate::tests::properties::for_all;

    const CLIENT: Uuid = Uuid::from_u128(7);

    #[test]
    fn partial_row_is_refused_with_the_reason() {
        let addresses = || Some(vec!["a".to_owned()]);
        let key = |length| Some(vec![0xee; length]);
        for (columns, expected) in [
            ((None, key(32), Some(3), Some(4)), "has no addresses"),
            ((addresses(), None, Some(3), None), "has no public_key"),
            ((addresses(), key(31), Some(3), Some(4)), "has a public_key of 31 bytes, not 32"),
            ((addresses(), key(32), None, Some(4)), "has no version"),
            ((addresses(), key(32), Some(3), None), "has no stamp"),
        ] {
            let error = understood(CLIENT, columns).expect_err("the row is broken");
            assert!(error.is_permanent(), "{error:?}");
            let told = error.source().expect("there is a cause").to_string();
            assert_eq!(told, format!("the row of client {CLIENT} in lock_peers {expected}"));
        }
    }

    // Goal: any row is a peer or an error, and none panics.
    // Method: any column null or not, keys of any length.
    #[test]
    fn row_is_whole_or_refused() {
        let key = of(prop_oneof![3 => vec(any::<u8>(), 32), 1 => vec(any::<u8>(), 0..40)]);
        let addresses = of(vec("\\PC{0,8}", 0..3));
        let cases = (addresses, key, of(any::<i32>()), of(any::<i64>()));
        for_all(&cases, |columns| {
            let (addresses, key, version, stamp) = columns.clone();
            let is_whole = addresses.is_some()
                && key.as_ref().is_some_and(|key| key.len() == 32)
                && version.is_some()
                && stamp.is_some();
            let peer = understood(CLIENT, columns).ok();
            prop_assert_eq!(peer.is_some(), is_whole);
            if let Some(peer) = peer {
                prop_assert_eq!(Some(peer.key.to_vec()), key);
                prop_assert_eq!(Some(peer.addresses), addresses);
                prop_assert_eq!((Some(peer.version), Some(peer.stamp)), (version, stamp));
            }
            Ok(())
        });
    }
}
