//! The recovery of each moment: without further faults all callers are served, soon, and no row is
//! left.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::MutexGuard;

use super::client::{Caller, Client};
use super::{Action, Moment, NO_TROUBLES, Objects, Ticks, Troubles};

/// The longest recovery: old rows expire, then each caller has its turn.
const TICKS_MAX: Ticks = 80;

impl Objects {
    pub(super) fn recovers(&self, moment: &Moment) -> bool {
        self.violations.allow(self.ends_well(moment.clone()))
    }

    fn ends_well(&self, mut moment: Moment) -> bool {
        moment.calm_down();
        let last = moment.now + TICKS_MAX;
        let mut passed = Vec::new();
        while moment.now < last {
            let fingerprint = fingerprint(&moment);
            passed.push(fingerprint);
            let is_known = self.recovering().contains(&fingerprint);
            if is_known || self.is_over(&moment) {
                self.recovering().extend(passed);
                return true;
            }
            let action = self.next_good(&moment);
            self.step(&mut moment, &action);
            moment.passes = 0;
            if !self.may_hold_together(&moment) || moment.broken().contains(&true) {
                return false;
            }
        }
        false
    }

    fn recovering(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.recovering.lock().expect("no search panics")
    }

    /// The next event of a history without faults.
    fn next_good(&self, moment: &Moment) -> Action {
        let mut actions = Vec::new();
        self.prompt_actions(moment, &mut actions);
        if let Some(prompt) = actions.into_iter().next() {
            return prompt;
        }
        let mut actions = Vec::new();
        self.user_actions(moment, &mut actions);
        actions.into_iter().next().unwrap_or(Action::Pass)
    }

    /// Whether all callers were served, and nothing is left but the rows of clients that died, were
    /// shut down or failed.
    fn is_over(&self, moment: &Moment) -> bool {
        let is_over = moment.clients.iter().all(|client| {
            let is_gone = |caller: &Caller| *caller == Caller::Gone;
            client.callers.iter().all(is_gone) && client.object.is_none()
        });
        let ends = |it: &Troubles| (it.deaths, it.panics, it.shutdowns);
        let leaves_rows = ends(&moment.left) != ends(&self.plan.troubles);
        is_over && (leaves_rows || moment.table.live_rows(moment.time()) == 0)
    }
}

impl Moment {
    /// Nothing is late or stopped from now on, and no further fault occurs.
    fn calm_down(&mut self) {
        self.is_recovering = true;
        // It does not matter any more how they came here.
        self.passes = 0;
        self.orphans.clear();
        for frame in &mut self.frames {
            frame.is_late = false;
        }
        for i in 0..self.clients.len() {
            // A client that does not change keeps its fingerprint.
            let Client { is_stopped, operations, .. } = &*self.clients[i];
            if !is_stopped && operations.iter().all(|operation| !operation.is_late) {
                continue;
            }
            let client = self.client(i);
            client.is_stopped = false;
            for operation in &mut client.operations {
                operation.is_late = false;
            }
        }
        // How many of these have occurred decides what may be left. The next holders ask for more
        // time.
        let Troubles { deaths, panics, shutdowns, confirms, raises, downgrades, .. } = self.left;
        self.left =
            Troubles { deaths, panics, shutdowns, confirms, raises, downgrades, ..NO_TROUBLES };
        self.seal();
    }
}

fn fingerprint(moment: &Moment) -> u64 {
    let mut hasher = DefaultHasher::new();
    moment.hash(&mut hasher);
    hasher.finish()
}
