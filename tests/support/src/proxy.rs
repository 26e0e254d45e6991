//! Answers and requests that get lost, and a proxy in front of a node for it.

use std::net::SocketAddr;

use scylla_proxy::{Condition, Node, Proxy, ResponseOpcode, RunningProxy, ShardAwareness};

/// What gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The next acknowledgement of a write.
    OneAcknowledgement,
    /// All acknowledgements of writes: they are applied, but the client can't know.
    Acknowledgements,
    /// All requests: nothing is applied, and the client can't know that either.
    Requests,
}

/// Puts a proxy in front of a node.
pub async fn in_front_of(node: SocketAddr, address: SocketAddr) -> RunningProxy {
    let node = Node::builder().real_address(node).proxy_address(address);
    let node = node.shard_awareness(ShardAwareness::Unaware).build();
    let proxy = Proxy::new([node]).run().await;
    proxy.expect("no other process uses the addresses of the proxies")
}

/// The answer to a write: a result of the kind 1, and nothing else in it. Results of the other
/// kinds, 2 to 5, have more: also those of statements that are prepared again, which a node may
/// have forgotten.
pub fn acknowledgement() -> Condition {
    let contains = |kind: i32| Condition::BodyContainsCaseSensitive(Box::from(kind.to_be_bytes()));
    let result = Condition::ResponseOpcode(ResponseOpcode::Result);
    let others = [2, 3, 4, 5].map(|kind| Condition::not(contains(kind)));
    others.into_iter().fold(result.and(contains(1)), Condition::and)
}
