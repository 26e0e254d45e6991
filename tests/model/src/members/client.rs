//! What a client knows of the servers, and what the shipped `judge` makes of it.

use super::membership::{self, MemberTask, judge};
use super::server::{
    Entry, Epoch, FIRST_EPOCHS, FIRST_VIEW, Gate, PLACES, Process, Server, ViewId,
};

/// The servers at its addresses, as the scenario has it.
pub(crate) type Addresses = [u8; PLACES];

/// What is seen of a server: who answered, when, and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sight {
    pub(super) process: Process,
    is_durable: bool,
    pub(super) entry: Option<Entry>,
}

/// A server as a client uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    pub(super) place: u8,
    pub(super) gate: Gate,
    /// The process that it was connected to when it looked.
    pub(super) process: Process,
}

/// The servers as a client uses them until it looks again, by address.
pub(super) type Seats = [Option<Seat>; PLACES];

/// What is to be done with the server at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Out,
    Member { place: u8, adopts: bool, has: Entry, process: Process },
    Lost { place: u8, had: Option<ViewId>, process: Process, is_durable: bool },
}

/// A shipped plan, and how far it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    pub(super) view: ViewId,
    pub(super) members: [Epoch; PLACES],
    pub(super) places: [Place; PLACES],
}

impl Sight {
    pub(super) fn of(server: &Server) -> Self {
        let Server { process, is_durable, entry, .. } = *server;
        Sight { process, is_durable, entry }
    }

    fn shipped(sight: Option<Self>) -> membership::Sight<()> {
        let Some(Sight { process, is_durable, entry }) = sight else {
            return membership::Sight::Out("it is silent".to_owned());
        };
        membership::Sight::Here {
            connection: (),
            run_id: process.run_id(),
            keeps_data: is_durable,
            now_millis: 0,
            record: entry.as_ref().map(Entry::shipped),
        }
    }
}

impl Plan {
    /// What the library makes of what was seen; nothing if no server has a record.
    pub(super) fn of(
        sights: &[Option<Sight>; PLACES],
        known: &[Option<u8>; PLACES],
    ) -> Option<Plan> {
        let shipped = sights.map(Sight::shipped);
        let known = known.map(|place| place.map(usize::from));
        let plan = judge(&shipped, &known).ok()?;
        let entries = || sights.iter().flatten().filter_map(|sight| sight.entry);
        let view = entries().map(|entry| entry.view).find(|view| view.shipped() == plan.view)?;
        let mut members = [0; PLACES];
        for (member, epoch) in members.iter_mut().zip(&plan.members) {
            *member = Epoch::try_from(epoch.as_u128()).expect("epochs are small");
        }
        let mut places = [Place::Out; PLACES];
        for ((place, shipped), sight) in places.iter_mut().zip(plan.places).zip(sights) {
            *place = Place::of(&shipped, *sight);
        }
        Some(Plan { view, members, places })
    }

    /// How many servers are members.
    pub(super) fn present(&self) -> usize {
        self.places.iter().filter(|place| matches!(place, Place::Member { .. })).count()
    }

    /// The address of a server that lost its data.
    pub(super) fn lost(&self) -> impl Iterator<Item = usize> + use<> {
        let places = self.places;
        (0..PLACES).filter(move |address| matches!(places[*address], Place::Lost { .. }))
    }

    /// The servers as they are used now.
    pub(super) fn seats(&self) -> Seats {
        self.places.map(|place| match place {
            Place::Member { place, process, .. } => {
                let gate = Gate { view: self.view, epoch: self.members[usize::from(place)] };
                Some(Seat { place, gate, process })
            }
            Place::Out | Place::Lost { .. } => None,
        })
    }
}

impl Place {
    fn of(shipped: &membership::Place, sight: Option<Sight>) -> Self {
        match (shipped, sight) {
            (
                &membership::Place::Member { index, task, .. },
                Some(Sight { process, entry: Some(has), .. }),
            ) => Place::Member {
                place: small(index),
                adopts: task == MemberTask::Adopt,
                has: Entry { waits: 0, ..has },
                process,
            },
            (&membership::Place::Lost { index, .. }, Some(sight)) => Place::Lost {
                place: small(index),
                had: sight.entry.map(|entry| entry.view),
                process: sight.process,
                is_durable: sight.is_durable,
            },
            (
                membership::Place::Out(_)
                | membership::Place::Member { .. }
                | membership::Place::Lost { .. },
                _,
            ) => Place::Out,
        }
    }
}

fn small(index: usize) -> u8 {
    u8::try_from(index).expect("there are few servers")
}

/// What a client uses that has known the right servers for long.
pub(super) fn first_seats(addresses: Addresses) -> Seats {
    addresses.map(|server| {
        let epoch = *FIRST_EPOCHS.get(usize::from(server))?;
        let gate = Gate { view: FIRST_VIEW, epoch };
        Some(Seat { place: server, gate, process: Process { server, start: 0 } })
    })
}
