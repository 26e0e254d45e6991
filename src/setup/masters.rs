//! Makes Redis or Valkey servers the masters of a lock table, and checks them.
//!
//! The tool `lock-hosts` does the same from a shell, with `--masters`.

mod error;

use std::sync::Arc;
use std::time::Duration;

pub use self::error::MastersError;
use super::schema::{
    LOCK_TABLE_DEFAULT, MAX_TTL_DEFAULT, Report, check_max_clock_skew, check_max_ttl,
};
use crate::driver::clock_skew::{self, ClockDifference, Clocks};
use crate::finding::Finding;
use crate::options::MAX_CLOCK_SKEW;
use crate::store::{Initialised, MasterStatus, Masters, MastersSettings, MastersStore, Wanted};

impl Masters {
    /// Connects to servers, each given as a URL such as `redis://:password@host:6379`; three or
    /// five, in any order. Waits until each has answered or failed, 3 s at most. A server that is
    /// not reached is tried again in the background.
    ///
    /// The connections belong to the current runtime. TLS is not supported: use a private network
    /// or a tunnel.
    ///
    /// # Errors
    ///
    /// [`MastersError::Address`] and [`MastersError::Count`]. Nothing was sent then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time and I/O enabled.
    pub async fn connect<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, MastersError> {
        Ok(Self::connected(addresses, false).await?)
    }

    /// The same for servers that have replicas. A replica may lack what its master acknowledged,
    /// so it must never be promoted in its place, by Sentinel or by hand.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Panics
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_despite_replicas<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, MastersError> {
        Ok(Self::connected(addresses, true).await?)
    }
}

/// How to create a lock table on masters.
///
/// ```
/// use std::time::Duration;
/// use bakery_lock::masters::InitOptions;
///
/// let options = InitOptions::new().max_ttl(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitOptions {
    lock_table: String,
    max_ttl: Duration,
    max_clock_skew: Duration,
    fresh: bool,
}

impl InitOptions {
    /// The defaults: the table is `lock_table`, the longest TTL is 120 s, and clocks differ by a
    /// second at most.
    #[must_use]
    pub fn new() -> Self {
        InitOptions {
            lock_table: LOCK_TABLE_DEFAULT.to_owned(),
            max_ttl: MAX_TTL_DEFAULT,
            max_clock_skew: MAX_CLOCK_SKEW,
            fresh: false,
        }
    }

    /// The name of the lock table.
    #[must_use]
    pub fn lock_table(mut self, name: impl Into<String>) -> Self {
        self.lock_table = name.into();
        self
    }

    /// The longest TTL that clients may use: whole seconds, 30 to 600 s. It is recorded. A master
    /// that loses its data takes no part for this long and some 16 s more, so a short one is of
    /// advantage where data does not survive a restart.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// How far clocks may differ, between masters and between clients and masters: whole
    /// milliseconds, 1 to 1499. 1 s by default. It is recorded; clients shorten their leases by it,
    /// and are refused if clocks differ by more.
    #[must_use]
    pub fn max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.max_clock_skew = max_clock_skew;
        self
    }

    /// Whether no client has used these servers for this lock table in the last minutes, so that
    /// they can be used at once; `false` by default. A server without data may have lost that of
    /// locks which are held: with `true`, two clients may hold one of them.
    #[must_use]
    pub fn fresh(mut self, fresh: bool) -> Self {
        self.fresh = fresh;
        self
    }
}

impl Default for InitOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What [`init`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Initialized {
    /// Whether the lock table is new.
    pub is_new: bool,
    /// The servers that were made masters of it, because they had no data of it.
    pub joined: Vec<String>,
    /// After what time they take part: the longest TTL, 15 s for writes that may still be under
    /// way, and the clock skew; zero with [`InitOptions::fresh`].
    pub wait: Duration,
}

/// Creates a lock table on masters; if it is there, gives those servers a place again that have
/// lost their data. Clients do that by themselves where a majority has its data.
///
/// Run it from one place at a time.
///
/// # Errors
///
/// [`MastersError::Setting`] and [`MastersError::Name`]; [`MastersError::Unfit`] if a server does
/// not answer or can't be used, [`MastersError::Differs`] if the table has other settings, and
/// [`MastersError::OtherCount`]. [`MastersError::Interrupted`] may leave some servers with a record
/// and others without; repeating the call completes it.
///
/// # Cancel safety
///
/// As for [`MastersError::Interrupted`].
///
/// # Example
///
/// ```no_run
/// # async fn example(masters: bakery_lock::Masters) -> Result<(), bakery_lock::MastersError> {
/// use bakery_lock::masters::{self, InitOptions};
///
/// let initialized = masters::init(&masters, &InitOptions::new().fresh(true)).await?;
/// println!("new masters: {:?}", initialized.joined);
/// # Ok(())
/// # }
/// ```
pub async fn init(masters: &Masters, options: &InitOptions) -> Result<Initialized, MastersError> {
    let &InitOptions { max_ttl, max_clock_skew, fresh: is_fresh, .. } = options;
    check_max_ttl(max_ttl).map_err(|error| MastersError::Setting(error.to_string()))?;
    check_max_clock_skew(max_clock_skew)
        .map_err(|error| MastersError::Setting(error.to_string()))?;
    let settings = MastersSettings { max_ttl, max_clock_skew };
    let initialised = masters.initialise(&options.lock_table, Wanted { settings, is_fresh });
    let Initialised { is_new, joined, wait } = initialised.await?;
    Ok(Initialized { is_new, joined, wait })
}

/// Checks all that locks rely on: that a majority of the masters takes part, what each says about
/// itself, and the clocks. Changes nothing. Each warning and error says what to do.
///
/// # Errors
///
/// [`MastersError::Name`], [`MastersError::NotInitialised`], [`MastersError::OtherCount`], and
/// [`MastersError::Unfit`] when no majority answers. Other problems are in the report.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn check(masters: &Masters, lock_table: &str) -> Result<Report, MastersError> {
    let store = masters.open_once(lock_table).await?;
    let mut findings = findings(&store.statuses().await, store.settings());
    let max_clock_skew = store.settings().max_clock_skew;
    findings.extend(clock_skew::clocks(&store.clocks().await, max_clock_skew));
    Ok(Report { findings })
}

/// Findings about the masters: each, whether there is a majority, and the settings.
fn findings(statuses: &[(String, MasterStatus)], settings: MastersSettings) -> Vec<Finding> {
    const ADVICE: &str = "locks need a majority of the masters: see to this one";
    let finding = |(address, status): &(String, MasterStatus)| {
        let subject = format!("master {address}");
        match status {
            MasterStatus::TakesPart { number, keeps_data: true } => {
                Finding::ok(subject, format!("is number {number}, and keeps its data in a restart"))
            }
            MasterStatus::TakesPart { number, keeps_data: false } => {
                let over = settings.over_after();
                let found = format!("is number {number}; after a restart, out for {over:?}");
                Finding::ok(subject, found)
            }
            MasterStatus::Waits(left) => {
                let found = format!("it lost its data, and takes part in {left:?}");
                Finding::warning(subject, found, "wait for that")
            }
            MasterStatus::Silent => Finding::warning(subject, "it does not answer", ADVICE),
            MasterStatus::Out(why) => Finding::warning(subject, why.clone(), ADVICE),
        }
    };
    let mut findings: Vec<_> = statuses.iter().map(finding).collect();
    let takes_part =
        |(_, status): &&(String, MasterStatus)| matches!(status, MasterStatus::TakesPart { .. });
    let (taking, all) = (statuses.iter().filter(takes_part).count(), statuses.len());
    let (found, needed) = (format!("{taking} of {all} masters take part"), all / 2 + 1);
    findings.push(if taking >= needed {
        Finding::ok("majority", found)
    } else {
        let advice = format!("no lock is granted until {needed} do: see what is said of each");
        Finding::error("majority", found, advice)
    });
    let MastersSettings { max_ttl, max_clock_skew } = settings;
    let found = format!("max_ttl {max_ttl:?} and a max_clock_skew of {max_clock_skew:?}");
    findings.push(Finding::ok("settings", found));
    findings
}

/// Opens a lock table for clients, and refuses it if clocks certainly differ by too much.
pub(crate) async fn open(
    masters: &Masters,
    lock_table: &str,
) -> Result<Arc<MastersStore>, MastersError> {
    let store = masters.open(lock_table).await?;
    match Clocks::judge(&store.clocks().await, store.settings().max_clock_skew) {
        Clocks::Differ(ClockDifference { problems, .. }) => Err(MastersError::Unfit { problems }),
        Clocks::Agree | Clocks::Unclear => Ok(store),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_checked_before_anything_is_sent() {
        let refusal = async |addresses: &[&str]| {
            let error = Masters::connect(addresses.iter().copied()).await;
            error.expect_err("they can't be used").to_string()
        };
        let text = refusal(&["redis://a:1", "nonsense://:secret@b"]).await;
        assert!(text.starts_with("master 2 has no address") && !text.contains("secret"), "{text}");
        let text = refusal(&["rediss://:secret@a:1"]).await;
        assert!(text.starts_with("master 1") && !text.contains("secret"), "{text}");
        for count in [0, 2, 4, 11] {
            let text = refusal(&vec!["redis://127.0.0.1:1"; count]).await;
            assert!(text.contains("give 3 or 5"), "{text}");
        }
    }
}
