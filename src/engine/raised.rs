//! Stamps above the marks of objects that a client with a wrong clock has swept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The object and the slot of a contender.
type Place = (Arc<str>, i16);

/// How far the stamps of contenders are raised, for the next task of the same contender: without
/// that, its own deletes would hide what it writes.
#[derive(Debug, Default)]
pub(crate) struct Raised(Mutex<BTreeMap<Place, Raise>>);

#[derive(Clone, Copy, Debug)]
struct Raise {
    by: i64,
    /// The contender has written nothing with a stamp above this.
    up_to: i64,
}

impl Raised {
    /// By how much the stamps of a contender are raised, unless the client's own stamps, of which
    /// `now` is the last, are above all that the contender has written.
    pub(crate) fn by(&self, place: &Place, now: i64) -> i64 {
        let mut raised = self.raised();
        raised.retain(|_, raise| raise.up_to >= now);
        raised.get(place).map_or(0, |raise| raise.by)
    }

    /// Notes by how much the stamps of a contender were raised, up to now.
    pub(crate) fn note(&self, place: Place, by: i64, now: i64) {
        self.raised().insert(place, Raise { by, up_to: now.saturating_add(by) });
    }

    fn raised(&self) -> MutexGuard<'_, BTreeMap<Place, Raise>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_is_forgotten_once_own_stamps_have_reached_it() {
        let place = |slot| (Arc::from("a"), slot);
        let raised = Raised::default();
        raised.note(place(0), 100, 5);
        assert_eq!([0, 1].map(|slot| raised.by(&place(slot), 6)), [100, 0]);
        assert_eq!(raised.by(&place(0), 105), 100);
        assert_eq!(raised.by(&place(0), 106), 0);
        assert_eq!(raised.by(&place(0), 6), 0, "it was forgotten");
    }
}
