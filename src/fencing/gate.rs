//! A gate for resources that don't compare timestamps themselves.

use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use super::FencingToken;

/// Admits holders of one lock in the order of their tokens, for resources outside of Cassandra.
///
/// It belongs to the resource, not to the holder. A token is admitted if no larger one was; an
/// equal one is, because a holder writes more than once, and shared holders have the same token.
///
/// # What it needs of the resource
///
/// - Admitting a token and doing the admitted work must be one step: hold the resource's own lock
///   over both, or a larger token may be admitted in between.
/// - The [high-water mark](Self::high_water) must be stored with the work, and the gate created
///   from it after a restart. A gate that forgets it admits a stale holder.
///
/// ```
/// use bakery_lock::{FenceGate, FencingToken};
///
/// let stored = None;
/// let gate = FenceGate::new(stored);
/// let [old, new] = [5_000, 6_000].map(FencingToken::from_value);
/// assert!(gate.admit(old).is_ok());
/// assert!(gate.admit(new).is_ok());
/// assert_eq!(gate.admit(old).map_err(|stale| stale.high_water), Err(new));
/// assert_eq!(gate.high_water(), Some(new));
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    high_water: Mutex<Option<FencingToken>>,
}

impl FenceGate {
    /// A gate that refuses tokens below `high_water`, the mark of an earlier gate of the same
    /// resource; `None` if there was none.
    #[must_use]
    pub const fn new(high_water: Option<FencingToken>) -> Self {
        FenceGate { high_water: Mutex::new(high_water) }
    }

    /// Admits a token, unless a larger one was admitted before.
    ///
    /// # Errors
    ///
    /// [`StaleToken`]: its holder lost the lock, and a later holder was here. The gate is
    /// unchanged.
    pub fn admit(&self, token: FencingToken) -> Result<(), StaleToken> {
        let mut mark = self.high_water.lock().unwrap_or_else(PoisonError::into_inner);
        match *mark {
            Some(high_water) if high_water > token => Err(StaleToken { token, high_water }),
            Some(_) | None => {
                *mark = Some(token);
                Ok(())
            }
        }
    }

    /// The largest admitted token, to be stored with the resource; `None` if there is none.
    #[must_use]
    pub fn high_water(&self) -> Option<FencingToken> {
        *self.high_water.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token that came too late: its holder lost the lock, and a later holder was here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("fencing token {token} is stale: {high_water} was here, so its holder has lost the lock")]
#[non_exhaustive]
pub struct StaleToken {
    /// The refused token.
    pub token: FencingToken,
    /// The largest admitted one.
    pub high_water: FencingToken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_lets_tokens_pass_in_their_order() {
        let [one, two, three] = [1, 2, 3].map(FencingToken::from_value);
        let gate = FenceGate::default();
        assert_eq!(gate.high_water(), None);
        for (token, admitted) in
            [(two, true), (two, true), (one, false), (three, true), (two, false), (three, true)]
        {
            let before = gate.high_water();
            assert_eq!(gate.admit(token).is_ok(), admitted, "{token} after {before:?}");
        }
        assert_eq!(gate.admit(one), Err(StaleToken { token: one, high_water: three }));
        // After a restart it continues where it was.
        let gate = FenceGate::new(gate.high_water());
        assert_eq!(gate.admit(two), Err(StaleToken { token: two, high_water: three }));
        assert_eq!(gate.admit(three), Ok(()));
    }

    #[test]
    fn gate_may_be_asked_by_many_at_once() {
        let gate = FenceGate::new(None);
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let gate = &gate;
                    let tokens = (0..1_000).map(move |n| FencingToken::from_value(n * 4 + thread));
                    scope.spawn(move || tokens.filter(|token| gate.admit(*token).is_ok()).max())
                })
                .collect();
            let largest = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            largest.max().flatten()
        });
        assert_eq!(admitted, Some(FencingToken::from_value(3_999)));
        assert_eq!(gate.high_water(), admitted);
    }
}
