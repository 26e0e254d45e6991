//! Where nodes and clients are, and how long messages and work take.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::node::Ask;
use crate::core::bakery::Read;

/// Where nodes and clients are, and how long messages between them and work on requests take.
///
/// Zones have numbers, and so have data centres. Nothing waits for a processor: a node works on any
/// number of requests at once, each as slowly as it would alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Geography {
    /// The data centre of each zone.
    pub datacenters: Vec<usize>,
    /// The zone of each replica.
    pub replicas: Vec<usize>,
    /// How long a message takes from zone to zone, in the median; half of a round trip.
    pub delays: Vec<Vec<Duration>>,
    /// How much the delays vary: the standard deviation of their logarithms.
    pub jitter: f64,
    /// How long work takes.
    pub work: Work,
    /// Which answers count.
    pub counted: Counted,
    /// Which replica coordinates a request.
    pub routing: Routing,
}

/// How long the work on a request takes, at all nodes that do a part of it one after the other, so
/// without the network. Half of it is done before the coordinator sends messages to replicas, the
/// other half once a quorum of them has answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// On a write.
    pub write: Spread,
    /// On a read of one or two rows.
    pub row_read: Spread,
    /// On a read of all rows of an object.
    pub object_read: Spread,
    /// On a message between two peers.
    pub message: Spread,
}

/// A time that varies, by a lognormal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Its median.
    pub median: Duration,
    /// The standard deviation of its logarithm.
    pub sigma: f64,
}

/// Which replicas must answer: more than half of those that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All count: QUORUM.
    All,
    /// Those of one data centre count: `LOCAL_QUORUM`. One of them coordinates, wherever the client
    /// is.
    In(usize),
}

/// Which replica coordinates a request, of those that [`Counted`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Any.
    Anywhere,
    /// One of the client's data centre.
    Datacenter,
    /// One of the client's zone.
    Zone,
}

impl Spread {
    /// A time that does not vary.
    #[must_use]
    pub const fn fixed(time: Duration) -> Self {
        Spread { median: time, sigma: 0.0 }
    }

    pub(super) fn draw(self, rng: &mut StdRng) -> Duration {
        if self.sigma == 0.0 {
            self.median
        } else {
            self.median.mul_f64((self.sigma * normal(rng)).exp())
        }
    }
}

impl Geography {
    /// How long a message takes from a zone to another one, or to another node of it.
    pub(super) fn delay(&self, from: usize, to: usize, rng: &mut StdRng) -> Duration {
        Spread { median: self.delays[from][to], sigma: self.jitter }.draw(rng)
    }

    /// How long a message takes between two replicas. A replica asks itself without one.
    pub(super) fn between(&self, from: usize, to: usize, rng: &mut StdRng) -> Duration {
        if from == to {
            return Duration::ZERO;
        }
        self.delay(self.replicas[from], self.replicas[to], rng)
    }

    /// How long the work on a request takes.
    pub(super) fn work_on(&self, ask: &Ask<'_>, rng: &mut StdRng) -> Duration {
        let spread = match ask {
            Ask::Write(_) | Ask::Exchange(..) | Ask::WriteFence(_) => self.work.write,
            Ask::Read(Read::Object) | Ask::OneReplica => self.work.object_read,
            Ask::Read(Read::Contender(_) | Read::Entering(_) | Read::Front { .. })
            | Ask::ReadFence => self.work.row_read,
        };
        spread.draw(rng)
    }

    /// Whether the answer of a replica counts.
    pub(super) fn counts(&self, replica: usize) -> bool {
        match self.counted {
            Counted::All => true,
            Counted::In(datacenter) => self.datacenter(replica) == datacenter,
        }
    }

    /// How many replicas must answer.
    pub(super) fn quorum(&self) -> usize {
        (0..self.replicas.len()).filter(|replica| self.counts(*replica)).count() / 2 + 1
    }

    /// The replica that coordinates a request of a client in a zone: any one of the nearest that
    /// the routing knows of.
    pub(super) fn coordinator(&self, zone: usize, rng: &mut StdRng) -> usize {
        let all = || (0..self.replicas.len()).filter(|replica| self.counts(*replica));
        let preferred: Vec<_> = match self.routing {
            Routing::Anywhere => all().collect(),
            Routing::Datacenter => {
                all().filter(|of| self.datacenter(*of) == self.datacenters[zone]).collect()
            }
            Routing::Zone => all().filter(|of| self.replicas[*of] == zone).collect(),
        };
        let replicas = if preferred.is_empty() { all().collect() } else { preferred };
        replicas[rng.random_range(0..replicas.len())]
    }

    /// The replicas that a coordinator reads from: of those that count, the nearest ones.
    pub(super) fn nearest(
        &self,
        coordinator: usize,
        needed: usize,
        rng: &mut StdRng,
    ) -> Vec<usize> {
        let counted = (0..self.replicas.len()).filter(|replica| self.counts(*replica));
        let mut by_distance: Vec<_> = counted
            .map(|replica| {
                let delay = self.delays[self.replicas[coordinator]][self.replicas[replica]];
                (replica != coordinator, delay, rng.random::<u64>(), replica)
            })
            .collect();
        by_distance.sort_unstable();
        by_distance.into_iter().take(needed).map(|(.., replica)| replica).collect()
    }

    fn datacenter(&self, replica: usize) -> usize {
        self.datacenters[self.replicas[replica]]
    }
}

/// A number of the standard normal distribution, by the method of Box and Muller.
fn normal(rng: &mut StdRng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    // The first one is in 0..1, and its complement has a logarithm.
    (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn times_vary_around_their_median() {
        let mut rng = StdRng::seed_from_u64(1);
        let spread = Spread { median: Duration::from_micros(1_000), sigma: 0.25 };
        let mut drawn: Vec<_> = (0..10_000).map(|_| spread.draw(&mut rng)).collect();
        drawn.sort_unstable();
        let near = |rank: usize, expected: f64| {
            let micros = drawn[rank].as_secs_f64() * 1e6;
            assert!((micros / expected - 1.0).abs() < 0.03, "{micros} instead of {expected}");
        };
        near(5_000, 1_000.0);
        // 1.645 standard deviations from the middle.
        near(9_500, 1_000.0 * (0.25 * 1.645_f64).exp());
        near(500, 1_000.0 * (-0.25 * 1.645_f64).exp());
        assert_eq!(Spread::fixed(spread.median).draw(&mut rng), spread.median);
    }

    #[test]
    fn requests_go_to_the_preferred_replicas() {
        let fixed = Spread::fixed(Duration::ZERO);
        let geography = |counted, routing| Geography {
            datacenters: vec![0, 0, 1],
            replicas: vec![0, 1, 1, 2],
            delays: vec![vec![Duration::ZERO; 3]; 3],
            jitter: 0.0,
            work: Work { write: fixed, row_read: fixed, object_read: fixed, message: fixed },
            counted,
            routing,
        };
        let (all, first) = (Counted::All, Counted::In(0));
        for (counted, routing, zone, expected) in [
            (all, Routing::Anywhere, 0, vec![0, 1, 2, 3]),
            (all, Routing::Datacenter, 0, vec![0, 1, 2]),
            (all, Routing::Datacenter, 2, vec![3]),
            (all, Routing::Zone, 1, vec![1, 2]),
            (first, Routing::Anywhere, 2, vec![0, 1, 2]),
            (first, Routing::Zone, 2, vec![0, 1, 2]),
        ] {
            let (geography, mut rng) = (geography(counted, routing), StdRng::seed_from_u64(1));
            let chosen: BTreeSet<_> =
                (0..100).map(|_| geography.coordinator(zone, &mut rng)).collect();
            assert_eq!(chosen.into_iter().collect::<Vec<_>>(), expected, "{counted:?} {routing:?}");
        }
        assert_eq!(
            (geography(all, Routing::Zone).quorum(), geography(first, Routing::Zone).quorum()),
            (3, 2)
        );
    }
}
