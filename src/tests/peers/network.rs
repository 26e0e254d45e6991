//! A network within one process, which delays messages, and loses, repeats and cuts them off on
//! demand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;

use super::mishap::Trouble;
use crate::client::Join;
use crate::line::{Line, TurnUser};
use crate::network::{KeeperId, Network, NetworkEnd, NotReached, ObjectKey, Received, Told};
use crate::peers::{GuestId, Response, TimedRequest};

/// How messages fare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// The longest delay, in milliseconds.
    pub(super) delay: u64,
    pub(super) lost: f64,
    pub(super) repeated: f64,
}

impl Weather {
    pub(super) const CALM: Weather = Weather { delay: 1, lost: 0.0, repeated: 0.0 };
    pub(super) const STORMY: Weather = Weather { delay: 30, lost: 0.1, repeated: 0.2 };
}

/// Connects clients.
#[derive(Clone)]
pub(super) struct TestNetwork(Arc<Mutex<Hub>>);

struct Hub {
    clients: BTreeMap<u128, mpsc::UnboundedSender<Received>>,
    /// Clients that no message reaches or leaves.
    cut_off: BTreeSet<u128>,
    weather: Weather,
    /// What happens to one kind of message beside the weather.
    trouble: Option<Trouble>,
    rng: StdRng,
    messages: usize,
}

impl TestNetwork {
    pub(super) fn new(seed: u64, weather: Weather) -> Self {
        TestNetwork(Arc::new(Mutex::new(Hub {
            clients: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            weather,
            trouble: None,
            rng: StdRng::seed_from_u64(seed),
            messages: 0,
        })))
    }

    /// How a client joins.
    pub(super) fn join(&self) -> Join {
        let network = self.clone();
        Box::new(move |client| {
            let (sender, received) = mpsc::unbounded_channel();
            network.hub().clients.insert(client, sender);
            NetworkEnd { network: Arc::new(End { network, client }), received }
        })
    }

    /// Cuts a client off.
    pub(super) fn cut_off(&self, client: u128) {
        self.hub().cut_off.insert(client);
    }

    /// Lets messages of a client through again, by new connections.
    pub(super) fn reconnect(&self, client: u128) {
        let mut hub = self.hub();
        hub.cut_off.remove(&client);
        for other in hub.clients.values() {
            let _ = other.send(Received::Reconnected { keeper: client });
        }
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.hub().weather = weather;
    }

    /// Makes trouble for one kind of message.
    pub(super) fn make(&self, trouble: Trouble) {
        self.hub().trouble = Some(trouble);
    }

    /// Ends the trouble; how many messages were in it.
    pub(super) fn calm_down(&self) -> usize {
        self.hub().trouble.take().map_or(0, |trouble| trouble.times())
    }

    /// How many messages were sent.
    pub(super) fn messages(&self) -> usize {
        self.hub().messages
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.lock().expect("the mutex is not poisoned")
    }

    fn send(&self, from: u128, to: u128, message: &Received) {
        let mut hub = self.hub();
        hub.messages += 1;
        let Weather { delay, lost, repeated } = hub.weather;
        let times = 1 + usize::from(hub.rng.random_bool(repeated));
        let trouble = hub.trouble.as_mut();
        let arrivals = trouble.map_or(vec![Duration::ZERO], |it| it.arrivals(&message));
        for later in arrivals.repeat(times) {
            if hub.rng.random_bool(lost) {
                continue;
            }
            let delay = later + Duration::from_millis(hub.rng.random_range(0..=delay));
            let (network, message) = (self.clone(), message.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let hub = network.hub();
                let is_cut_off = hub.cut_off.contains(&from) || hub.cut_off.contains(&to);
                if let Some(client) = hub.clients.get(&to).filter(|_| !is_cut_off) {
                    // A client that has ended hears nothing.
                    let _ = client.send(message);
                }
            });
        }
    }
}

/// One client's end.
struct End {
    network: TestNetwork,
    client: u128,
}

impl Network for End {
    fn key(&self, object: &str) -> ObjectKey {
        let mut key = [0; 32];
        key[..object.len()].copy_from_slice(object.as_bytes());
        key
    }

    fn connect(&self, keeper: KeeperId) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(ready(self.is_connected(keeper)))
    }

    fn is_connected(&self, keeper: KeeperId) -> bool {
        self.network.hub().clients.contains_key(&keeper)
    }

    fn ask(&self, keeper: KeeperId, object: ObjectKey, request: TimedRequest) {
        let guest = self.client;
        self.network.send(guest, keeper, &Received::Request { guest, object, request });
    }

    fn owner(&self, guest: GuestId) -> Option<String> {
        Some(format!("guest {guest}"))
    }

    fn answer(
        &self,
        guest: GuestId,
        object: ObjectKey,
        response: Response,
        user: Option<TurnUser>,
    ) {
        let keeper = self.client;
        self.network.send(keeper, guest, &Received::Response { keeper, object, response, user });
    }

    fn who(&self, _: KeeperId, _: ObjectKey) -> Told {
        Box::pin(ready(Err(NotReached)))
    }

    fn tell(&self, _: GuestId, _: ObjectKey, _: Option<Line>) {}
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("client", &self.client).finish_non_exhaustive()
    }
}
