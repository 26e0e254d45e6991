//! The clocks of keeper and guests.

use std::time::Duration;

use crate::peers::Now;

/// How many ticks passed.
pub(super) type Ticks = u8;

/// The shortest time that passes.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// A keeper's clocks; the library's is so many ticks ahead.
pub(super) fn keeper_now(now: Ticks, ahead: Ticks) -> Now {
    Now { elapsed: TICK * u32::from(now + ahead), boot: TICK * u32::from(now) }
}

/// A guest's clocks. The first guest's are slower than the keeper's by all that drift allows, and
/// each began at another time.
pub(super) fn guest_now(now: Ticks, guest: usize) -> Now {
    let offset = Duration::from_secs(1_000 * (guest as u64 + 1));
    let elapsed = TICK * u32::from(now);
    let elapsed = if guest == 0 { elapsed * 100 / 101 } else { elapsed };
    Now { elapsed: offset + elapsed, boot: offset + elapsed }
}
