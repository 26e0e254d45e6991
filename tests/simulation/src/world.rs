//! Runs a plan: lets processes run, messages arrive and deeds be done, all in the order of time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bakery_lock::testing::{Conditions, Cut, SimulatedCluster, Weather, WriteKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::log::{HoldEnd, Log};
use super::machine::{Machine, Start};
use super::operator::{REVOKED, ask_to_leave, remove_by_force, remove_the_dead, shut_down};
use super::plan::{Deed, LATE_TO_RUN, MAX_CLOCK_SKEW, Plan, REPLICAS, TIME_IN_FLIGHT};
use super::worker::{SERVED_WITHIN, Worker};

/// Within this time after the last release, rows of clients that live are gone.
const ROWS_GONE_WITHIN: Duration = Duration::from_secs(3);

/// How long a request to leave lives: as long as any row may.
const REQUEST_TO_LEAVE_LIVES: Duration = Duration::from_secs(120);

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) objects: Vec<String>,
    pub(crate) log: Log,
    /// What went wrong on purpose, by kind.
    pub(crate) harm: BTreeMap<&'static str, u64>,
}

/// Runs a plan to its end.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan);
    world.go_on(plan.healed);
    world.heal();
    let workers = world.workers;
    let limit = plan.settled() + SERVED_WITHIN * 2;
    while world.log().workers_done < workers && world.now < limit {
        world.go_on(world.now + Duration::from_millis(500));
    }
    world.is_calm = true;
    world.look_for_rows_of_the_living();
    world.look_for_rows();
    world.outcome()
}

struct World<'a> {
    plan: &'a Plan,
    cluster: SimulatedCluster,
    machines: Vec<Option<Machine>>,
    deeds: VecDeque<(Duration, Deed)>,
    log: Arc<Mutex<Log>>,
    healed: Arc<AtomicBool>,
    rng: StdRng,
    now: Duration,
    workers: usize,
    /// All have what they wanted. Messages may come late now, so that a run ends sooner.
    is_calm: bool,
    harm: BTreeMap<&'static str, u64>,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut rng = StdRng::seed_from_u64(plan.chance ^ 0x5EED);
        let hosts: Vec<_> = (0..plan.machines.len()).map(host).collect();
        let cluster = SimulatedCluster::new(rng.random(), plan.replicas, plan.conditions, &hosts);
        cluster.set_weather(plan.weather);
        cluster.warn_of_dead_rows(plan.many_dead);
        cluster.exchange(plan.exchanges);
        let mut deeds = plan.deeds.clone();
        deeds.sort_by_key(|(at, _)| *at);
        let mut world = World {
            plan,
            cluster,
            machines: plan.machines.iter().map(|_| None).collect(),
            deeds: deeds.into(),
            log: Arc::default(),
            healed: Arc::default(),
            rng,
            now: Duration::ZERO,
            workers: 0,
            is_calm: false,
            harm: BTreeMap::new(),
        };
        world.log().has_wrong_clocks = plan.has_wrong_clocks();
        for machine in 0..world.machines.len() {
            world.start(machine);
        }
        world
    }

    /// Lets everything happen up to this time.
    fn go_on(&mut self, until: Duration) {
        loop {
            let deed = self.deeds.front().map(|(at, _)| *at);
            let event = self.cluster.next_event();
            let next = [deed, event].into_iter().flatten().fold(until, Duration::min);
            if self.let_the_last_one_run(next, deed.unwrap_or(until).min(until)) {
                continue;
            }
            self.now = next;
            if deed == Some(next) {
                let (_, deed) = self.deeds.pop_front().expect("it was there a moment ago");
                self.perform(deed);
            } else if event == Some(next) {
                self.cluster.process_next();
            } else {
                return;
            }
        }
    }

    /// Lets the process run that is most behind, if one is behind `next`; at most up to `limit`,
    /// because deeds concern all processes.
    fn let_the_last_one_run(&mut self, next: Duration, limit: Duration) -> bool {
        let running = self.machines.iter().enumerate();
        let running = running.filter_map(|(number, it)| Some((it.as_ref()?.ran()?, number)));
        let Some((_, number)) = running.min().filter(|(ran, _)| *ran < next) else {
            return false;
        };
        let message = self.earliest_message_to(number).unwrap_or(limit);
        let Some(machine) = &mut self.machines[number] else {
            return false;
        };
        let horizon = self.cluster.horizon(machine.client()).unwrap_or(limit);
        machine.run(horizon.min(message).min(limit));
        true
    }

    /// Up to when a process may run before others send it messages.
    fn earliest_message_to(&self, number: usize) -> Option<Duration> {
        self.machines[number].as_ref()?.may_send_from().filter(|_| !self.is_calm)?;
        let others = self.machines.iter().enumerate().filter(|(other, _)| *other != number);
        let others = others.filter_map(|(_, machine)| machine.as_ref()?.may_send_from());
        others.min().map(|ran| ran + LATE_TO_RUN)
    }

    fn perform(&mut self, deed: Deed) {
        let now = self.now;
        match deed {
            Deed::Cut { machine, replica, cut } => self.cut(machine, replica, cut),
            Deed::CutOff { machine, other, cut_off } => self.cut_off(machine, other, cut_off),
            Deed::Slow { replica, by } => self.slow(replica, by),
            Deed::Crash { replica, forgets } => {
                self.cluster.crash(replica, now.saturating_sub(forgets));
                self.count(true, "replicas crashed");
            }
            Deed::Start { replica } => self.cluster.start(replica),
            Deed::Pause { machine } => {
                if let Some(machine) = &mut self.machines[machine] {
                    machine.pause();
                    self.count(true, "clients stopped");
                }
            }
            Deed::Resume { machine } => {
                if let Some(machine) = &mut self.machines[machine] {
                    machine.resume(now);
                }
            }
            Deed::Kill { machine } => {
                let is_killed = self.kill(machine);
                self.count(is_killed, "clients killed");
            }
            Deed::Restart { machine } => self.start(machine),
            Deed::Step { machine, wall_error } => {
                if let Some(machine) = &self.machines[machine] {
                    self.cluster.set_wall_error(machine.client(), wall_error);
                    self.count(true, "wall clocks set");
                }
            }
            Deed::Mark { object, off_by } => self.mark(object, off_by),
            Deed::Fence { object, off_by } => self.fence(object, off_by),
            Deed::Release { object, place, handoff, off_by } => {
                self.release(object, place, handoff, off_by);
            }
            Deed::SilenceRegistry { machine } => self.silence_registry(machine),
            Deed::AskToLeave { machine, object, place } => {
                let object = self.plan.objects[object].clone();
                if let Some(machine) = &self.machines[machine] {
                    machine.spawn(|client, site| ask_to_leave(client, site, object, place));
                }
            }
            Deed::RemoveTheDead { machine, object } => {
                let object = self.plan.objects[object].clone();
                if let Some(machine) = &self.machines[machine] {
                    machine.spawn(|client, site| remove_the_dead(client, site, object));
                }
            }
            Deed::LoseRows { object, place } => self.lose_rows(object, place, None),
            Deed::LoseRowsAtRenewal { object, place, held_up } => {
                self.lose_rows(object, place, Some(held_up));
            }
            Deed::Truncate { object } => self.truncate(object),
            Deed::RemoveByForce { machine, object, place } => {
                let object = self.plan.objects[object].clone();
                if let Some(machine) = &self.machines[machine] {
                    machine.spawn(|client, site| remove_by_force(client, site, object, place));
                }
            }
            Deed::ShutDown { machine } => {
                let objects = self.plan.objects.clone();
                if let Some(machine) = &mut self.machines[machine] {
                    machine.is_shut_down = true;
                    machine.spawn(|client, site| shut_down(client, site, objects));
                }
            }
        }
    }

    fn cut(&mut self, machine: usize, replica: usize, cut: Cut) {
        if let Some(machine) = &self.machines[machine] {
            self.cluster.set_cut(machine.client(), replica, cut);
            self.count(cut != Cut::default(), "links cut");
        }
    }

    fn mark(&mut self, object: usize, off_by: i64) {
        self.cluster.raise_mark(self.now, &self.plan.objects[object], off_by);
        self.count(true, "marks of wrong clocks");
    }

    fn fence(&mut self, object: usize, off_by: i64) {
        self.cluster.raise_fence(self.now, &self.plan.objects[object], off_by);
        self.count(true, "fences of wrong clocks");
    }

    fn release(&mut self, object: usize, place: usize, handoff: Duration, off_by: i64) {
        let object = &self.plan.objects[object];
        if let Some(client) = self.contender(object, place) {
            self.cluster.write_release(self.now, object, client, handoff, off_by);
            self.count(true, "releases that never were");
        }
    }

    fn silence_registry(&mut self, number: usize) {
        if let Some(machine) = &self.machines[number] {
            self.cluster.silence_registry(machine.client());
            self.count(true, "registries silent");
        }
    }

    fn slow(&mut self, replica: usize, by: u64) {
        self.cluster.set_slow(replica, by);
        self.count(by > 0, "replicas slow");
    }

    fn cut_off(&mut self, number: usize, other: Option<usize>, cut_off: bool) {
        let client = |number: usize| self.machines[number].as_ref().map(Machine::client);
        let (Some(machine), other_client) = (client(number), other.and_then(client)) else {
            return;
        };
        if other.is_none() || other_client.is_some() {
            self.cluster.set_cut_off(machine, other_client, cut_off);
            self.count(cut_off, "clients cut off from each other");
        }
    }

    /// Loses rows of the contender at a place, at its next renewal if that is to be held up.
    fn lose_rows(&mut self, object: usize, place: usize, renewal_held_up: Option<Duration>) {
        let object = &self.plan.objects[object];
        let Some(client) = self.contender(object, place) else {
            return;
        };
        match renewal_held_up {
            None => self.cluster.lose_rows(self.now, object, client),
            Some(held_up) => self.cluster.lose_rows_at_renewal(object, client, held_up),
        }
    }

    fn truncate(&mut self, object: usize) {
        let object = &self.plan.objects[object];
        self.cluster.truncate(self.now, object);
        self.log().truncated.insert(object.clone());
    }

    /// The client with rows of an object that has this place, holders first.
    fn contender(&self, object: &str, place: usize) -> Option<usize> {
        let holders = self.log().holders(object);
        let with_rows = self.cluster.rows(object, self.now).into_iter().map(|(client, _)| client);
        let mut all: Vec<_> = with_rows.collect();
        all.dedup();
        all.sort_by_key(|client| !holders.contains(client));
        all.get(place % all.len().max(1)).copied()
    }

    /// Ends the process of a machine, if there is one.
    fn kill(&mut self, number: usize) -> bool {
        let Some(killed) = self.machines[number].take() else {
            return false;
        };
        killed.kill(self.now);
        self.workers -= self.plan.machines[number].workers;
        true
    }

    /// Starts a machine, unless it runs. A machine that was shut down has had its time to come to
    /// an end.
    fn start(&mut self, number: usize) {
        if self.machines[number].as_ref().is_some_and(|machine| machine.is_shut_down) {
            self.kill(number);
        }
        if self.machines[number].is_some() {
            return;
        }
        let plan = &self.plan.machines[number];
        let start = Start { now: self.now, seed: self.rng.random(), log: Arc::clone(&self.log) };
        let machine = Machine::start(&self.cluster, plan, &host(number), start, |client, site| {
            for _ in 0..plan.workers {
                let worker = Worker {
                    client: client.clone(),
                    site: site.clone(),
                    objects: self.plan.objects.clone(),
                    mixes: self.plan.mixes.clone(),
                    plan: plan.clone(),
                    healed: Arc::clone(&self.healed),
                    settled: self.plan.settled(),
                    rng: Worker::rng(self.rng.random()),
                };
                tokio::spawn(worker.run());
            }
        });
        self.workers += plan.workers;
        self.machines[number] = Some(machine);
    }

    /// Ends all that is wrong.
    fn heal(&mut self) {
        self.cluster.set_conditions(Conditions::CALM);
        self.cluster.set_weather(Weather::CALM);
        self.cluster.spare_renewals();
        for replica in 0..REPLICAS {
            self.cluster.start(replica);
            self.cluster.set_slow(replica, 0);
        }
        for number in 0..self.machines.len() {
            self.start(number);
            if let Some(machine) = &mut self.machines[number] {
                machine.resume(self.now);
                for replica in 0..REPLICAS {
                    self.cluster.set_cut(machine.client(), replica, Cut::default());
                }
            }
        }
        for number in 0..self.machines.len() {
            self.cut_off(number, None, false);
            for other in 0..number {
                self.cut_off(number, Some(other), false);
            }
        }
        self.healed.store(true, Ordering::Relaxed);
    }

    /// A living client has deleted its rows.
    fn look_for_rows_of_the_living(&mut self) {
        self.go_on(self.now + ROWS_GONE_WITHIN);
        let deaths = self.log().deaths.clone();
        let whole = self.log().not_truncated(&self.plan.objects);
        self.note_rows(&whole, |client, name| !deaths.contains_key(&client) && name != REVOKED);
    }

    /// The rows of dead clients expire, however late they were written, and so do requests to leave
    /// that no client has seen.
    fn look_for_rows(&mut self) {
        let ttl = self.plan.longest_ttl().max(REQUEST_TO_LEAVE_LIVES);
        self.go_on(self.now.max(self.plan.healed + TIME_IN_FLIGHT) + ttl + MAX_CLOCK_SKEW);
        self.note_rows(&self.plan.objects, |_, _| true);
    }

    fn note_rows(&self, objects: &[String], counts: impl Fn(usize, &str) -> bool) {
        self.log().note_rows(&self.cluster, objects, self.now, counts);
    }

    fn outcome(mut self) -> Outcome {
        let missing = self.workers.saturating_sub(self.log().workers_done);
        if missing > 0 {
            self.log().unserved.push(format!("{missing} workers wait for ever"));
        }
        for machine in self.machines.iter_mut().filter_map(Option::take) {
            machine.kill(self.now);
        }
        for (harm, times) in self.cluster.harm() {
            *self.harm.entry(harm).or_default() += times;
        }
        let mut log = std::mem::take(&mut *self.log());
        log.writes = self.cluster.writes();
        log.losses = self.cluster.losses();
        log.lines = self.cluster.lines();
        for write in &log.writes {
            let is_done = write.acknowledged.is_some();
            if let Some(removed) = write.removes_by_force() {
                let was_dead = log.deaths.get(&removed).is_some_and(|died| *died <= write.sent);
                self.count(was_dead && is_done, "dead clients removed");
                self.count(!was_dead && is_done, "living clients removed");
            }
            let is_asked = matches!(write.kind, WriteKind::Revoke { .. });
            self.count(is_asked && is_done, "clients asked to leave");
        }
        for _ in &log.shutdowns {
            self.count(true, "clients shut down");
        }
        for hold in 0..log.holds.len() {
            log.end(hold, self.now, HoldEnd::Died);
        }
        let (seed, objects) = (self.plan.seed, self.plan.objects.clone());
        Outcome { seed, objects, log, harm: self.harm }
    }

    fn count(&mut self, happened: bool, harm: &'static str) {
        if happened {
            *self.harm.entry(harm).or_default() += 1;
        }
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().expect("the mutex is not poisoned")
    }
}

fn host(machine: usize) -> String {
    format!("host-{machine}")
}
