//! The keepers that served a client of late: it asks them first, without any database operation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::core::turns::KeeperId;

/// A keeper that served the client within this time probably still has the object.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// More objects are not remembered: the next request finds the keeper through the table.
const OBJECTS_MAX: usize = 10_000;

/// The keeper of each object, and when it last answered.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Mutex<BTreeMap<Arc<str>, (KeeperId, Duration)>>);

impl Remembered {
    /// The keeper to ask first.
    pub(crate) fn keeper(&self, object: &str, now: Duration) -> Option<KeeperId> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (keeper, answered) = *remembered.get(object)?;
        (now < answered + REMEMBERED_FOR).then_some(keeper)
    }

    /// Notes that a keeper has answered.
    pub(crate) fn note(&self, object: &Arc<str>, keeper: KeeperId, now: Duration) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= OBJECTS_MAX && !remembered.contains_key(object) {
            remembered.retain(|_, (_, answered)| now < *answered + REMEMBERED_FOR);
            if remembered.len() >= OBJECTS_MAX {
                return;
            }
        }
        remembered.insert(Arc::clone(object), (keeper, now));
    }

    /// Forgets the keeper of an object, which sent the client elsewhere.
    pub(crate) fn forget(&self, object: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepers_are_remembered_for_a_second_and_of_so_many_objects() {
        let ms = Duration::from_millis;
        let remembered = Remembered::default();
        remembered.note(&Arc::from("a"), 7, ms(0));
        assert_eq!(remembered.keeper("a", ms(999)), Some(7));
        assert_eq!(remembered.keeper("a", ms(1_000)), None);
        assert_eq!(remembered.keeper("b", ms(0)), None);
        for number in 0..OBJECTS_MAX {
            remembered.note(&Arc::from(number.to_string()), 8, ms(900));
        }
        assert_eq!(remembered.keeper("9998", ms(900)), Some(8));
        assert_eq!(remembered.keeper("9999", ms(900)), None, "there are too many");
        remembered.note(&Arc::from("b"), 9, ms(1_900));
        assert_eq!(remembered.keeper("b", ms(1_900)), Some(9), "the others are too old by then");
        remembered.forget("b");
        assert_eq!(remembered.keeper("b", ms(1_900)), None);
    }
}
