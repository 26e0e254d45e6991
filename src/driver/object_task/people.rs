//! What the machine says, in the words of the public API.

use uuid::Uuid;

use crate::admin::types::{ContenderInfo, TurnUser};
use crate::core::bakery::{self, Failure, Revocation};
use crate::core::object::io::{Expiring, Loss, Refusal, User};
use crate::core::turns::{GuestLoss, KeeperId};
use crate::driver::health::HealthProblem;
use crate::error::{ExpiringReason, LockError, LostReason};
use crate::owner::printable;
use crate::store::DatabaseError;

/// What messages for people need in addition to the outputs of the machine.
pub(super) struct Context<'a> {
    pub(super) name: &'a str,
    /// This client.
    pub(super) client: u128,
    /// The last error of the database.
    pub(super) last_error: Option<&'a DatabaseError>,
    /// What keeps the client from granting locks.
    pub(super) problem: Option<&'a HealthProblem>,
    /// Who has the turn of a keeper, as that said last.
    pub(super) user_of_keeper: Option<&'a (KeeperId, TurnUser)>,
}

impl Context<'_> {
    /// The error of a refused caller; `None` for a try that found the lock taken.
    pub(super) fn refusal(&self, refusal: &Refusal) -> Option<LockError> {
        let name = self.name.to_owned();
        Some(match refusal {
            Refusal::Taken => return None,
            Refusal::TimedOut { waited, user, ahead } => {
                let user = user.as_ref().and_then(|user| self.user(user));
                let own = Uuid::from_u128(self.client);
                let held_by_self = user.as_ref().is_some_and(|user| user.client == own);
                let ahead = ahead.iter().cloned().map(ContenderInfo::from).collect();
                LockError::TimedOut {
                    name,
                    waited: *waited,
                    user,
                    ahead,
                    held_by_self,
                    cause: self.last_error.cloned(),
                }
            }
            Refusal::Failed { failure, .. } => self.failure(failure),
            Refusal::Unhealthy(_) => {
                let problem = self.problem.expect("the machine knows it from here");
                problem.refusal(self.name)
            }
            Refusal::Closed => LockError::Closed,
        })
    }

    fn failure(&self, failure: &Failure) -> LockError {
        let name = self.name.to_owned();
        match failure {
            Failure::RowMissing => LockError::RowMissing { name },
            Failure::Revoked(revocation) => {
                let (by, why) = for_people(revocation.clone());
                LockError::Revoked { name, by, why }
            }
            Failure::NoTicketLeft => LockError::NoTicketLeft { name },
            Failure::MarkOutOfReach { ahead } => LockError::MarkOutOfReach { name, ahead: *ahead },
            Failure::Rejected => {
                let cause = self.last_error.cloned().expect("a refused request leaves its error");
                LockError::Refused { name, cause }
            }
        }
    }

    /// A user; `None` if its keeper has not said who that is.
    pub(super) fn user(&self, user: &User) -> Option<TurnUser> {
        match user {
            User::Own(owner) => Some(TurnUser::new(self.client, owner.clone())),
            User::Guest(guest, name) => {
                let unknown = || format!("client {}", Uuid::from_u128(*guest));
                let name = name.as_ref().map_or_else(unknown, ToString::to_string);
                Some(TurnUser::new(*guest, name))
            }
            User::OfKeeper(keeper) => {
                let (of, user) = self.user_of_keeper?;
                (of == keeper).then(|| user.clone())
            }
        }
    }
}

impl From<Expiring> for ExpiringReason {
    fn from(expiring: Expiring) -> Self {
        match expiring {
            Expiring::Revoked(revocation) => {
                let (by, why) = for_people(revocation);
                ExpiringReason::Revoked { by, why }
            }
            Expiring::HoldLimit => ExpiringReason::HoldLimit,
            Expiring::Keeper => ExpiringReason::Keeper,
        }
    }
}

impl From<Loss> for LostReason {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Place(loss) => loss.into(),
            Loss::Guest(GuestLoss::KeeperUnreachable) => LostReason::KeeperUnreachable,
            Loss::Guest(GuestLoss::PlaceLost) => LostReason::KeeperLost,
            Loss::HoldLimit => LostReason::HoldLimit,
            Loss::TableGone => LostReason::TableGone,
            Loss::Closed => LostReason::ClientClosed,
        }
    }
}

impl From<bakery::Loss> for LostReason {
    fn from(loss: bakery::Loss) -> Self {
        match loss {
            bakery::Loss::Expired => LostReason::Expired,
            bakery::Loss::RowMissing => LostReason::RowMissing,
            bakery::Loss::Revoked(revocation) => {
                let (by, why) = for_people(revocation);
                LostReason::Revoked { by, why }
            }
            bakery::Loss::Conflict { holder } => LostReason::Conflict { holder: printable(holder) },
        }
    }
}

/// Who asked for a revocation, and why.
fn for_people(Revocation { by, why, .. }: Revocation) -> (String, String) {
    (printable(by), printable(why))
}
