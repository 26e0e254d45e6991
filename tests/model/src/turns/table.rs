//! The place of the keeper's contender in the table, and the rows.

use std::time::Duration;

use super::parties::{Caller, NextHolder};
use super::{Action, Moment, Turns};
use crate::core::bakery::{ContenderId, LeaseTerms, SPACING};
use crate::core::turns::{KeeperInput, TokenBlock};
use crate::search::Tell;
use crate::sightings::Sight;

/// The contender of the keeper's process, and the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    /// On which terms the keeper wants a place, if it does.
    pub(super) wanted: Option<LeaseTerms>,
    pub(super) is_held: bool,
    pub(super) terms: LeaseTerms,
    /// The lease as the contender knows it, by the library's clock.
    pub(super) deadline: Duration,
    pub(super) round: i64,
    /// Which grant of the object through the table it is.
    pub(super) grant: u8,
    /// A renewal that the keeper asked for.
    pub(super) renewing: Option<LeaseTerms>,
    /// It is revoked, and not renewed any more.
    is_expiring: bool,
    pub(super) is_releasing: bool,
    pub(super) is_looking: bool,
    /// The round for which a block of tokens is drawn.
    pub(super) drawing: Option<i64>,
    /// Until when rows certainly stand, in true time.
    pub(super) rows_until: Option<Duration>,
    /// The same of a dead process, whose rows no other one deletes.
    old_rows_until: Duration,
}

/// What happens to the keeper's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableEvent {
    Acquired,
    /// The renewal that the keeper asked for is acknowledged, or never.
    Renewed {
        acknowledged: bool,
    },
    /// The contender renews by itself.
    RenewedByItself,
    /// The contender notices that its lease is over.
    Expired,
    Revoked,
    RemovedByForce,
    Released,
    Looked {
        outsiders: bool,
    },
    /// The contender sees that of another keeper ahead.
    OtherKeeperSeen,
    /// A block of tokens is drawn, or its write is never acknowledged.
    Drawn {
        acknowledged: bool,
    },
}

impl Table {
    pub(super) fn new(terms: LeaseTerms) -> Self {
        Table {
            wanted: None,
            is_held: false,
            terms,
            deadline: Duration::ZERO,
            round: 0,
            grant: 0,
            renewing: None,
            is_expiring: false,
            is_releasing: false,
            is_looking: false,
            drawing: None,
            rows_until: None,
            old_rows_until: Duration::ZERO,
        }
    }

    /// Its process died. The rows stand until their TTL has passed, and the next process numbers
    /// its rounds from the beginning.
    pub(super) fn begin_anew(&mut self) {
        let old_rows_until = self.rows_until.unwrap_or_default().max(self.old_rows_until);
        *self = Table { old_rows_until, ..Table::new(self.terms) };
    }

    /// The keeper asks for a renewal. A revoked contender makes none.
    pub(super) fn renew(&mut self, terms: LeaseTerms) {
        if !self.is_expiring {
            self.renewing = Some(terms);
        }
    }

    /// Whether rows may be gone, all of them.
    pub(super) fn may_be_free(&self, time: Duration) -> bool {
        self.rows_until.is_none_or(|until| until <= time) && self.old_rows_until <= time
    }
}

impl Turns {
    pub(super) fn table_actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        let Moment { table, left, .. } = moment;
        let is_free = moment.next_holder != NextHolder::Inside;
        let rows_may_be_gone = table.may_be_free(moment.time());
        if moment.keeper.is_alive() {
            if table.wanted.is_some() && is_free && rows_may_be_gone {
                actions.push(Action::Table(TableEvent::Acquired));
            }
            let has_guests = moment.keeper.has_guests();
            if table.wanted.is_some() && has_guests && left.disbanded > 0 {
                actions.push(Action::Table(TableEvent::OtherKeeperSeen));
            }
            if table.renewing.is_some() {
                actions.push(Action::Table(TableEvent::Renewed { acknowledged: true }));
                actions.push(Action::Table(TableEvent::Renewed { acknowledged: false }));
            }
            let renews = table.is_held && table.renewing.is_none() && !table.is_expiring;
            if renews && left.renewals > 0 && !moment.removed {
                actions.push(Action::Table(TableEvent::RenewedByItself));
            }
            if table.is_held && moment.keeper_now().elapsed >= table.deadline {
                actions.push(Action::Table(TableEvent::Expired));
            }
            if table.is_held && !table.is_expiring && left.revocations > 0 {
                actions.push(Action::Table(TableEvent::Revoked));
            }
            if table.is_held && left.removals > 0 {
                actions.push(Action::Table(TableEvent::RemovedByForce));
            }
            if table.is_releasing {
                actions.push(Action::Table(TableEvent::Released));
            }
            if table.drawing.is_some() {
                actions.push(Action::Table(TableEvent::Drawn { acknowledged: true }));
                actions.push(Action::Table(TableEvent::Drawn { acknowledged: false }));
            }
            if table.is_looking {
                let waits = moment.next_holder == NextHolder::Waiting;
                actions.push(Action::Table(TableEvent::Looked { outsiders: waits }));
            }
            if left.keeper_deaths > 0 {
                actions.push(Action::KeeperDies);
            }
        } else {
            actions.push(Action::KeeperRestarts);
        }
        match moment.next_holder {
            NextHolder::Waiting => {
                if rows_may_be_gone {
                    actions.push(Action::NextHolderEnters);
                }
                if left.giving_up > 0 {
                    actions.push(Action::NextHolderLeaves);
                }
            }
            NextHolder::Inside => actions.push(Action::NextHolderLeaves),
            NextHolder::Gone => {}
        }
    }

    pub(super) fn table_event(&self, moment: &mut Moment, event: TableEvent) {
        match event {
            TableEvent::Acquired => self.acquired(moment),
            TableEvent::Renewed { acknowledged } => self.renewed(moment, acknowledged),
            TableEvent::RenewedByItself => {
                moment.left.renewals -= 1;
                let terms = moment.table.terms;
                moment.table.renew(terms);
                self.renewed(moment, true);
            }
            TableEvent::Expired => self.lost(moment),
            TableEvent::Revoked => {
                moment.left.revocations -= 1;
                self.note(moment, Sight::PlaceRevoked);
                (moment.table.is_expiring, moment.table.renewing) = (true, None);
                moment.taken_until = 0;
                self.keeper(moment, KeeperInput::Expiring);
            }
            TableEvent::RemovedByForce => {
                moment.left.removals -= 1;
                moment.removed = true;
                moment.taken_until = 0;
                moment.table.rows_until = None;
            }
            TableEvent::Released => {
                moment.table.is_releasing = false;
                self.keeper(moment, KeeperInput::Released);
            }
            TableEvent::Drawn { acknowledged } => self.drawn(moment, acknowledged),
            TableEvent::OtherKeeperSeen => {
                moment.left.disbanded -= 1;
                self.note(moment, Sight::LineDisbanded);
                self.keeper(moment, KeeperInput::Disband);
            }
            TableEvent::Looked { outsiders } => {
                moment.table.is_looking = false;
                self.keeper(moment, KeeperInput::Looked { outsiders });
            }
        }
    }

    pub(super) fn acquired(&self, moment: &mut Moment) {
        let (now, time) = (moment.keeper_now(), moment.time());
        moment.grants += 1;
        moment.table.grant = moment.grants;
        let table = &mut moment.table;
        let terms = table.wanted.take().expect("a place is acquired when it is wanted");
        table.round += 1;
        (table.is_held, table.is_expiring) = (true, false);
        (table.terms, table.deadline) = (terms, terms.deadline(now.elapsed));
        table.rows_until = Some(terms.deadline(time));
        let place = ContenderId { host: 1, client: u128::from(moment.keeper.incarnation), slot: 0 };
        let (round, deadline) = (table.round, table.deadline);
        self.keeper(moment, KeeperInput::Held { place, round, terms, deadline });
    }

    /// The rows are written; perhaps the contender never learns of it.
    pub(super) fn renewed(&self, moment: &mut Moment, acknowledged: bool) {
        let (now, time) = (moment.keeper_now(), moment.time());
        let removed = moment.removed;
        let table = &mut moment.table;
        let terms = table.renewing.expect("a renewal was asked for");
        let in_time = now.elapsed < table.deadline;
        if !removed {
            table.rows_until = Some(terms.deadline(time));
        }
        // Whether or not it learns of it: a contender's lease lasts no longer than what it sent.
        table.deadline = table.deadline.min(terms.deadline(now.elapsed));
        if acknowledged {
            table.renewing = None;
        }
        if acknowledged && in_time {
            (table.terms, table.deadline) = (terms, terms.deadline(now.elapsed));
            let deadline = table.deadline;
            self.keeper(moment, KeeperInput::Renewed { terms, deadline });
        }
    }

    /// A block of two tokens. It is the keeper's only if its rows are there afterwards.
    fn drawn(&self, moment: &mut Moment, acknowledged: bool) {
        let Some(round) = moment.table.drawing.take() else {
            unreachable!("a block is drawn when it was asked for")
        };
        let first = moment.fence + i64::from(SPACING);
        let block = TokenBlock::from(first, first, 4 * Duration::from_micros(SPACING.into()));
        let block = block.expect("the clock is at the first token");
        moment.fence = block.last();
        let stands = moment.table.is_held && !moment.removed;
        let block = Some(block).filter(|_| acknowledged && stands);
        self.keeper(moment, KeeperInput::Block { round, block });
    }

    pub(super) fn lost(&self, moment: &mut Moment) {
        moment.table.is_held = false;
        moment.table.renewing = None;
        moment.taken_until = 0;
        self.keeper(moment, KeeperInput::Lost);
        // Their guards know by the lease, or are told.
        for caller in &mut moment.callers {
            if matches!(caller, Caller::Inside(_)) {
                *caller = Caller::Gone;
            }
        }
    }
}

impl Tell for TableEvent {
    fn tell(&self) -> String {
        match self {
            TableEvent::Acquired => "the place is acquired".to_owned(),
            TableEvent::Renewed { acknowledged: true } => "the place is renewed".to_owned(),
            TableEvent::Renewed { acknowledged: false } => {
                "the place is renewed, unacknowledged".to_owned()
            }
            TableEvent::RenewedByItself => "the contender renews the place".to_owned(),
            TableEvent::Expired => "the contender's lease is over".to_owned(),
            TableEvent::Revoked => "the place is revoked".to_owned(),
            TableEvent::RemovedByForce => "the place is removed by force".to_owned(),
            TableEvent::Released => "the release is acknowledged".to_owned(),
            TableEvent::Drawn { acknowledged: true } => "tokens are drawn".to_owned(),
            TableEvent::Drawn { acknowledged: false } => {
                "tokens are drawn, unacknowledged".to_owned()
            }
            TableEvent::OtherKeeperSeen => "the keeper sends its line elsewhere".to_owned(),
            TableEvent::Looked { outsiders } => {
                format!("the keeper sees others in the table: {outsiders}")
            }
        }
    }
}
