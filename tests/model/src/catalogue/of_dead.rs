//! Searches of the lock of a process that has died.

use super::Length::{self, Long, Short};
use super::Subject;
use crate::dead::{Flaw, Plan};
use crate::sightings::Sight;

const DIES: Plan = Plan {
    renewals: 1,
    has_ticket: false,
    is_shared: false,
    deletes: 1,
    is_forced: false,
    flaw: None,
    must_see: &[
        Sight::DeletedForDead,
        Sight::NothingToDelete,
        Sight::LateRow,
        Sight::SecondOwner,
        Sight::NextHolderEntered,
    ],
};

const SHARED: Plan =
    Plan { is_shared: true, must_see: &[Sight::SecondOwner, Sight::NextHolderEntered], ..DIES };

pub(super) fn sound() -> Vec<(&'static str, Length, Subject)> {
    let of = Subject::Dead;
    vec![
        ("release for the dead", Short, of(DIES)),
        ("release for the dead, two deletes", Short, of(Plan { deletes: 2, ..DIES })),
        ("release for the dead, removed by force", Short, of(Plan { is_forced: true, ..DIES })),
        ("release for the dead, with a ticket", Short, of(Plan { has_ticket: true, ..DIES })),
        ("release for the dead, a place that is shared", Short, of(SHARED)),
        (
            "release for the dead, two deletes and renewals",
            Long,
            of(Plan { renewals: 3, deletes: 2, is_forced: true, ..DIES }),
        ),
    ]
}

pub(super) fn flawed() -> Vec<(&'static str, Subject)> {
    let of = |flaw| Subject::Dead(Plan { flaw: Some(flaw), ..DIES });
    vec![
        ("flaw: release for one that lives", of(Flaw::NoProof)),
        ("flaw: release although one had begun", of(Flaw::EndNotNoted)),
        ("flaw: release for the dead stamped too low", of(Flaw::StampedTooLow)),
        ("flaw: release for the dead of any round", of(Flaw::AnyRound)),
        ("flaw: release for the dead of a whole host", of(Flaw::WholeHost)),
        (
            "flaw: release for the dead of a place that is shared",
            Subject::Dead(Plan { flaw: Some(Flaw::NotAlone), ..SHARED }),
        ),
    ]
}
