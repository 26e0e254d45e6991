//! Locks whose lease lasts for some time when they are granted.

use std::time::Duration;

use crate::core::bakery::LeaseTerms;
use crate::error::{EnsureError, LockError, LostReason};
use crate::guard::LockGuard;
use crate::guard::grant::GuardState;
use crate::options::InvalidOption;

/// Terms whose first lease lasts as long as is asked for.
pub(super) fn terms_lasting(
    at_least: Duration,
    terms: LeaseTerms,
    max_ttl: Duration,
) -> Result<LeaseTerms, InvalidOption> {
    let max_clock_skew = terms.max_clock_skew();
    if at_least.is_zero() {
        return Ok(terms);
    }
    let longest = LeaseTerms::longest_min_hold(max_ttl, max_clock_skew);
    if at_least > longest {
        return Err(InvalidOption::AtLeastTooLong { at_least, longest });
    }
    let needed = LeaseTerms::for_min_hold(at_least, max_clock_skew);
    Ok(if needed.ttl() <= terms.ttl() { terms } else { needed })
}

/// The guard, once its lease lasts for at least so long. That of an own place does so when it is
/// granted, unless others share it; that of a turn at another client does so if no message was
/// late.
pub(super) async fn lasting(
    guard: LockGuard,
    at_least: Duration,
    terms: LeaseTerms,
) -> Result<LockGuard, LockError> {
    let ensured = match guard.ensure(at_least).await {
        Err(EnsureError::TooLong { .. }) => match guard.raise_ttl(terms.ttl()).await {
            Ok(_) => guard.ensure(at_least).await,
            Err(error) => Err(error),
        },
        ensured => ensured,
    };
    let name = guard.table_name().to_owned();
    let reason = match ensured {
        Ok(_) => return Ok(guard),
        Err(EnsureError::Closed) => return Err(LockError::Closed),
        Err(EnsureError::Lost { reason, .. }) => reason,
        Err(EnsureError::Unconfirmed { waited, cause, .. }) => {
            let (user, ahead, held_by_self) = (None, Vec::new(), false);
            return Err(LockError::TimedOut { name, waited, user, ahead, held_by_self, cause });
        }
        // It is to end, or its keeper can't hold it for so long.
        Err(
            EnsureError::TooLong { .. }
            | EnsureError::Unchangeable { .. }
            | EnsureError::Option(_)
            | EnsureError::Released { .. },
        ) => match guard.state() {
            GuardState::Expiring { reason, .. } => reason.loss(),
            GuardState::Lost(reason) => Some(reason),
            GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Released => None,
        }
        .unwrap_or(LostReason::Expired),
    };
    Err(LockError::Lost { name, reason })
}
