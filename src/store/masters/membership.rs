//! Which servers take part, and how one that lost its data comes back.
//!
//! Each member records the epochs of all members, a *view*. A request carries the view of its
//! client, and a server refuses any other one. So two clients that do not know the same servers
//! never both reach a majority, and neither does a client whose view is over.
//!
//! A server that may have lost data gets a new epoch. First a majority of servers, *not counting
//! that one*, goes over to a view with it; from then on the earlier view reaches no majority any
//! more, even if another server answers in its place elsewhere. Then the server records it, copies
//! the registry, and takes no part until all that was acknowledged before is over: rows have a TTL,
//! and fences are below the clocks by then (M10), whatever it forgot of them.
//!
//! [`judge`] decides from what the servers show; it does no I/O. `tests/model` compiles this file.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::record::{MastersSettings, Record, View};

/// The smallest number of servers of which any two sets have one in common.
pub(super) fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// What is known of a server; `C` is a connection to it.
#[derive(Clone, Debug)]
pub(super) enum Sight<C> {
    /// It can't take part now; and why.
    Out(String),
    /// It answered.
    Here {
        connection: C,
        /// The process that answered.
        run_id: String,
        /// Whether its data is what it was before it was started again.
        keeps_data: bool,
        /// Its clock, in ms since the Unix epoch.
        now_millis: i64,
        record: Option<Record>,
    },
}

/// What is to be done with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It can't take part now; and why.
    Out(String),
    /// It is a member.
    Member { index: usize, usable_from: i64, task: MemberTask },
    /// It may have lost data. Its record shows this view, if it has one.
    Lost { index: usize, view: Option<View> },
}

/// What is to be done about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberTask {
    Nothing,
    /// It has an earlier view than others.
    Install,
    /// It was started again, with all of its data.
    Adopt,
}

/// What the servers come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) cluster: Uuid,
    pub(super) settings: MastersSettings,
    pub(super) view: View,
    /// The epochs of all members, in the order of their places.
    pub(super) members: Vec<Uuid>,
    /// What to do with each server, in the order of the addresses.
    pub(super) places: Vec<Place>,
}

/// Why servers can't be used together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unplanned {
    /// None of them has a record.
    NoRecord,
    /// They are recorded to be more or fewer.
    OtherCount { recorded: usize },
}

impl Plan {
    /// How many servers are members.
    pub(super) fn present(&self) -> usize {
        let is_member = |place: &&Place| matches!(place, Place::Member { .. });
        self.places.iter().filter(is_member).count()
    }

    /// Whether servers that lost data can come back by themselves: a majority did not. Otherwise no
    /// one knows what there was, and whether these are the servers that others use.
    pub(super) fn can_restore(&self) -> bool {
        self.present() >= majority(self.places.len())
    }

    /// The places of the servers that lost data.
    pub(super) fn lost(&self) -> BTreeSet<usize> {
        let index = |place: &Place| match place {
            Place::Lost { index, .. } => Some(*index),
            Place::Out(_) | Place::Member { .. } => None,
        };
        self.places.iter().filter_map(index).collect()
    }
}

/// Decides what to do. `known` has the places of servers, by address, as far as they were seen
/// before.
pub(super) fn judge<C>(sights: &[Sight<C>], known: &[Option<usize>]) -> Result<Plan, Unplanned> {
    let records = || {
        sights.iter().filter_map(|sight| match sight {
            Sight::Here { record, .. } => record.as_ref(),
            Sight::Out(_) => None,
        })
    };
    let cluster = commonest(records().map(|record| record.cluster)).ok_or(Unplanned::NoRecord)?;
    let newest = records().filter(|record| record.cluster == cluster);
    let Record { settings, view, members, .. } =
        newest.max_by_key(|record| record.view).ok_or(Unplanned::NoRecord)?.clone();
    if members.len() != sights.len() {
        return Err(Unplanned::OtherCount { recorded: members.len() });
    }
    let mut plan = Plan { cluster, settings, view, members, places: Vec::new() };
    let mut processes = BTreeSet::new();
    for sight in sights {
        let place = match sight {
            Sight::Out(why) => Some(Place::Out(why.clone())),
            Sight::Here { run_id, .. } if !processes.insert(run_id) => {
                let why = "another address leads to the same server: name each server once";
                Some(Place::Out(why.to_owned()))
            }
            Sight::Here { record: None, .. } => None,
            Sight::Here { run_id, keeps_data, now_millis, record: Some(record), .. } => {
                let is_same = record.run_id == *run_id;
                Some(plan.place_of(record, is_same, *keeps_data, *now_millis))
            }
        };
        // Those without a record are given a place last.
        plan.places.push(place.unwrap_or(Place::Lost { index: usize::MAX, view: None }));
    }
    plan.refuse_second_claims();
    plan.give_places(known);
    Ok(plan)
}

impl Plan {
    fn place_of(
        &self,
        record: &Record,
        is_same_process: bool,
        keeps_data: bool,
        now_millis: i64,
    ) -> Place {
        let &Record { index, epoch, usable_from, view, .. } = record;
        if record.cluster != self.cluster {
            let why = "it belongs to another set of masters: correct the addresses";
            return Place::Out(why.to_owned());
        }
        if index >= self.members.len() {
            return Place::Out("its record makes no sense".to_owned());
        }
        let is_kept = is_same_process || keeps_data && record.is_durable;
        let lost = Place::Lost { index, view: Some(view) };
        if !is_kept {
            return lost;
        }
        if self.members[index] != epoch {
            // One that never took part was overtaken by another client's attempt.
            return if now_millis < usable_from { lost } else { Place::Out(REPLACED.to_owned()) };
        }
        let task = if !is_same_process {
            MemberTask::Adopt
        } else if view != self.view {
            MemberTask::Install
        } else {
            MemberTask::Nothing
        };
        Place::Member { index, usable_from, task }
    }

    /// Of two servers with one place only a member keeps it.
    fn refuse_second_claims(&mut self) {
        let mut taken: BTreeSet<_> = self.places.iter().filter_map(member_index).collect();
        let mut seen = BTreeSet::new();
        for place in &mut self.places {
            let is_second = match place {
                Place::Member { index, .. } => !seen.insert(*index),
                Place::Lost { index, .. } => *index != usize::MAX && !taken.insert(*index),
                Place::Out(_) => false,
            };
            if is_second {
                *place = Place::Out(REPLACED.to_owned());
            }
        }
    }

    /// Gives servers without a record the places that no other one has, if these are certain.
    fn give_places(&mut self, known: &[Option<usize>]) {
        let mut free: BTreeSet<_> = (0..self.members.len()).collect();
        for (place, known) in self.places.iter().zip(known) {
            let index = match place {
                Place::Member { index, .. } | Place::Lost { index, .. } => Some(*index),
                Place::Out(_) => *known,
            };
            free.retain(|place| Some(*place) != index);
        }
        let is_new = |place: &&mut Place| matches!(place, Place::Lost { index: usize::MAX, .. });
        let new: Vec<_> = self.places.iter_mut().filter(is_new).collect();
        let is_certain = new.len() == free.len();
        let mut free = free.into_iter().filter(|_| is_certain);
        for place in new {
            *place = match free.next() {
                Some(index) => Place::Lost { index, view: None },
                None => Place::Out(NO_PLACE.to_owned()),
            };
        }
    }
}

const REPLACED: &str = "another server has taken its place: name the servers that all clients \
                        use; to use this one, delete its record (the key bl:TABLE:master)";
const NO_PLACE: &str = "it has no record of the lock table, and which one it was is known only \
                        when all others answer";

fn member_index(place: &Place) -> Option<usize> {
    match place {
        Place::Member { index, .. } => Some(*index),
        Place::Out(_) | Place::Lost { .. } => None,
    }
}

/// The value that comes most often; of several, the first.
fn commonest(values: impl Iterator<Item = Uuid>) -> Option<Uuid> {
    let mut counts = BTreeMap::<Uuid, (usize, usize)>::new();
    for (order, value) in values.enumerate() {
        counts.entry(value).or_insert((0, usize::MAX - order)).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

// The path says where the file is if the model compiles this one.
#[cfg(test)]
#[path = "membership/tests.rs"]
mod tests;
