//! The clocks of keeper and guests.

use std::time::Duration;

use crate::core::turns::Now;

/// How many ticks passed.
pub(super) type Ticks = u8;

/// The shortest time that passes.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// A keeper's clocks; the library's is this many ticks ahead.
pub(super) fn keeper_now(now: Ticks, ahead: Ticks) -> Now {
    Now { elapsed: TICK * u32::from(now + ahead), boot: TICK * u32::from(now) }
}

/// How far a clock is set ahead, in ticks.
pub(super) const JUMP: Ticks = 2;

/// A guest's clocks; the library's is this many ticks ahead. The first guest's clocks are slower
/// than the keeper's by the whole drift allowance, and each guest's began at another time.
pub(super) fn guest_now(now: Ticks, guest: usize, ahead: Ticks) -> Now {
    let offset = Duration::from_secs(1_000 * (guest as u64 + 1));
    let boot = TICK * u32::from(now);
    let boot = offset + if guest == 0 { boot * 100 / 101 } else { boot };
    Now { elapsed: boot + TICK * u32::from(ahead), boot }
}
