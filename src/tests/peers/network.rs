//! The simulated messages between clients, on the time of one runtime.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::mishap::Trouble;
use crate::peers::Join;
use crate::testing::instrumented::simulated::messages::{Messenger, Weather};

/// Messages are late, lost and repeated.
pub(super) const STORMY: Weather =
    Weather { latency: 30, late: 0.0, late_by: 1, lost: 0.1, repeated: 0.2 };

/// Connects clients.
#[derive(Clone)]
pub(super) struct TestNetwork {
    messenger: Messenger,
    origin: Instant,
    /// A message was sent.
    sent: Arc<Notify>,
    /// What happens to one kind of message in addition to the weather.
    trouble: Arc<Mutex<Option<Trouble>>>,
}

impl TestNetwork {
    /// Messages are delivered while the present runtime lives.
    pub(super) fn new(seed: u64, weather: Weather) -> Self {
        let (messenger, sent) = (Messenger::new(seed, weather), Arc::default());
        let origin = Instant::now();
        let network = TestNetwork { messenger, origin, sent, trouble: Arc::default() };
        tokio::spawn(network.clone().deliver());
        network
    }

    /// How a client joins.
    pub(super) fn join(&self) -> Join {
        let network = self.clone();
        Box::new(move |client| {
            network.messenger.join(client, network.origin.elapsed(), network.sent)
        })
    }

    /// Cuts a client off.
    pub(super) fn cut_off(&self, client: u128) {
        self.messenger.cut_off(client, None);
    }

    /// Lets messages of a client through again, by new connections.
    pub(super) fn reconnect(&self, client: u128) {
        self.messenger.reconnect(client, None);
    }

    /// Lets no messages through between two clients.
    pub(super) fn cut_apart(&self, one: u128, other: u128) {
        self.messenger.cut_off(one, Some(other));
    }

    /// Lets them through again, by new connections.
    pub(super) fn join_again(&self, one: u128, other: u128) {
        self.messenger.reconnect(one, Some(other));
    }

    /// From now on, keepers ask guests to leave that have had a turn for so long.
    pub(super) fn limit_guests(&self, guest_hold_max: Duration) {
        self.messenger.limit_guests(guest_hold_max);
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.messenger.set_weather(weather);
    }

    /// Makes trouble for one kind of message.
    pub(super) fn make(&self, trouble: Trouble) {
        *self.trouble() = Some(trouble);
        let network = self.clone();
        self.messenger.set_mishap(Some(Box::new(move |message| {
            let mut trouble = network.trouble();
            trouble.as_mut().map_or(vec![Duration::ZERO], |it| it.arrivals(message))
        })));
    }

    /// Ends the trouble; how many messages were in it.
    pub(super) fn calm_down(&self) -> usize {
        self.messenger.set_mishap(None);
        self.trouble().take().map_or(0, |trouble| trouble.times())
    }

    fn trouble(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().expect("the mutex is not poisoned")
    }

    /// How many messages were sent.
    pub(super) fn messages(&self) -> usize {
        self.messenger.sent()
    }

    async fn deliver(self) {
        loop {
            let next = self.messenger.next_arrival();
            let arrival = async {
                match next {
                    Some(next) => sleep_until(self.origin + next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.sent.notified() => {}
                () = arrival => self.messenger.deliver_next(),
            }
        }
    }
}
