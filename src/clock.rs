//! The one clock that tasks, guards and store read (design section 5).

mod tokio;

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

pub(crate) use self::tokio::TokioClock;

/// How long a client sleeps at most before it reads the clock again, however far the next deadline
/// is: timers stop while the machine is suspended, the clock does not (design section 2).
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A source of time.
pub(crate) trait Clock: Debug + Send + Sync {
    /// Time elapsed since an origin that the clock chose. It never goes back.
    fn elapsed(&self) -> Duration;

    /// Time since the same origin by the boot-time clock alone. It never jumps; it may stand still
    /// while a virtual machine is halted.
    fn since_boot(&self) -> Duration;

    /// Microseconds since the Unix epoch. It may step.
    fn unix_micros(&self) -> i64;

    /// All three.
    fn now(&self) -> Moment {
        let (elapsed, since_boot) = (self.elapsed(), self.since_boot());
        Moment { elapsed, since_boot, unix_micros: self.unix_micros() }
    }
}

/// A moment on all clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The elapsed time.
    pub(crate) elapsed: Duration,
    /// The boot-time clock.
    pub(crate) since_boot: Duration,
    /// The wall clock.
    pub(crate) unix_micros: i64,
}

/// The system's clocks.
///
/// Elapsed time is the boot-time clock's, plus the largest lead of the wall clock over it. Unlike
/// [`std::time::Instant`], the boot-time clock runs while the machine is suspended, and a wall
/// clock that was set forward may be right. Erring on the long side is safe: it shortens leases.
#[derive(Debug)]
pub(crate) struct SystemClock {
    boot_origin: Duration,
    wall_origin: Duration,
    lead: Lead,
}

impl SystemClock {
    /// A clock whose origin is now.
    pub(crate) fn new() -> Self {
        SystemClock {
            boot_origin: read(BOOT_TIME),
            wall_origin: read(ClockId::Realtime),
            lead: Lead::default(),
        }
    }
}

impl Clock for SystemClock {
    fn elapsed(&self) -> Duration {
        self.now().elapsed
    }

    fn since_boot(&self) -> Duration {
        read(BOOT_TIME).saturating_sub(self.boot_origin)
    }

    fn unix_micros(&self) -> i64 {
        unix_micros(read(ClockId::Realtime))
    }

    fn now(&self) -> Moment {
        let wall = read(ClockId::Realtime);
        let since_boot = self.since_boot();
        let elapsed = self.lead.elapsed(since_boot, wall.saturating_sub(self.wall_origin));
        Moment { elapsed, since_boot, unix_micros: unix_micros(wall) }
    }
}

fn unix_micros(wall: Duration) -> i64 {
    let micros = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
    #[cfg(feature = "test-util")]
    let micros = micros.saturating_add(WALL_CLOCK_ERROR.load(Ordering::Relaxed));
    micros
}

/// The largest lead of the wall clock over the boot-time clock, in nanoseconds.
///
/// It is kept when the wall clock is set back again. Otherwise elapsed time would go back, which
/// revives leases, or stand still until the boot-time clock catches up, which prolongs them.
#[derive(Debug, Default)]
pub(crate) struct Lead(AtomicU64);

impl Lead {
    /// The elapsed time by the two clocks.
    pub(crate) fn elapsed(&self, boot: Duration, wall: Duration) -> Duration {
        let lead = u64::try_from(wall.saturating_sub(boot).as_nanos()).unwrap_or(u64::MAX);
        let before = self.0.fetch_max(lead, Ordering::Relaxed);
        boot.saturating_add(Duration::from_nanos(lead.max(before)))
    }
}

/// How far the wall clock of this process is off, in µs.
#[cfg(feature = "test-util")]
static WALL_CLOCK_ERROR: AtomicI64 = AtomicI64::new(0);

/// Sets by how many µs the wall clock of this process is off from now on, for tests with clients
/// whose clocks differ.
#[cfg(feature = "test-util")]
pub fn set_wall_clock_error(micros: i64) {
    WALL_CLOCK_ERROR.store(micros, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
const BOOT_TIME: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock is the closest one; the wall clock covers a suspended machine.
#[cfg(not(target_os = "linux"))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let nanos = u32::try_from(tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// An upper bound of the wall clock: its time when it was last found to agree with the clocks of
/// the nodes, advanced by the boot-time clock. A wall clock set ahead since then is not trusted
/// until the next comparison.
#[derive(Debug)]
pub(crate) struct WallClockBound(Mutex<Compared>);

/// A comparison with the clocks of the nodes.
#[derive(Clone, Copy, Debug)]
struct Compared {
    since_boot: Duration,
    unix_micros: i64,
}

impl WallClockBound {
    /// A bound for a clock that was just found to agree.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        WallClockBound(Mutex::new(Compared::now(clock)))
    }

    /// The clock was just found to agree.
    pub(crate) fn agrees(&self, clock: &dyn Clock) {
        *self.compared() = Compared::now(clock);
    }

    /// The latest time that the wall clock can show at this moment of the boot-time clock, in µs
    /// since the Unix epoch, if it may be off by `max_clock_skew`.
    pub(crate) fn at_most(&self, since_boot: Duration, max_clock_skew: Duration) -> i64 {
        let compared = *self.compared();
        let passed = since_boot.saturating_sub(compared.since_boot);
        let passed = passed.saturating_add(max_clock_skew);
        let passed = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
        compared.unix_micros.saturating_add(passed)
    }

    fn compared(&self) -> MutexGuard<'_, Compared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Compared {
    fn now(clock: &dyn Clock) -> Self {
        Compared { since_boot: clock.since_boot(), unix_micros: clock.unix_micros() }
    }
}

/// Draws stamps: write timestamps in µs, strictly increasing within a client whatever the time does
/// by which they are drawn (design section 2).
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    last: AtomicI64,
}

impl Stamps {
    /// A stamp above all earlier ones: the time by the wall clock, or one above the last stamp.
    #[cfg(any(test, feature = "peers"))]
    pub(crate) fn draw(&self, clock: &dyn Clock) -> i64 {
        self.draw_at(clock.unix_micros())
    }

    /// A stamp above all earlier ones: this time, in µs, or one above the last stamp.
    pub(crate) fn draw_at(&self, now: i64) -> i64 {
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

        fn since_boot(&self) -> Duration {
            Duration::ZERO
        }

        fn unix_micros(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn clocks_of_the_system_go_on() {
        const SLEPT: Duration = Duration::from_millis(2);
        let clock = SystemClock::new();
        let before = clock.now();
        std::thread::sleep(SLEPT);
        let later = clock.now();
        assert!(later.elapsed >= before.elapsed + SLEPT, "{later:?}");
        assert!(later.since_boot >= before.since_boot + SLEPT, "{later:?}");
        assert!(clock.elapsed() >= later.elapsed && clock.since_boot() >= later.since_boot);
    }

    #[test]
    fn wall_clock_is_bounded_by_when_it_was_last_compared() {
        let wall = Wall(AtomicI64::new(1_000));
        let (bound, skew) = (WallClockBound::new(&wall), Duration::from_micros(50));
        assert_eq!(bound.at_most(Duration::ZERO, skew), 1_050);
        wall.0.store(9_000, Ordering::Relaxed);
        assert_eq!(bound.at_most(Duration::ZERO, skew), 1_050, "it was set ahead");
        bound.agrees(&wall);
        assert_eq!(bound.at_most(Duration::ZERO, skew), 9_050);
        assert_eq!(bound.at_most(Duration::ZERO, Duration::MAX), i64::MAX);
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
    fn elapsed_time_neither_goes_back_nor_stands_still() {
        const fn s(seconds: u64) -> Duration {
            Duration::from_secs(seconds)
        }
        let lead = Lead::default();
        // The wall clock is set forward by an hour, back, and a little behind.
        for (boot, wall, elapsed) in
            [(10, 10, 10), (11, 3_611, 3_611), (12, 12, 3_612), (20, 15, 3_620)]
        {
            assert_eq!(lead.elapsed(s(boot), s(wall)), s(elapsed), "{boot} s after the origin");
        }
    }
}
