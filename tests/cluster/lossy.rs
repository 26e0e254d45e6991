//! A session on which answers and requests get lost.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bakery_lock::{DatabaseError, LockClientBuilder, Outcome};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla_proxy::{
    Condition, Reaction, RequestOpcode, RequestReaction, RequestRule, ResponseFrame,
    ResponseOpcode, ResponseReaction, ResponseRule, RunningProxy, TargetShard,
    get_exclusive_local_address,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) use support::proxy::Loss;
use support::proxy::{self, acknowledgement};
use support::scene::Scene;

/// The first ticket of a queue, as a field of a tuple: its length and its value. Without a ticket
/// the length is -1.
const FIRST_TICKET: [u8; 12] = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1];

/// For how long the write of a ticket is held back: time enough to set other rules.
const HELD_BACK: Duration = Duration::from_millis(500);

/// A session through proxies in front of the nodes, for clients of its own.
pub(crate) struct LossyLink {
    session: Arc<Session>,
    proxies: Mutex<Vec<RunningProxy>>,
}

impl LossyLink {
    /// A link on which nothing gets lost yet.
    pub(crate) async fn new(scene: &Scene) -> Self {
        let (mut addresses, mut proxies) = (HashMap::new(), Vec::new());
        for node in scene.nodes() {
            let address = SocketAddr::new(get_exclusive_local_address(), node.port());
            addresses.insert(node, address);
            proxies.push(proxy::in_front_of(node, address).await);
        }
        let session = SessionBuilder::new()
            .known_nodes_addr(addresses.values())
            .address_translator(Arc::new(addresses))
            .fetch_full_schema_metadata(false)
            .build()
            .await
            .expect("the cluster is ready");
        LossyLink { session: Arc::new(session), proxies: Mutex::new(proxies) }
    }

    /// A builder of clients that use it.
    pub(crate) fn builder(&self, scene: &Scene) -> LockClientBuilder {
        scene.builder_on(&self.session)
    }

    /// Whether a client's last failure is what losses come to: it got no answer.
    pub(crate) fn explains(failure: &DatabaseError) -> bool {
        failure.outcome() == Outcome::Unknown
    }

    /// Loses something from now on.
    pub(crate) fn lose(self: &Arc<Self>, loss: Loss) {
        match loss {
            Loss::OneAcknowledgement => {
                tokio::spawn(self.lose_acknowledgements(1));
            }
            Loss::Acknowledgements => {
                let reaction = ResponseReaction::drop_frame();
                self.on_responses(Some(&[ResponseRule(acknowledgement(), reaction)]));
            }
            Loss::Requests => {
                let execute = Condition::RequestOpcode(RequestOpcode::Execute);
                let batch = Condition::RequestOpcode(RequestOpcode::Batch);
                let reaction = RequestReaction::drop_frame();
                self.on_requests(Some(&[RequestRule(execute.or(batch), reaction)]));
            }
        }
    }

    /// Loses the next acknowledgements of writes, this many, from now on; the future is ready once
    /// they are lost and nothing gets lost any more.
    pub(crate) fn lose_acknowledgements(
        self: &Arc<Self>,
        count: usize,
    ) -> impl Future<Output = ()> + use<> {
        let (feedback, mut lost) = unbounded_channel();
        let reaction = ResponseReaction::drop_frame().with_feedback_when_performed(feedback);
        self.on_responses(Some(&[ResponseRule(acknowledgement(), reaction)]));
        let lossy = Arc::clone(self);
        async move {
            for _ in 0..count {
                lost.recv().await.expect("the proxies run as long as this value");
            }
            lossy.heal();
        }
    }

    /// Holds each acknowledgement of a write back for some time, from now on. Returns once the next
    /// write is applied and its acknowledgement held back.
    pub(crate) async fn hold_back_acknowledgements(&self, time: Duration) {
        let (feedback, mut held_back) = unbounded_channel();
        let reaction = ResponseReaction::delay(time).with_feedback_when_performed(feedback);
        self.on_responses(Some(&[ResponseRule(acknowledgement(), reaction)]));
        held_back.recv().await.expect("the proxies run as long as this value");
    }

    /// Returns once the first ticket of a queue is about to be written, early enough to lose
    /// something of it.
    pub(crate) async fn before_a_ticket(&self) {
        let (feedback, mut tickets) = unbounded_channel();
        let held_back = RequestReaction::delay(HELD_BACK).with_feedback_when_performed(feedback);
        let write = Condition::RequestOpcode(RequestOpcode::Execute)
            .and(Condition::BodyContainsCaseSensitive(Box::new(FIRST_TICKET)));
        self.on_requests(Some(&[RequestRule(write, held_back)]));
        tickets.recv().await.expect("the proxies run as long as this value");
        self.on_requests(None);
    }

    /// Counts the nodes' responses from now on, without events such as other tests' new tables.
    pub(crate) fn answers(&self) -> Answers<'_> {
        let (feedback, frames) = unbounded_channel();
        let reaction = ResponseReaction::noop().with_feedback_when_performed(feedback);
        let answers = Condition::not(Condition::ResponseOpcode(ResponseOpcode::Event));
        self.on_responses(Some(&[ResponseRule(answers, reaction)]));
        Answers { link: self, frames }
    }

    /// Loses nothing any more.
    pub(crate) fn heal(&self) {
        for proxy in self.proxies.lock().expect("the mutex is not poisoned").iter_mut() {
            proxy.turn_off_rules();
        }
    }

    fn on_requests(&self, rules: Option<&[RequestRule]>) {
        for proxy in self.proxies.lock().expect("the mutex is not poisoned").iter_mut() {
            proxy.running_nodes[0].change_request_rules(rules.map(<[_]>::to_vec));
        }
    }

    fn on_responses(&self, rules: Option<&[ResponseRule]>) {
        for proxy in self.proxies.lock().expect("the mutex is not poisoned").iter_mut() {
            proxy.running_nodes[0].change_response_rules(rules.map(<[_]>::to_vec));
        }
    }
}

/// What the nodes answer through the proxies.
pub(crate) struct Answers<'a> {
    link: &'a LossyLink,
    frames: UnboundedReceiver<(ResponseFrame, Option<TargetShard>)>,
}

impl Answers<'_> {
    /// How many bytes and frames they answered up to now.
    pub(crate) fn end(mut self) -> (usize, usize) {
        self.link.heal();
        let (mut bytes, mut frames) = (0, 0);
        while let Ok((frame, _)) = self.frames.try_recv() {
            bytes += frame.body.len();
            frames += 1;
        }
        (bytes, frames)
    }
}
