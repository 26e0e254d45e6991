//! Smaller plans: what can be left out of one.

use std::time::Duration;

use super::batch::{Invariant, run_seeds};
use super::failure::Failure;
use super::plan::{Deed, Disks, MachinePlan, Mix, NO_SWEEPS, Plan};
use super::world::run;

/// Plans with something less than this one, those that leave out most first. Of each there is one
/// with the same chance and some with others: whatever is left out, the messages after it meet
/// another fate, and what goes wrong seldom may not do so again.
pub(crate) fn smaller(plan: &Plan) -> impl Iterator<Item = Plan> + use<> {
    const CHANCES: u64 = 4;
    let fewer_deeds = without_deeds(plan);
    let less = without_machines(plan).into_iter().chain(with_less_work(plan));
    let less = less.chain(with_less_trouble(plan)).chain(healed_sooner(plan));
    let all: Vec<_> = fewer_deeds.into_iter().chain(less).collect();
    let chance = plan.chance;
    all.into_iter().flat_map(move |plan| {
        (0..CHANCES).map(move |other| Plan { chance: chance.wrapping_add(other), ..plan.clone() })
    })
}

/// All deeds, each half, each quarter, and so on to each one.
fn without_deeds(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut size = plan.deeds.len();
    while size > 0 {
        for from in (0..plan.deeds.len()).step_by(size) {
            let mut less = plan.clone();
            less.deeds.drain(from..plan.deeds.len().min(from + size));
            plans.push(less);
        }
        size /= 2;
    }
    plans
}

/// Each machine, with what is done to it.
fn without_machines(plan: &Plan) -> Vec<Plan> {
    if plan.machines.len() == 1 {
        return Vec::new();
    }
    let without = |gone: usize| {
        let mut less = plan.clone();
        less.machines.remove(gone);
        less.deeds.retain_mut(|(_, deed)| {
            deed.machines_mut().into_iter().flatten().all(|machine| {
                let stays = *machine != gone;
                *machine -= usize::from(*machine > gone);
                stays
            })
        });
        less
    };
    (0..plan.machines.len()).map(without).collect()
}

/// Objects, ways to hold them, tasks and visits.
fn with_less_work(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    if plan.objects.len() > 1 {
        let mut less = plan.clone();
        less.objects.truncate(1);
        less.mixes.truncate(1);
        less.deeds.retain(|(_, deed)| deed.object().is_none_or(|object| object == 0));
        plans.push(less);
    }
    for object in 0..plan.objects.len() {
        let mix = plan.mixes[object];
        for mix in [
            Mix { shared: false, ..mix },
            Mix { max_holders: None, ..mix },
            Mix { min_hold: false, ..mix },
            Mix { other_limit: false, ..mix },
        ] {
            let mut less = plan.clone();
            less.mixes[object] = mix;
            plans.push(less);
        }
    }
    for machine in 0..plan.machines.len() {
        let MachinePlan { workers, visits, .. } = plan.machines[machine];
        for (workers, visits) in [(1, 1), (1, visits), (workers, visits / 2), (workers, visits - 1)]
        {
            let mut less = plan.clone();
            less.machines[machine].workers = workers;
            less.machines[machine].visits = visits.max(1);
            plans.push(less);
        }
    }
    plans.retain(|less| less != plan);
    plans
}

/// Each kind of trouble with messages, and wrong clocks.
fn with_less_trouble(plan: &Plan) -> Vec<Plan> {
    let mut plans: Vec<_> = (0..12).map(|_| plan.clone()).collect();
    plans[0].conditions.late = 0.0;
    plans[1].conditions.lost = 0.0;
    plans[2].conditions.queued = 0.0;
    plans[3].conditions.refused = 0.0;
    plans[4].conditions.unknown = 0.0;
    plans[5].replicas.ahead = [Duration::ZERO; 3];
    for machine in &mut plans[6].machines {
        machine.wall_error = 0;
    }
    plans[7].weather.late = 0.0;
    plans[8].weather.lost = 0.0;
    plans[9].weather.repeated = 0.0;
    plans[10].many_dead = NO_SWEEPS;
    plans[11].exchanges = false;
    for machine in 0..plan.machines.len() {
        let mut less = plan.clone();
        less.machines[machine].lingers = false;
        plans.push(less);
        let mut less = plan.clone();
        less.machines[machine].peers = false;
        plans.push(less);
    }
    plans.retain(|less| less != plan);
    plans
}

/// An earlier end of all trouble.
fn healed_sooner(plan: &Plan) -> Option<Plan> {
    let healed = plan.healed / 2;
    let mut less = Plan { healed, ..plan.clone() };
    less.deeds.retain(|(at, _)| *at < healed);
    (healed > Duration::from_secs(1)).then_some(less)
}

impl Deed {
    /// To which machines it is done.
    fn machines_mut(&mut self) -> [Option<&mut usize>; 2] {
        match self {
            Deed::CutOff { machine, other, .. } => [Some(machine), other.as_mut()],
            Deed::Cut { machine, .. }
            | Deed::Pause { machine }
            | Deed::Resume { machine }
            | Deed::Kill { machine }
            | Deed::Restart { machine }
            | Deed::Step { machine, .. }
            | Deed::SilenceRegistry { machine }
            | Deed::AskToLeave { machine, .. }
            | Deed::RemoveTheDead { machine, .. }
            | Deed::ShutDown { machine }
            | Deed::RemoveByForce { machine, .. } => [Some(machine), None],
            Deed::Slow { .. }
            | Deed::Crash { .. }
            | Deed::Start { .. }
            | Deed::LoseRows { .. }
            | Deed::LoseRowsAtRenewal { .. }
            | Deed::Mark { .. }
            | Deed::Fence { .. }
            | Deed::Release { .. }
            | Deed::Truncate { .. } => [None, None],
        }
    }

    /// To which object.
    fn object(self) -> Option<usize> {
        match self {
            Deed::AskToLeave { object, .. }
            | Deed::RemoveTheDead { object, .. }
            | Deed::Mark { object, .. }
            | Deed::Fence { object, .. }
            | Deed::Release { object, .. }
            | Deed::LoseRows { object, .. }
            | Deed::LoseRowsAtRenewal { object, .. }
            | Deed::Truncate { object }
            | Deed::RemoveByForce { object, .. } => Some(object),
            Deed::Cut { .. }
            | Deed::CutOff { .. }
            | Deed::Slow { .. }
            | Deed::Crash { .. }
            | Deed::Start { .. }
            | Deed::Pause { .. }
            | Deed::Resume { .. }
            | Deed::Kill { .. }
            | Deed::Restart { .. }
            | Deed::Step { .. }
            | Deed::SilenceRegistry { .. }
            | Deed::ShutDown { .. } => None,
        }
    }
}

// Goal: of a run that breaks an invariant a smaller one is found that breaks the same, and it is
// the same one each time.
// Method: one replica is taken for a quorum in runs full of other trouble. The first seed where two
// clients hold is shrunk twice.
#[test]
fn failure_shrinks() {
    const TRIES: usize = 60;
    let flawed = |seed| {
        let mut plan = Plan::new(seed, Disks::Synced);
        plan.replicas.quorum = 1;
        plan
    };
    let exclusion = Invariant::MutualExclusion;
    let batch = run_seeds(0..20, flawed);
    let seed = batch.first_that_breaks(exclusion).expect("it is found in so many seeds");
    let failure = |plan: Plan| Failure::of(&plan, &run(&plan)).expect("it was found before");
    let all = failure(flawed(seed));
    let shrunk = all.clone().shrunk(TRIES);
    println!("seed {seed}\n{shrunk}");
    assert!(shrunk.breaks(all.broken[0].0), "{shrunk}");
    assert!(shrunk.lines() < all.lines(), "{} to {} lines", all.lines(), shrunk.lines());
    assert!(shrunk.plan.deeds.len() < all.plan.deeds.len().max(1), "{shrunk}");
    assert!(shrunk.plan.machines.len() <= all.plan.machines.len(), "{shrunk}");
    assert_eq!(shrunk.history, failure(shrunk.plan.clone()).history);
    assert_eq!(shrunk.history, all.shrunk(TRIES).history);
}
