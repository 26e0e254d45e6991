//! What a client is made of, and how it starts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Inner, LockClient};
use crate::assumptions::{Assumptions, Watch};
use crate::clock::{Clock, Stamps};
use crate::dispatch::{Dispatcher, Registration};
use crate::entropy::Entropy;
use crate::hosts;
use crate::process::Process;
use crate::protocol::ContenderId;
use crate::runner::Shared;
use crate::store::{Counted, Store};

/// What a client is made of.
pub(crate) struct ClientSetup {
    /// Where the rows live.
    pub(crate) store: Arc<Counted>,
    /// The clock of everything that the client does.
    pub(crate) clock: Arc<dyn Clock>,
    /// The randomness of everything that the client does.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Number of the host, from the registry.
    pub(crate) host: i32,
    /// Name of the host.
    pub(crate) host_name: String,
    /// How long acquisitions, releases and a shutdown wait.
    pub(crate) acquire_timeout: Duration,
    /// How long rows live without renewal.
    pub(crate) ttl: Duration,
    /// The longest TTL that the lock table allows.
    pub(crate) max_ttl: Duration,
    /// How far clocks may differ, by the lock table's settings.
    pub(crate) max_clock_skew: Duration,
    /// The id of the lock table, if somebody shall look whether it and the clocks stay as they are.
    pub(crate) lock_table: Option<Uuid>,
}

impl LockClient {
    /// Starts the task of a client.
    pub(crate) fn start(setup: ClientSetup) -> Self {
        let ClientSetup {
            store,
            clock,
            entropy,
            host,
            host_name,
            acquire_timeout,
            ttl,
            max_ttl,
            max_clock_skew,
            lock_table,
        } = setup;
        let (calls, receiver) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let shared = Arc::new(Shared {
            store: Arc::clone(&store) as Arc<dyn Store>,
            clock,
            stamps: Stamps::default(),
            id: ContenderId { host, client: entropy.client().as_u128(), slot: 0 },
            entropy,
            acquire_timeout,
            process: Process::current(),
        });
        // The registry's own lock is taken by hosts that are not registered yet.
        let registration = (host != hosts::REGISTRAR)
            .then(|| Registration::new(host_name.clone(), host, shared.clock.elapsed()));
        let watch = lock_table.map(|lock_table| {
            Watch::new(Assumptions { max_clock_skew, lock_table }, ttl, shared.clock.elapsed())
        });
        let drop_guard = ended.clone().drop_guard();
        let dispatcher =
            Dispatcher::new(Arc::clone(&shared), receiver, registration, watch, drop_guard);
        tokio::spawn(dispatcher.run());
        let owner = format!("{host_name} pid {}", std::process::id());
        LockClient {
            inner: Arc::new(Inner {
                calls,
                ended,
                store,
                shared,
                owner,
                ttl,
                max_ttl,
                max_clock_skew,
            }),
        }
    }
}
