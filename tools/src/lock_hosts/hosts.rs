//! `add`, `remove` and `list`.

use std::fmt::Write;
use std::time::Duration;

use bakery_lock::hosts::{Host, HostRegistry, check_name};
use clap::Args;
use serde_json::json;

use super::inactive::remove_inactive;
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::outage::explained;
use crate::signals::Signals;
use crate::{options, output};

/// How long to wait for the release of the registry's lock if the database does not answer.
const HOPELESS_CLOSE: Duration = Duration::from_millis(500);

/// Register hosts, each with a number of its own
///
/// Prints a host's number once it is confirmed. A host that is registered already keeps its number,
/// and one that was removed gets its old number back.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts add\n  lock-hosts add web1 web2")]
pub(super) struct AddOptions {
    /// Hosts to register [env: `BAKERY_LOCK_HOST`] [default: this machine]
    #[arg(value_name = "NAME", value_parser = host_name)]
    names: Vec<String>,
}

/// Remove hosts from the registry
///
/// A removed host gets no new locks, one minute later at the latest; locks that it holds stay held.
/// Its clients can't be built any more, not even where they register missing hosts by themselves,
/// until it is added again. Its number is never given to another host.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts remove web1 web2\n  \
                        lock-hosts remove --inactive-for 30d --dry-run\n  \
                        lock-hosts remove --inactive-for 30d --yes --json")]
pub(super) struct RemoveOptions {
    /// Hosts to remove
    #[arg(value_name = "NAME", value_parser = host_name, required_unless_present = "inactive_for")]
    names: Vec<String>,

    /// Remove all hosts of which no client was seen for this long: 30d, 48h, 4w; two days at least,
    /// because a client is seen once a day. A host that was never seen counts from when it was
    /// added. Clients of versions that don't write `seen_at`, and clients that may not write the
    /// registry, are not seen
    #[arg(
        long,
        value_name = "TIME",
        value_parser = options::inactive_for,
        conflicts_with = "names"
    )]
    pub(super) inactive_for: Option<Duration>,

    /// Show which hosts would be removed, and remove none
    #[arg(long, requires = "inactive_for", conflicts_with = "names")]
    pub(super) dry_run: bool,

    /// Don't ask before hosts that were not seen are removed; without a terminal, nothing is
    /// removed unless this is given
    #[arg(long, requires = "inactive_for", conflicts_with = "names")]
    pub(super) yes: bool,

    /// Print JSON: an array of the hosts that were removed, or would be, as `list --json` shows
    /// them
    #[arg(long)]
    pub(super) json: bool,
}

/// List the registered hosts in the order of their names
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts list\n  lock-hosts list --all --json")]
pub(super) struct ListOptions {
    /// List hosts that were removed, too
    #[arg(long)]
    all: bool,

    /// Print JSON: an array of objects with `name`, `number`, `added_at`, `removed_at` and
    /// `seen_at`: when a client of it was seen, to a day
    #[arg(long)]
    json: bool,
}

/// Registers hosts.
pub(super) async fn add(
    connection: &ConnectOptions,
    options: &AddOptions,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let names = match options.names.as_slice() {
        [] => {
            vec![host_name(&connection.host(None)).map_err(|error| Failure::Usage(error.into()))?]
        }
        names => names.to_vec(),
    };
    with_registry(connection, signals, async |registry| {
        for name in &names {
            let host = registry.add(name).await?;
            output::print(&format!("host {name} has number {}\n", host.number()))?;
        }
        Ok(())
    })
    .await
}

/// Removes hosts.
pub(super) async fn remove(
    connection: &ConnectOptions,
    options: &RemoveOptions,
    signals: &mut Signals,
) -> Result<(), Failure> {
    with_registry(connection, signals, async |registry| match options.inactive_for {
        Some(time) => remove_inactive(registry, options, time).await,
        None => remove_named(registry, options).await,
    })
    .await
}

async fn remove_named(registry: &HostRegistry, options: &RemoveOptions) -> Result<(), Failure> {
    let (mut removed, mut unknown) = (Vec::new(), Vec::new());
    for name in &options.names {
        match registry.remove(name).await? {
            Some(host) if options.json => removed.push(as_json(&host)),
            Some(host) => output::print(&removed_line(&host))?,
            None => unknown.push(name.as_str()),
        }
    }
    if options.json {
        output::print_json(&json!(removed))?;
    }
    match unknown.as_slice() {
        [] => Ok(()),
        names => {
            let names = names.join(", ");
            let answer =
                format!("never registered: {names}; `lock-hosts list` shows the registered hosts");
            Err(Failure::No(answer.into()))
        }
    }
}

/// The line for a removed host.
pub(super) fn removed_line(host: &Host) -> String {
    format!("host {} is removed, its number {} is kept\n", host.name(), host.number())
}

/// Lists hosts.
pub(super) async fn list(
    connection: &ConnectOptions,
    options: &ListOptions,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let hosts = with_registry(connection, signals, async |registry| Ok(registry.list().await?));
    let mut hosts = hosts.await?;
    hosts.retain(|host| options.all || host.removed_at().is_none());
    if options.json {
        let hosts: Vec<_> = hosts.iter().map(as_json).collect();
        return output::print_json(&json!(hosts));
    }
    if hosts.is_empty() {
        let place = if connection.is_on_masters() {
            "on these masters".to_owned()
        } else {
            format!("in keyspace {}", connection.keyspace)
        };
        output::warn(&format!("no host is registered {place}; see `lock-hosts add`"));
        return Ok(());
    }
    output::print(&as_text(&hosts))
}

/// Opens the registry, works with it, and releases its lock whatever the result.
async fn with_registry<T>(
    connection: &ConnectOptions,
    signals: &mut Signals,
    work: impl AsyncFnOnce(&HostRegistry) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let database = signals.or(connection.connect()).await?;
    let open = Box::pin(async {
        let registry = database.registry(connection).await?;
        Ok(registry.timeout(connection.timeout))
    });
    let registry = signals.or(explained(&database, connection, open)).await?;
    let result = signals.or(explained(&database, connection, Box::pin(work(&registry)))).await;
    let close = registry.close();
    if matches!(result, Err(Failure::Unreachable(_))) {
        // The release is unlikely to be acknowledged either, and the lock expires soon.
        let _ = tokio::time::timeout(HOPELESS_CLOSE, close).await;
    } else {
        close.await;
    }
    result
}

fn host_name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// The same text as from the tool of `QCassandraLock`: scripts may parse it.
fn as_text(hosts: &[Host]) -> String {
    let mut text = String::from("     ID  Host\n");
    for host in hosts {
        write!(text, "{:>7}  {}", host.number(), host.name())
            .expect("writing to a string can't fail");
        if let Some(removed_at) = host.removed_at() {
            let removed_at = output::time(removed_at);
            write!(text, "  (removed {removed_at})").expect("writing to a string can't fail");
        }
        text.push('\n');
    }
    text
}

/// A host as JSON.
pub(super) fn as_json(host: &Host) -> serde_json::Value {
    json!({
        "name": host.name(),
        "number": host.number(),
        "added_at": output::time(host.added_at()),
        "removed_at": host.removed_at().map(output::time),
        "seen_at": host.seen_at().map(output::time),
    })
}
