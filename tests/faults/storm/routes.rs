//! How a client reaches the nodes: through a proxy of its own in front of each.
//!
//! That makes each operation some 80 ms slower: the proxy writes header and body of a frame one
//! after the other, and its sockets wait with the second until the first is acknowledged, which
//! takes 40 ms, both ways, so few locks are granted in a second, but many meet each fault.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scylla_proxy::{
    Condition, Reaction, RequestOpcode, RequestReaction, RequestRule, ResponseFrame,
    ResponseReaction, ResponseRule, RunningProxy, example_db_errors, get_exclusive_local_address,
};
use tokio::sync::Mutex;

use support::proxy::{acknowledgement, in_front_of};

/// What is wrong on the way between a client and the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// Nothing passes in either direction.
    CutOff,
    /// Some requests never arrive.
    RequestsLost,
    /// Some answers never arrive: what was asked for is done.
    AnswersLost,
    /// Some requests arrive late, some of them after the client has asked again.
    RequestsLate,
    /// Some answers arrive late.
    AnswersLate,
    /// Some requests are answered with an error and not done.
    RequestsRefused,
    /// Some writes are answered with an error although they are done.
    AnswersForged,
    /// Connections break now and then.
    ConnectionsBroken,
}

/// A client's ways to all nodes.
pub(crate) struct Routes(Mutex<Vec<Route>>);

struct Route {
    node: SocketAddr,
    address: SocketAddr,
    /// None while the node is dead: what is dead does not listen.
    proxy: Option<RunningProxy>,
}

impl Routes {
    pub(crate) async fn to(nodes: &[SocketAddr]) -> Self {
        let mut routes = Vec::new();
        for &node in nodes {
            let address = SocketAddr::new(get_exclusive_local_address(), node.port());
            let proxy = Some(in_front_of(node, address).await);
            routes.push(Route { node, address, proxy });
        }
        Routes(Mutex::new(routes))
    }

    /// Where to find the way to each node.
    pub(crate) async fn addresses(&self) -> HashMap<SocketAddr, SocketAddr> {
        let routes = self.0.lock().await;
        routes.iter().map(|route| (route.node, route.address)).collect()
    }

    /// Breaks all connections to a node and accepts no more, as if it had died.
    pub(crate) async fn close(&self, node: SocketAddr) {
        for route in self.0.lock().await.iter_mut().filter(|route| route.node == node) {
            if let Some(proxy) = route.proxy.take() {
                // It tells of connections that broke, which is what they do here.
                let _ = proxy.finish().await;
            }
        }
    }

    /// Listens again for a node.
    pub(crate) async fn open(&self, node: SocketAddr) {
        for route in self.0.lock().await.iter_mut().filter(|route| route.node == node) {
            if route.proxy.is_none() {
                route.proxy = Some(in_front_of(node, route.address).await);
            }
        }
    }

    /// Makes trouble on the way to some of the nodes, by their positions.
    pub(crate) async fn make(&self, trouble: Trouble, to: &[usize]) {
        for (position, route) in self.0.lock().await.iter_mut().enumerate() {
            if let (true, Some(proxy)) = (to.contains(&position), &mut route.proxy) {
                let node = &mut proxy.running_nodes[0];
                node.change_request_rules(Some(trouble.with_requests()));
                node.change_response_rules(Some(trouble.with_answers()));
            }
        }
    }

    /// Ends all trouble.
    pub(crate) async fn clear(&self) {
        for route in self.0.lock().await.iter_mut() {
            if let Some(proxy) = &mut route.proxy {
                proxy.turn_off_rules();
            }
        }
    }
}

impl Trouble {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Trouble::CutOff => "client cut off from all nodes",
            Trouble::RequestsLost => "client's requests lost",
            Trouble::AnswersLost => "client's answers lost",
            Trouble::RequestsLate => "client's requests late",
            Trouble::AnswersLate => "client's answers late",
            Trouble::RequestsRefused => "client's requests refused, forged",
            Trouble::AnswersForged => "client's acknowledgements forged",
            Trouble::ConnectionsBroken => "client's connections broken",
        }
    }

    fn with_requests(self) -> Vec<RequestRule> {
        let execute = Condition::RequestOpcode(RequestOpcode::Execute);
        let batch = Condition::RequestOpcode(RequestOpcode::Batch);
        let some = |share| execute.clone().or(batch.clone()).and(now_and_then(share));
        match self {
            Trouble::CutOff => vec![RequestRule(Condition::True, RequestReaction::drop_frame())],
            Trouble::RequestsLost => vec![RequestRule(some(0.3), RequestReaction::drop_frame())],
            Trouble::RequestsLate => {
                let late = |ms| RequestReaction::delay(Duration::from_millis(ms));
                [20, 300, 1_500, 4_000].map(|ms| RequestRule(some(0.1), late(ms))).into()
            }
            Trouble::RequestsRefused => {
                let forge = RequestReaction::forge;
                let refusals = [
                    forge().overloaded(),
                    forge().unavailable(),
                    forge().is_bootstrapping(),
                    forge().server_error(),
                    forge().write_timeout(),
                    forge().read_timeout(),
                ];
                refusals.map(|refusal| RequestRule(some(0.06), refusal)).into()
            }
            Trouble::ConnectionsBroken => {
                vec![RequestRule(some(0.01), RequestReaction::drop_connection())]
            }
            Trouble::AnswersLost | Trouble::AnswersLate | Trouble::AnswersForged => Vec::new(),
        }
    }

    fn with_answers(self) -> Vec<ResponseRule> {
        match self {
            Trouble::CutOff => vec![ResponseRule(Condition::True, ResponseReaction::drop_frame())],
            Trouble::AnswersLost => {
                vec![ResponseRule(now_and_then(0.3), ResponseReaction::drop_frame())]
            }
            Trouble::AnswersLate => {
                let late = |ms| ResponseReaction::delay(Duration::from_millis(ms));
                [20, 300, 1_500, 4_000].map(|ms| ResponseRule(now_and_then(0.1), late(ms))).into()
            }
            Trouble::AnswersForged => {
                // What a write is answered with that may have been applied; these are.
                let forged =
                    ResponseReaction::transform_frame(Arc::new(|answer: ResponseFrame| {
                        let error = example_db_errors::write_timeout();
                        ResponseFrame::forged_error(answer.params, error, None)
                            .expect("it is short")
                    }));
                vec![ResponseRule(acknowledgement().and(now_and_then(0.3)), forged)]
            }
            Trouble::RequestsLost
            | Trouble::RequestsLate
            | Trouble::RequestsRefused
            | Trouble::ConnectionsBroken => Vec::new(),
        }
    }
}

fn now_and_then(share: f64) -> Condition {
    Condition::RandomWithProbability(share)
}
