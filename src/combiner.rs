//! Work that is done by the thread that brings it: flat combining (Hendler, Incze, Shavit, Tzafrir
//! 2010). To wake up a task costs more than what it would do for a turn.

use std::fmt::Debug;

/// Handles what is in some queues, one thread at a time.
pub(crate) trait Combiner: Debug + Send + Sync {
    /// Handles what is in the queues. If another thread does so already, that one looks again.
    /// Called after each addition, without a lock that the work may need.
    fn run(&self);

    /// Leaves that to the combiner's own task.
    fn wake(&self);
}
