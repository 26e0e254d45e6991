//! Where nodes and clients are. `benches/latency/README.md` names the sources of all times.

use std::time::Duration;

use bakery_lock_instrumented::testing::{Counted, Geography, Routing, Spread, Work};

/// Nodes and clients in certain places.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) geography: Geography,
    /// What the zones are called.
    pub(crate) zones: &'static [&'static str],
    /// In which zones lone clients are measured.
    pub(crate) lone: Vec<usize>,
    /// In which zones contending clients are, one after the other.
    pub(crate) contending: Vec<usize>,
}

/// How long nodes work: what a write, a read and a whole read of the lock take on the three nodes
/// of one machine, where no message takes long (`cargo bench --bench locks` on 2026-11-21).
const WORK: Work = Work {
    write: Spread { median: Duration::from_micros(610), sigma: 0.24 },
    row_read: Spread { median: Duration::from_micros(640), sigma: 0.31 },
    object_read: Spread { median: Duration::from_micros(760), sigma: 0.31 },
    // A handoff among four processes takes two messages and 0.07 ms there.
    message: Spread { median: Duration::from_micros(35), sigma: 0.31 },
};

/// How much the time of a message varies.
const JITTER: f64 = 0.1;

impl Scenario {
    pub(crate) fn all() -> Vec<Scenario> {
        let rack = Scenario {
            name: "one rack".to_owned(),
            geography: Geography { replicas: vec![0; 3], ..geography([[0.2]], Routing::Anywhere) },
            zones: &["rack"],
            lone: vec![0],
            contending: vec![0],
        };
        vec![
            on_one_machine("one machine", [[0.0; 3]; 3], WORK),
            rack,
            Self::zones("three zones", Routing::Anywhere),
            Self::zones("three zones, driver prefers the zone", Routing::Zone),
            Self::continents("three continents, LOCAL_QUORUM", Counted::In(0), &[0]),
            Self::continents("three continents, QUORUM", Counted::All, &[0, 1, 2]),
        ]
    }

    fn zones(name: &str, routing: Routing) -> Scenario {
        let round_trips = [[0.2, 0.6, 0.8], [0.6, 0.2, 1.0], [0.8, 1.0, 0.2]];
        Scenario {
            name: name.to_owned(),
            geography: Geography { datacenters: vec![0; 3], ..geography(round_trips, routing) },
            zones: &["zone 1", "zone 2", "zone 3"],
            lone: vec![0, 1, 2],
            contending: vec![0, 1, 2],
        }
    }

    /// Three nodes on each continent, in zones of it.
    fn continents(name: &str, counted: Counted, contending: &[usize]) -> Scenario {
        let round_trips = [[0.8, 80.5, 145.3], [80.5, 0.8, 212.4], [145.3, 212.4, 0.8]];
        let replicas = vec![0, 0, 0, 1, 1, 1, 2, 2, 2];
        Scenario {
            name: name.to_owned(),
            geography: Geography {
                replicas,
                counted,
                ..geography(round_trips, Routing::Datacenter)
            },
            zones: &["Virginia", "Ireland", "Tokyo"],
            lone: vec![0, 1, 2],
            contending: contending.to_vec(),
        }
    }
}

/// A node in each zone, each zone a data centre, with these milliseconds for a round trip.
fn geography<const ZONES: usize>(
    round_trips: [[f64; ZONES]; ZONES],
    routing: Routing,
) -> Geography {
    let delay = |round_trip: f64| Duration::from_secs_f64(round_trip / 2_000.0);
    Geography {
        datacenters: (0..ZONES).collect(),
        replicas: (0..ZONES).collect(),
        delays: round_trips.map(|row| row.map(delay).to_vec()).to_vec(),
        jitter: JITTER,
        work: WORK,
        counted: Counted::All,
        routing,
    }
}

/// The three nodes of a cluster on one machine, with delays between them, and a client beside all
/// of them.
pub(crate) fn on_one_machine(name: &str, round_trips: [[f64; 3]; 3], work: Work) -> Scenario {
    let [first, second, third] = round_trips;
    let beside = |[a, b, c]: [f64; 3]| [a, b, c, 0.0];
    let with_client = [beside(first), beside(second), beside(third), [0.0; 4]];
    let geography = Geography {
        datacenters: vec![0; 4],
        replicas: vec![0, 1, 2],
        jitter: 0.0,
        work,
        ..geography(with_client, Routing::Anywhere)
    };
    Scenario {
        name: name.to_owned(),
        geography,
        zones: &["node 1", "node 2", "node 3", "it"],
        lone: vec![3],
        contending: vec![3],
    }
}
