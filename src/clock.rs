//! The one clock that runner, guard and store read (design section 5).

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Where time comes from.
pub(crate) trait Clock: Debug + Send + Sync {
    /// Time elapsed since an origin that the clock chose. It never goes back.
    fn elapsed(&self) -> Duration;

    /// Microseconds since the Unix epoch. It may step.
    fn unix_micros(&self) -> i64;
}

/// The system's clocks.
///
/// Elapsed time is the larger of what the boot-time clock and the wall clock say: the boot-time
/// clock goes on while the machine is suspended, as [`std::time::Instant`] does not, and a wall
/// clock that was set forward may be right. Erring to the long side only shortens leases.
#[derive(Debug)]
pub(crate) struct SystemClock {
    boot_origin: Duration,
    wall_origin: Duration,
    /// The largest elapsed time told so far, in nanoseconds: a wall clock that is set back again
    /// must not revive a lease.
    latest: AtomicU64,
}

impl SystemClock {
    /// A clock whose origin is now.
    pub(crate) fn new() -> Self {
        SystemClock {
            boot_origin: read(BOOT_TIME),
            wall_origin: read(ClockId::Realtime),
            latest: AtomicU64::new(0),
        }
    }
}

impl Clock for SystemClock {
    fn elapsed(&self) -> Duration {
        let boot = read(BOOT_TIME).saturating_sub(self.boot_origin);
        let wall = read(ClockId::Realtime).saturating_sub(self.wall_origin);
        let elapsed = u64::try_from(boot.max(wall).as_nanos()).unwrap_or(u64::MAX);
        let latest = self.latest.fetch_max(elapsed, Ordering::Relaxed);
        Duration::from_nanos(elapsed.max(latest))
    }

    fn unix_micros(&self) -> i64 {
        let micros = i64::try_from(read(ClockId::Realtime).as_micros()).unwrap_or(i64::MAX);
        #[cfg(feature = "test-util")]
        let micros = micros.saturating_add(WALL_CLOCK_ERROR.load(Ordering::Relaxed));
        micros
    }
}

/// How far the wall clock of this process is off, in µs.
#[cfg(feature = "test-util")]
static WALL_CLOCK_ERROR: AtomicI64 = AtomicI64::new(0);

/// Lets the wall clock of this process be off by so many µs from now on, for tests with clients
/// whose clocks differ.
#[cfg(feature = "test-util")]
pub fn set_wall_clock_error(micros: i64) {
    WALL_CLOCK_ERROR.store(micros, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
const BOOT_TIME: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock is the nearest thing; the wall clock covers a suspended machine.
#[cfg(not(target_os = "linux"))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let nanos = u32::try_from(tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// Draws stamps: write timestamps in µs, strictly increasing within a client whatever its wall
/// clock does (design section 2).
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    last: AtomicI64,
}

impl Stamps {
    /// A stamp above all that were drawn before: the time, or one above the last stamp.
    pub(crate) fn draw(&self, clock: &dyn Clock) -> i64 {
        let now = clock.unix_micros();
        let next = |last: i64| Some(now.max(last + 1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let last = last.expect("the closure always gives a value");
        now.max(last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wall(AtomicI64);

    impl Clock for Wall {
        fn elapsed(&self) -> Duration {
            Duration::ZERO
        }

        fn unix_micros(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn stamps_grow_even_when_the_wall_clock_is_set_back() {
        let wall = Wall(AtomicI64::new(1_000));
        let stamps = Stamps::default();
        let drawn = [1_000, 1_000, 400, 2_000].map(|now| {
            wall.0.store(now, Ordering::Relaxed);
            stamps.draw(&wall)
        });
        assert_eq!(drawn, [1_000, 1_001, 1_002, 2_000]);
    }

    #[test]
    fn elapsed_time_never_goes_back() {
        let clock = SystemClock::new();
        let first = clock.elapsed();
        clock.latest.store(u64::MAX / 2, Ordering::Relaxed);
        let after_a_step = clock.elapsed();
        assert!(after_a_step > first);
        assert_eq!(clock.elapsed(), after_a_step, "the wall clock was set back");
    }
}
