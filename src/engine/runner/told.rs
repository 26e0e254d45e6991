//! What others are told: who has the turn, and who stands in line.

use uuid::Uuid;

use super::Runner;
use crate::core::turns::{GuestId, LineUser, TurnOf};
use crate::engine::inquirer::Inquirer;
use crate::line::{Line, TOLD_MAX, TurnUser};
use crate::owner::Owner;

impl Runner {
    /// Tells the line of the place; `None` if there is no place.
    pub(super) fn tell_line(&self, inquirer: Inquirer) {
        let network = self.network.as_deref();
        inquirer.answer(network, self.keeper.has_place().then(|| self.line()));
    }

    /// Who has the turn, as far as this client knows: of its own place, or of the one in whose line
    /// it waits.
    pub(super) fn user(&self) -> Option<TurnUser> {
        let owner = self.contender.held_claim().map(|claim| &claim.owner);
        match (self.keeper.user(), owner) {
            (Some(TurnOf::Caller), Some(owner)) => Some(self.own(owner.clone())),
            (Some(TurnOf::Guest(guest)), Some(owner)) => Some(TurnUser::new(guest, owner.clone())),
            (Some(TurnOf::Guest(guest)), None) => Some(self.guest(guest)),
            (Some(TurnOf::Caller) | None, _) => self.borrowing.user().cloned(),
        }
    }

    /// A caller of this client.
    pub(super) fn own(&self, owner: impl Into<Owner>) -> TurnUser {
        TurnUser::new(self.shared.id.client, owner)
    }

    fn line(&self) -> Line {
        let line = self.keeper.line();
        Line {
            keeper: self.own(self.shared.owner.clone()),
            user: self.user(),
            waiting: line.len(),
            first: line.take(TOLD_MAX).map(|user| self.in_line(user)).collect(),
        }
    }

    fn in_line(&self, user: LineUser) -> TurnUser {
        match user {
            LineUser::Caller(number, _) => match self.callers.get(number) {
                Some(caller) => self.own(caller.acquire.owner.clone()),
                None => self.own(self.shared.owner.clone()),
            },
            LineUser::Guest(guest) => self.guest(guest),
        }
    }

    /// A guest by the name that it gave, or by its id if its connection has ended.
    fn guest(&self, guest: GuestId) -> TurnUser {
        let owner = self.network.as_ref().and_then(|network| network.owner(guest));
        let unknown = || format!("client {}", Uuid::from_u128(guest));
        TurnUser::new(guest, owner.unwrap_or_else(unknown))
    }
}
