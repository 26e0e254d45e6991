//! Mutexes of the daemon: no code panics while it has one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
