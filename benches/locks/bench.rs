//! The order of things: warm, tune, then let all sides take turns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use crate::arguments::Plan;
use crate::measures::contended::{self, Slot};
use crate::measures::crowd::{CROWDS, Crowd, crowd};
use crate::measures::processes::Processes;
use crate::measures::uncontended::{self, Timings};
use crate::servers::cassandra::{Paxos, TestCluster};
use crate::sides::Side;
use crate::sides::bakery::BakeryLock;
use crate::sides::bare::Bare;
use crate::sides::lwt::{LwtLock, Parameters};
use crate::sides::tuning::CANDIDATES;

/// How many contenders want one name at once.
pub(crate) const CONTENDERS: [usize; 3] = [1, 4, 32];

/// All sides, ready to be measured.
pub(crate) struct Bench {
    cluster: Arc<TestCluster>,
    plan: Plan,
    progress: ProgressBar,
    bare: Bare,
    /// As many clients as there are contenders at most.
    bakery: Vec<Arc<BakeryLock>>,
    /// As many in processes of their own, which take turns of each other.
    peers: Processes,
    lwt: LwtLock,
    /// What is locked next.
    names: u32,
    /// Pairs of operations so far, the same for all sides.
    pairs: u32,
    paxos: Option<Paxos>,
}

/// What was measured.
pub(crate) struct Measured {
    pub(crate) plan: Plan,
    pub(crate) replicas: u32,
    pub(crate) variants: &'static [Paxos],
    pub(crate) trials: Vec<Trial>,
    pub(crate) halves: Vec<Half>,
}

/// A set of parameters that was tried for the lock on lightweight transactions.
pub(crate) struct Trial {
    pub(crate) paxos: Paxos,
    pub(crate) contenders: usize,
    pub(crate) parameters: Parameters,
    pub(crate) slot: Slot,
    pub(crate) chosen: bool,
}

/// All sides with one variant of Paxos, in one round.
pub(crate) struct Half {
    pub(crate) round: u32,
    pub(crate) paxos: Paxos,
    pub(crate) bare: Timings,
    pub(crate) bakery: Timings,
    pub(crate) lwt: Timings,
    pub(crate) contests: Vec<Contest>,
    pub(crate) crowds: Vec<Crowd>,
}

/// The same number of contenders, with one lock and with the other, and as tasks of one client of
/// ours.
pub(crate) struct Contest {
    pub(crate) contenders: usize,
    pub(crate) bakery: Slot,
    pub(crate) lwt: Slot,
    /// `None` for a lone contender: it gives its place back each time, like a lone client.
    pub(crate) turns: Option<Slot>,
    /// Processes that take turns of each other; `None` likewise.
    pub(crate) peers: Option<Slot>,
}

/// The sides that are measured alone.
#[derive(Clone, Copy)]
enum Alone {
    Bare,
    Bakery,
    Lwt,
}

/// The best parameters where so many contend, by variant of Paxos.
type Tuned = HashMap<(Paxos, usize), Parameters>;

impl Bench {
    pub(crate) async fn set_up(
        cluster: Arc<TestCluster>,
        plan: Plan,
        progress: ProgressBar,
    ) -> Result<Self> {
        let session = cluster.session();
        LwtLock::create_table(session).await?;
        let most = CONTENDERS.into_iter().max().expect("there are numbers of contenders");
        let mut bakery = Vec::new();
        for _ in 0..most {
            bakery.push(Arc::new(BakeryLock::build(session).await?));
        }
        Ok(Bench {
            bare: Bare::prepare(session).await?,
            lwt: LwtLock::prepare(session, Parameters::ALONE).await?,
            bakery,
            peers: Processes::start(most, cluster.nodes()).await?,
            cluster,
            plan,
            progress,
            names: 0,
            pairs: 0,
            paxos: None,
        })
    }

    /// Measures everything, and leaves nothing on the cluster.
    pub(crate) async fn run(mut self) -> Result<Measured> {
        let variants = self.cluster.variants();
        self.progress.set_length(self.steps());
        let mut trials = Vec::new();
        for &paxos in variants {
            self.switch(paxos).await?;
            self.warm().await?;
            trials.extend(self.tune(paxos).await?);
        }
        let chosen = trials.iter().filter(|trial| trial.chosen);
        let tuned: Tuned =
            chosen.map(|trial| ((trial.paxos, trial.contenders), trial.parameters)).collect();
        let mut halves = Vec::new();
        for round in 0..self.plan.rounds {
            // Back and forth: the next round begins with the variant that is set.
            let mut order = variants.to_vec();
            if round.is_multiple_of(2) {
                order.reverse();
            }
            for paxos in order {
                self.switch(paxos).await?;
                halves.push(self.half(round, paxos, &tuned).await?);
            }
        }
        for bakery in &self.bakery {
            bakery.shut_down().await?;
        }
        self.peers.end().await?;
        self.cluster.drop_keyspace().await?;
        let (plan, replicas) = (self.plan, self.cluster.replicas());
        Ok(Measured { plan, replicas, variants, trials, halves })
    }

    /// How many steps the progress bar has.
    fn steps(&self) -> u64 {
        let contested = CONTENDERS.iter().filter(|&&contenders| contenders > 1).count();
        let tuning = contested * (CANDIDATES.len() + 1);
        let half = 2 + 2 * CONTENDERS.len() + 2 * contested;
        let variants = self.cluster.variants().len();
        let rounds = usize::try_from(self.plan.rounds).expect("rounds are few");
        (variants * (1 + tuning + rounds * half)) as u64
    }

    async fn switch(&mut self, paxos: Paxos) -> Result<()> {
        if self.paxos != Some(paxos) {
            self.progress.set_message(format!("switching to {}", paxos.label()));
            self.cluster.switch(paxos).await?;
            self.paxos = Some(paxos);
        }
        Ok(())
    }

    /// Runs all sides until the nodes have compiled what they need for them.
    async fn warm(&mut self) -> Result<()> {
        self.progress.set_message("warming");
        let shares = u32::try_from(self.cluster.variants().len()).expect("variants are few");
        let (begun, first) = (Instant::now(), self.pairs);
        while begun.elapsed() < self.plan.warm / shares
            || self.pairs - first < self.plan.warm_pairs / 3 / shares
        {
            self.alone(1, 0).await?;
        }
        self.progress.inc(1);
        Ok(())
    }

    /// Finds the parameters with which the lock on lightweight transactions goes most often from
    /// one contender to another, and warms what contention needs. By grants alone those would win
    /// with which one contender takes the lock over and over while the others wait in vain.
    async fn tune(&mut self, paxos: Paxos) -> Result<Vec<Trial>> {
        let mut trials = Vec::new();
        for contenders in CONTENDERS {
            // A lone contender has nothing to choose: see `Parameters::ALONE`.
            if contenders == 1 {
                continue;
            }
            let mut tried = self.candidates(paxos, contenders).await?;
            let best = tried.iter_mut().max_by_key(|trial| trial.slot.handoffs);
            best.expect("there are candidates").chosen = true;
            trials.extend(tried);
        }
        Ok(trials)
    }

    async fn candidates(&mut self, paxos: Paxos, contenders: usize) -> Result<Vec<Trial>> {
        let length = self.plan.tuning_slot;
        self.progress.set_message(format!("warming, {contenders} contenders"));
        let name = self.next_name();
        contended::slot(&self.bakery[..contenders], &name, length).await?;
        self.progress.inc(1);
        let mut tried = Vec::new();
        for &parameters in CANDIDATES {
            self.progress.set_message(format!("tuning {} for {contenders}", paxos.label()));
            let lwt = self.lwt_contenders(parameters, contenders).await?;
            let slot = contended::slot(&lwt, &self.next_name(), length).await?;
            tried.push(Trial { paxos, contenders, parameters, slot, chosen: false });
            self.progress.inc(1);
        }
        Ok(tried)
    }

    async fn half(&mut self, round: u32, paxos: Paxos, tuned: &Tuned) -> Result<Half> {
        let label = paxos.label();
        self.progress.set_message(format!("round {}, {label}, uncontended", round + 1));
        let [bare, bakery, lwt] = self.alone(self.plan.blocks, round).await?;
        self.progress.inc(1);
        let mut contests = Vec::new();
        for contenders in CONTENDERS {
            self.progress.set_message(format!("round {}, {label}, {contenders}", round + 1));
            let parameters = tuned.get(&(paxos, contenders)).copied().unwrap_or(Parameters::ALONE);
            contests.push(self.contest(contenders, parameters, round).await?);
        }
        let crowds = self.crowds().await?;
        self.progress.inc(1);
        Ok(Half { round, paxos, bare, bakery, lwt, contests, crowds })
    }

    /// Lets the uncontended sides take turns, a block each; the side that begins changes with each
    /// turn.
    async fn alone(&mut self, blocks: u32, round: u32) -> Result<[Timings; 3]> {
        let pairs = self.plan.pairs_per_block;
        let (mut bare, mut bakery, mut lwt) = (Timings::new(), Timings::new(), Timings::new());
        for turn in round..round + blocks {
            let first = self.pairs;
            let mut order = [Alone::Bare, Alone::Bakery, Alone::Lwt];
            order.rotate_left(turn as usize % 3);
            for side in order {
                match side {
                    Alone::Bare => uncontended::block(&self.bare, first, pairs, &mut bare).await,
                    Alone::Bakery => {
                        uncontended::block(&*self.bakery[0], first, pairs, &mut bakery).await
                    }
                    Alone::Lwt => uncontended::block(&self.lwt, first, pairs, &mut lwt).await,
                }
                .context("an uncontended lock failed")?;
            }
            self.pairs += pairs;
        }
        Ok([bare, bakery, lwt])
    }

    async fn contest(
        &mut self,
        contenders: usize,
        parameters: Parameters,
        round: u32,
    ) -> Result<Contest> {
        let lwt = self.lwt_contenders(parameters, contenders).await?;
        let bakery = self.bakery[..contenders].to_vec();
        let tasks = vec![Arc::clone(&self.bakery[0]); contenders];
        let (bakery, lwt) = if round.is_multiple_of(2) {
            let bakery = self.slot(&bakery).await?;
            (bakery, self.slot(&lwt).await?)
        } else {
            let lwt = self.slot(&lwt).await?;
            (self.slot(&bakery).await?, lwt)
        };
        let mut contest = Contest { contenders, bakery, lwt, turns: None, peers: None };
        if contenders > 1 {
            contest.turns = Some(self.slot(&tasks).await?);
            let (name, length) = (self.next_name(), self.plan.slot);
            contest.peers = Some(self.peers.slot(contenders, &name, length).await?);
            self.progress.inc(1);
        }
        Ok(contest)
    }

    async fn crowds(&mut self) -> Result<Vec<Crowd>> {
        let mut crowds = Vec::new();
        for callers in CROWDS {
            let name = self.next_name();
            crowds.push(crowd(&self.bakery[0], &name, callers).await?);
        }
        Ok(crowds)
    }

    async fn slot<S: Side>(&mut self, contenders: &[Arc<S>]) -> Result<Slot> {
        let slot = contended::slot(contenders, &self.next_name(), self.plan.slot).await?;
        self.progress.inc(1);
        Ok(slot)
    }

    async fn lwt_contenders(
        &self,
        parameters: Parameters,
        contenders: usize,
    ) -> Result<Vec<Arc<LwtLock>>> {
        let lwt = LwtLock::prepare(self.cluster.session(), parameters).await?;
        Ok((0..contenders).map(|_| Arc::new(lwt.another())).collect())
    }

    /// A name that was never locked: what one slot leaves behind must not weigh on the next.
    fn next_name(&mut self) -> String {
        self.names += 1;
        format!("contended-{}", self.names)
    }
}
