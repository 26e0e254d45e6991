//! The order of things: warm, tune, then let all sides take turns, then let things fail.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use common::bare::BareRows;
use common::record::Record;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::arguments::Plan;
use crate::measures::distinct;
use crate::measures::failures;
use crate::measures::hot_name;
use crate::measures::in_turn;
use crate::measures::pool::Pool;
use crate::measures::uncontended::Pairs;
use crate::servers::Servers;
use crate::servers::cassandra::{self, Paxos};
use crate::sides::lwt::LwtLock;
use crate::sides::{Build, Kind, Setup, Subject, Tuning, before};

/// The number of contenders, and of callers, by which sides are judged.
pub(crate) const JUDGED_BY: usize = 32;

/// A side is warm once a slot brings less than this of the one before.
const WARMING: f64 = 1.1;

/// All sides, ready to be measured.
pub(crate) struct Bench {
    servers: Servers,
    plan: Plan,
    progress: ProgressBar,
    subjects: Vec<Subject>,
    /// Another build of this bench, with which this one is compared.
    before: Option<PathBuf>,
    pools: BTreeMap<Subject, Pool>,
    /// The best parameters by kind, variant of Paxos and number of contenders.
    tuned: Vec<(Kind, Option<Paxos>, usize, Tuning)>,
    paxos: Option<Paxos>,
    half: u32,
    /// Pairs of operations so far, the same for all sides.
    pairs: u32,
    /// Names of slots so far: what one leaves behind must not weigh on the next.
    names: u32,
    measured: Measured,
}

/// What was measured.
#[derive(Default, Serialize)]
pub(crate) struct Measured {
    pub(crate) records: Vec<Record>,
    pub(crate) trials: Vec<Trial>,
}

/// A set of parameters that was tried.
#[derive(Debug, Serialize)]
pub(crate) struct Trial {
    pub(crate) parameters: String,
    pub(crate) chosen: bool,
    pub(crate) record: Record,
}

impl Bench {
    pub(crate) async fn set_up(
        servers: Servers,
        kinds: &[Kind],
        before: Option<PathBuf>,
        plan: Plan,
        progress: ProgressBar,
    ) -> Result<Self> {
        if let Some(cluster) = servers.cassandra() {
            LwtLock::create_table(cluster.session()).await?;
            BareRows::create_table(cluster.session()).await?;
        }
        if kinds.iter().any(|kind| kind.is_on_masters()) {
            servers.make_lock_table(None).await?;
        }
        let mut bench = Bench {
            servers,
            plan,
            progress,
            subjects: Subject::all(kinds, before.is_some()),
            before,
            pools: BTreeMap::new(),
            tuned: Vec::new(),
            paxos: None,
            half: 0,
            pairs: 0,
            names: 0,
            measured: Measured::default(),
        };
        for subject in bench.subjects.clone() {
            bench.pools.insert(subject, Pool::new(bench.setup(subject)));
        }
        Ok(bench)
    }

    /// Measures everything, and stops the servers.
    pub(crate) async fn run(mut self, with_failures: bool) -> Result<Measured> {
        let variants = self.variants();
        self.progress.set_length(self.steps(variants.len(), with_failures));
        for &paxos in &variants {
            self.switch(paxos).await?;
            self.warm(variants.len()).await?;
            self.tune().await?;
        }
        self.warm_contention().await?;
        for round in 0..self.plan.rounds {
            // Back and forth: the next round begins with the variant that is set.
            let mut order = variants.clone();
            if round.is_multiple_of(2) {
                order.reverse();
            }
            for paxos in order {
                self.switch(paxos).await?;
                self.half().await?;
                self.half += 1;
            }
        }
        for pool in std::mem::take(&mut self.pools).into_values() {
            pool.end().await?;
        }
        if with_failures {
            self.failures().await?;
        }
        self.servers.stop().await?;
        Ok(self.measured)
    }

    fn setup(&self, subject: Subject) -> Setup {
        let Subject { kind, build } = subject;
        Setup {
            kind,
            program: self.before.clone().filter(|_| build == Build::Before),
            servers: self.servers.addresses(kind),
            lock_table: None,
            ttl: self.plan.ttl,
            patience: self.plan.patience,
            keep_idle: Duration::ZERO,
            tuning: Tuning::alone(kind),
        }
    }

    /// The variants of Paxos to measure; one of them if no side depends on it.
    fn variants(&self) -> Vec<Paxos> {
        match self.servers.cassandra() {
            Some(cluster) if self.subjects.contains(&Subject::now(Kind::Lwt)) => {
                cassandra::variants(cluster).to_vec()
            }
            _ => vec![Paxos::AsGiven],
        }
    }

    /// How many steps the progress bar has.
    fn steps(&self, variants: usize, with_failures: bool) -> u64 {
        let (subjects, plan) = (&self.subjects, &self.plan);
        let tried = |subject: &Subject| {
            let kind = subject.kind;
            let times = if kind == Kind::Lwt { variants } else { 1 };
            times * Tuning::candidates(kind).len() * plan.tuning_contenders.len()
        };
        let tuning: usize = subjects.iter().map(tried).sum();
        let locks = subjects.iter().filter(|subject| subject.kind.is_lock()).count();
        let half = 1 + plan.in_turn.len() + plan.callers.len() + locks * plan.contenders.len();
        let halves = variants * usize::try_from(plan.rounds).expect("rounds are few");
        let failures =
            if with_failures { (1 + plan.failures.len()) * self.failing().len() } else { 0 };
        (variants + tuning + halves * half + failures) as u64
    }

    /// How a side is called now.
    fn label(&self, subject: Subject) -> String {
        let label = match (subject.kind, self.paxos) {
            (Kind::Lwt, Some(paxos)) => paxos.label(),
            (kind, _) => kind.label(),
        };
        match subject.build {
            Build::This => label.to_owned(),
            Build::Before => before(label),
        }
    }

    fn say(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        // Logs have no bar.
        if self.progress.is_hidden() {
            eprintln!("{:4} s: {what}", self.progress.elapsed().as_secs());
        }
    }

    fn keep(&mut self, subject: Subject, record: Record) {
        let record = Record { half: self.half, side: self.label(subject), ..record };
        self.measured.records.push(record);
    }

    async fn switch(&mut self, paxos: Paxos) -> Result<()> {
        if self.paxos != Some(paxos) {
            self.say(&format!("switching to {}", paxos.label()));
            if let Some(cluster) = self.servers.cassandra() {
                cassandra::switch(cluster, paxos).await?;
            }
            self.paxos = Some(paxos);
        }
        Ok(())
    }

    /// Runs all sides until the servers have compiled what they need for them.
    async fn warm(&mut self, shares: usize) -> Result<()> {
        self.say("warming");
        let shares = u32::try_from(shares).expect("variants are few");
        let (begun, first) = (Instant::now(), self.pairs);
        while begun.elapsed() < self.plan.warm / shares
            || self.pairs - first < self.plan.warm_pairs / shares
        {
            self.alone(1).await?;
        }
        self.progress.inc(1);
        Ok(())
    }

    /// Lets contenders want one name, on each side in turn, until they get it no more often than
    /// before: servers become faster at their long reads for minutes.
    async fn warm_contention(&mut self) -> Result<()> {
        let all = &self.plan.contenders;
        let judged = all.iter().find(|&&contenders| contenders == JUDGED_BY);
        let Some(&contenders) = judged.or(all.iter().max()) else { return Ok(()) };
        for subject in self.subjects.clone() {
            if !subject.kind.is_lock() {
                continue;
            }
            let mut before = 0.0;
            loop {
                self.say(&format!("warming: {contenders} contenders, {}", self.label(subject)));
                let record = self.contend(subject, contenders, self.plan.warm_slot).await?;
                let handoffs = record.figure("handoffs_per_second").unwrap_or(0.0);
                // None at all, as of crowds that all give up, won't become more.
                if handoffs <= before * WARMING {
                    break;
                }
                before = handoffs;
            }
        }
        Ok(())
    }

    /// Finds the parameters with which a lock that polls goes most often from one contender to
    /// another, and warms what contention needs. By grants alone those would win with which one
    /// contender takes the lock over and over while the others wait in vain.
    async fn tune(&mut self) -> Result<()> {
        for subject in self.subjects.clone() {
            let kind = subject.kind;
            let paxos = self.paxos.filter(|_| kind == Kind::Lwt);
            let done = self.tuned.iter().any(|(tuned, with, ..)| (*tuned, *with) == (kind, paxos));
            if done || Tuning::candidates(kind).is_empty() {
                continue;
            }
            for &contenders in self.plan.tuning_contenders {
                let best = self.best(subject, contenders).await?;
                self.tuned.push((kind, paxos, contenders, best));
            }
        }
        Ok(())
    }

    async fn best(&mut self, subject: Subject, contenders: usize) -> Result<Tuning> {
        let (label, length) = (self.label(subject), self.plan.tuning_slot);
        let kind = subject.kind;
        let mut best = (Tuning::alone(kind), -1.0, 0);
        for tuning in Tuning::candidates(kind) {
            self.say(&format!("tuning {label} for {contenders}"));
            let name = self.next_name();
            let pool = self.pools.get_mut(&subject).context("each side has a pool")?;
            pool.ready(contenders, tuning).await?;
            let record =
                hot_name::measure(pool, &self.servers, kind, contenders, &name, length).await?;
            let record = Record { side: label.clone(), ..record };
            let handoffs = record.figure("handoffs_per_second").unwrap_or(0.0);
            if handoffs > best.1 {
                best = (tuning, handoffs, self.measured.trials.len());
            }
            let parameters = tuning.to_string();
            self.measured.trials.push(Trial { parameters, chosen: false, record });
            self.progress.inc(1);
        }
        self.measured.trials[best.2].chosen = true;
        Ok(best.0)
    }

    /// The best parameters that were found, for the next number of contenders that was tried.
    fn tuning(&self, kind: Kind, contenders: usize) -> Tuning {
        let paxos = self.paxos.filter(|_| kind == Kind::Lwt);
        let found = self.tuned.iter().filter(|(tuned, with, ..)| (*tuned, *with) == (kind, paxos));
        let nearest = found.min_by_key(|(_, _, tried, _)| tried.abs_diff(contenders));
        nearest.map_or(Tuning::alone(kind), |(.., tuning)| *tuning)
    }

    /// All sides in the order of this half round: the one that begins changes.
    fn order(&self) -> Vec<Subject> {
        let mut subjects = self.subjects.clone();
        let first = self.half as usize * 3 % subjects.len();
        subjects.rotate_left(first);
        subjects
    }

    async fn half(&mut self) -> Result<()> {
        let half = format!("half round {}", self.half + 1);
        self.say(&format!("{half}: uncontended"));
        for (subject, pairs) in self.alone(self.plan.blocks).await? {
            let record = pairs.record(self.half, &self.label(subject));
            self.measured.records.push(record);
        }
        self.progress.inc(1);
        self.in_turn(&half).await?;
        for &callers in self.plan.callers {
            self.say(&format!("{half}: {callers} distinct names"));
            for subject in self.order() {
                // The turns of our lock make no difference here.
                if subject.kind != Kind::Bakery && !subject.kind.has_peers() {
                    self.distinct(subject, callers).await?;
                }
            }
            self.progress.inc(1);
        }
        for &contenders in &*self.plan.contenders.clone() {
            for subject in self.order() {
                if subject.kind.is_lock() {
                    self.say(&format!("{half}: {contenders} contenders, {}", self.label(subject)));
                    self.hot_name(subject, contenders).await?;
                    self.progress.inc(1);
                }
            }
        }
        self.crowds().await
    }

    /// Lets the uncontended sides take turns, a block each; the side that begins changes with each
    /// turn.
    async fn alone(&mut self, blocks: u32) -> Result<BTreeMap<Subject, Pairs>> {
        let mut all: BTreeMap<Subject, Pairs> = BTreeMap::new();
        let mut order = self.order();
        for subject in &order {
            let tuning = Tuning::alone(subject.kind);
            self.pools.get_mut(subject).context("each side has a pool")?.ready(1, tuning).await?;
        }
        for _ in 0..blocks {
            for &subject in &order {
                let pool = self.pools.get_mut(&subject).context("each side has a pool")?;
                let pairs = all.entry(subject).or_default();
                pairs.add_block(pool, self.pairs, self.plan.pairs_per_block).await?;
            }
            self.pairs += self.plan.pairs_per_block;
            order.rotate_left(1);
        }
        Ok(all)
    }

    /// Names that one client uses over and over, without and with kept places.
    async fn in_turn(&mut self, half: &str) -> Result<()> {
        let length = self.plan.distinct_slot;
        for &names in self.plan.in_turn {
            self.say(&format!("{half}: {names} names in turn"));
            for subject in self.order() {
                let is_known = matches!(subject.kind, Kind::Bare | Kind::Bakery);
                if is_known || subject.kind.has_peers() || subject.build == Build::Before {
                    continue;
                }
                let prefix = self.next_name();
                let pool = self.pools.get_mut(&subject).context("each side has a pool")?;
                pool.ready(1, Tuning::alone(subject.kind)).await?;
                let record = in_turn::measure(pool, names, &prefix, length, false).await?;
                self.keep(subject, record);
                if subject.kind == Kind::LocalTurns {
                    let prefix = self.next_name();
                    let setup = Setup { keep_idle: in_turn::KEEP_IDLE, ..self.setup(subject) };
                    let mut pool = Pool::new(setup);
                    pool.ready(1, Tuning::alone(subject.kind)).await?;
                    let record = in_turn::measure(&mut pool, names, &prefix, length, true).await?;
                    let side = in_turn::KEPT.to_owned();
                    self.measured.records.push(Record { half: self.half, side, ..record });
                    pool.end().await?;
                }
            }
            self.progress.inc(1);
        }
        Ok(())
    }

    async fn distinct(&mut self, subject: Subject, callers: usize) -> Result<()> {
        let (name, length) = (self.next_name(), self.plan.distinct_slot);
        let kind = subject.kind;
        let pool = self.pools.get_mut(&subject).context("each side has a pool")?;
        pool.ready(1, Tuning::alone(kind)).await?;
        let record = distinct::measure(pool, &self.servers, kind, callers, &name, length).await?;
        self.keep(subject, record);
        Ok(())
    }

    async fn hot_name(&mut self, subject: Subject, contenders: usize) -> Result<()> {
        let length = match contenders {
            JUDGED_BY => self.plan.long_slot,
            _ if contenders > JUDGED_BY => self.plan.crowd_slot,
            _ => self.plan.slot,
        };
        let record = self.contend(subject, contenders, length).await?;
        self.keep(subject, record);
        Ok(())
    }

    async fn contend(
        &mut self,
        subject: Subject,
        contenders: usize,
        length: Duration,
    ) -> Result<Record> {
        let kind = subject.kind;
        let (name, tuning) = (self.next_name(), self.tuning(kind, contenders));
        let workers = if kind == Kind::LocalTurns { 1 } else { contenders };
        let pool = self.pools.get_mut(&subject).context("each side has a pool")?;
        pool.ready(workers, tuning).await?;
        let record =
            hot_name::measure(pool, &self.servers, kind, contenders, &name, length).await?;
        pool.shrink().await?;
        Ok(record)
    }

    async fn crowds(&mut self) -> Result<()> {
        for &callers in self.plan.crowds {
            let name = self.next_name();
            let subject = Subject::now(Kind::LocalTurns);
            if let Some(pool) = self.pools.get_mut(&subject) {
                let record = hot_name::crowd(pool, callers, &name).await?;
                self.keep(subject, record);
            }
        }
        Ok(())
    }

    /// Each side once, with clients of its own: what a failure leaves behind must not weigh on
    /// others.
    async fn failures(&mut self) -> Result<()> {
        for subject in self.failing() {
            let setup = Setup {
                lock_table: self.lock_table_of_failures(subject.kind).await?,
                ttl: self.plan.failure_ttl,
                patience: self.plan.failure_patience,
                tuning: self.tuning(subject.kind, failures::CONTENDERS),
                ..self.setup(subject)
            };
            let label = self.label(subject);
            self.say(&format!("a holder of {label} is killed"));
            let name = self.next_name();
            let record = failures::holder(&setup, &name).await;
            self.keep(subject, record.with_context(|| format!("{label}, holder killed"))?);
            self.progress.inc(1);
            for &failure in self.plan.failures {
                self.say(&format!("a server of {label}: {failure:?}"));
                let (name, length) = (self.next_name(), self.plan.failure);
                let record =
                    failures::server(&setup, &mut self.servers, failure, &name, length).await;
                self.keep(subject, record.with_context(|| format!("{label}, server {failure:?}"))?);
                self.progress.inc(1);
            }
        }
        Ok(())
    }

    /// A lock table of its own for our lock on Redis: a server that an earlier failure has emptied
    /// takes no part in the earlier ones for minutes.
    async fn lock_table_of_failures(&mut self, kind: Kind) -> Result<Option<String>> {
        if !kind.is_on_masters() {
            return Ok(None);
        }
        let name = self.next_name().replace('-', "_");
        self.servers.make_lock_table(Some(&name)).await?;
        Ok(Some(name))
    }

    /// Tasks of one client die together.
    fn failing(&self) -> Vec<Subject> {
        let fails = |subject: &Subject| {
            let kind = subject.kind;
            kind.is_lock() && kind != Kind::LocalTurns && self.servers.can_fail(kind.system())
        };
        self.subjects.iter().copied().filter(fails).collect()
    }

    fn next_name(&mut self) -> String {
        self.names += 1;
        format!("contended-{}", self.names)
    }
}
