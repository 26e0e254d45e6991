//! Searches of masters that lose their data.

use super::Length::{self, Long, Short};
use super::Subject;
use crate::members::{Addresses, Flaw, Loss, Plan, STRANGER};
use crate::sightings::Sight;

const RIGHT: Addresses = [0, 1, 2];
/// An empty server is at the address of the second one.
const WRONG: Addresses = [0, STRANGER, 2];

/// One server loses its data; all clients have the right addresses.
const ONE: Plan = Plan {
    addresses: [RIGHT, RIGHT],
    looks: [2, 2],
    rounds: 1,
    are_contenders: false,
    has_silence: false,
    is_torn: false,
    losses: &[Loss::Restarted, Loss::Emptied],
    losses_max: 1,
    has_late_rows: false,
    are_durable: false,
    flaw: None,
    must_see: &[
        Sight::ServerJoined,
        Sight::ServerBack,
        Sight::ServerWaits,
        Sight::ViewRefused,
        Sight::RowMet,
    ],
};

const TWO: Plan = Plan { losses_max: 2, ..ONE };

/// The one that reads has a wrong address.
const MISLED: Plan = Plan {
    addresses: [RIGHT, WRONG],
    has_silence: true,
    losses: &[],
    losses_max: 0,
    must_see: &[
        Sight::ServerJoined,
        Sight::ServerWaits,
        Sight::ServerReplaced,
        Sight::ViewRefused,
        Sight::RowMet,
    ],
    ..ONE
};

const MISLED_WRITER: Plan = Plan { addresses: [WRONG, RIGHT], ..MISLED };
const MISLED_AND_LOST: Plan = Plan { losses: ONE.losses, losses_max: 1, ..MISLED };

const SNAPSHOTS: Plan = Plan { losses: &[Loss::OldSnapshot], losses_max: 2, ..ONE };
const FOLLOWER: Plan = Plan {
    losses: &[Loss::Follows(0), Loss::Follows(1)],
    must_see: &[Sight::ServerReplaced, Sight::RowMet],
    ..ONE
};
const DURABLE: Plan = Plan {
    losses: &[Loss::Kept, Loss::Restarted],
    losses_max: 2,
    are_durable: true,
    must_see: &[Sight::ServerAdopted, Sight::ServerJoined, Sight::ServerBack, Sight::RowMet],
    ..ONE
};
const TORN: Plan = Plan { is_torn: true, looks: [1, 1], ..TWO };
const LATE: Plan = Plan {
    rounds: 2,
    looks: [1, 0],
    has_late_rows: true,
    must_see: &[Sight::ServerJoined, Sight::RowMet],
    ..ONE
};
const CONTENDERS: Plan = Plan {
    are_contenders: true,
    looks: [0, 1],
    must_see: &[Sight::ServerJoined, Sight::ServerBack, Sight::RowMet],
    ..ONE
};

pub(super) fn sound() -> Vec<(&'static str, Length, Subject)> {
    let of = |length, plan| (length, Subject::Members(plan));
    let once = |plan| of(Short, Plan { looks: [1, 1], ..plan });
    let twice = |plan| of(Long, Plan { looks: [1, 2], ..plan });
    let searches = [
        ("masters, one loses its data", of(Short, Plan { looks: [1, 2], ..ONE })),
        ("masters, one loses its data, one is silent", of(Long, Plan { has_silence: true, ..ONE })),
        ("masters, two lose their data", once(TWO)),
        ("masters, two lose their data, three looks", twice(TWO)),
        ("masters, old snapshots", once(SNAPSHOTS)),
        ("masters, old snapshots, three looks", twice(SNAPSHOTS)),
        ("masters, that sync each write", once(DURABLE)),
        ("masters, that sync each write, three looks", twice(DURABLE)),
        ("masters, a follower", of(Short, FOLLOWER)),
        ("masters, a wrong address", of(Short, MISLED)),
        ("masters, a wrong address of the writer", of(Short, MISLED_WRITER)),
        ("masters, a wrong address, and a loss", once(MISLED_AND_LOST)),
        ("masters, a wrong address, and a loss, three looks", twice(MISLED_AND_LOST)),
        ("masters, late rows", of(Short, LATE)),
        ("masters, looked at one by one", of(Long, TORN)),
        ("masters, contenders", of(Short, CONTENDERS)),
        ("masters, contenders that both look", of(Long, Plan { looks: [1, 1], ..CONTENDERS })),
    ];
    searches.map(|(name, (length, subject))| (name, length, subject)).into()
}

pub(super) fn flawed() -> Vec<(&'static str, Subject)> {
    let of = |flaw, plan| Subject::Members(Plan { flaw: Some(flaw), looks: [1, 1], ..plan });
    let counted = Plan { flaw: Some(Flaw::LostServerCounts), looks: [0, 2], ..MISLED };
    vec![
        ("flaw: masters join first", of(Flaw::JoinsFirst, MISLED)),
        ("flaw: masters do not wait", of(Flaw::NoWait, TWO)),
        ("flaw: masters without a gate", of(Flaw::NoGate, ONE)),
        ("flaw: masters without the view in the gate", of(Flaw::NoViewInGate, MISLED)),
        ("flaw: masters without the epoch in the gate", of(Flaw::NoEpochInGate, FOLLOWER)),
        ("flaw: masters keep their epoch", of(Flaw::EpochReused, MISLED)),
        ("flaw: masters apply late rows", of(Flaw::NoLateLimit, LATE)),
        ("flaw: masters count the lost one", Subject::Members(counted)),
        ("flaw: masters are reached without a look", of(Flaw::Reconnects, SNAPSHOTS)),
        ("broken: masters follow each other", Subject::Members(Plan { losses_max: 2, ..FOLLOWER })),
        (
            "broken: durable masters follow",
            Subject::Members(Plan { are_durable: true, has_silence: true, ..FOLLOWER }),
        ),
    ]
}
