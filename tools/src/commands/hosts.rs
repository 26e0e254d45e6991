//! `add`, `remove` and `list`.

use std::fmt::Write;

use bakery_lock::hosts::{Host, HostRegistry, check_name, this_host};
use clap::Args;
use serde_json::json;

use super::Signals;
use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::output;

/// Register hosts, each with a number of its own
///
/// Prints a host's number once it is confirmed. A host that is registered already keeps its number,
/// and one that was removed gets its old number back.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts add\n  lock-hosts add web1 web2")]
pub(super) struct AddOptions {
    /// Hosts to register [default: this machine]
    #[arg(value_name = "NAME", value_parser = host_name)]
    names: Vec<String>,
}

/// Remove hosts from the registry
///
/// A removed host gets no new locks, one minute later at the latest; locks that it holds stay held.
/// Its number is never given to another host.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  lock-hosts remove web1 web2")]
pub(super) struct RemoveOptions {
    /// Hosts to remove
    #[arg(value_name = "NAME", value_parser = host_name, required = true)]
    names: Vec<String>,
}

/// List the registered hosts in the order of their names
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts list\n  lock-hosts list --all --json")]
pub(super) struct ListOptions {
    /// List hosts that were removed, too
    #[arg(long)]
    all: bool,

    /// Print JSON: an array of objects with `name`, `number`, `added_at` and `removed_at`
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
        [] => vec![host_name(&this_host()).map_err(|error| Failure::Usage(error.into()))?],
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
    with_registry(connection, signals, async |registry| {
        let mut unknown = Vec::new();
        for name in &options.names {
            match registry.remove(name).await? {
                Some(host) => {
                    let number = host.number();
                    output::print(&format!(
                        "host {name} is removed, its number {number} is kept\n"
                    ))?;
                }
                None => unknown.push(name.as_str()),
            }
        }
        match unknown.as_slice() {
            [] => Ok(()),
            names => {
                let names = names.join(", ");
                let answer = format!("never registered: {names}; `lock-hosts list` tells who is");
                Err(Failure::No(answer.into()))
            }
        }
    })
    .await
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
        let keyspace = &connection.keyspace;
        output::warn(&format!(
            "no host is registered in keyspace {keyspace}; see `lock-hosts add`"
        ));
        return Ok(());
    }
    output::print(&as_text(&hosts))
}

/// Opens the registry, works with it, and gives its lock back whatever happened.
async fn with_registry<T>(
    connection: &ConnectOptions,
    signals: &mut Signals,
    work: impl AsyncFnOnce(&HostRegistry) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let open = async {
        let session = connection.connect().await?;
        Ok(HostRegistry::new(session, &connection.keyspace).await?.timeout(connection.timeout))
    };
    let registry = signals.or(open).await?;
    let result = signals.or(work(&registry)).await;
    registry.close().await;
    result
}

fn host_name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// The text that the tool of `QCassandraLock` printed: scripts may read it.
fn as_text(hosts: &[Host]) -> String {
    let mut text = String::from("     ID  Host\n");
    for host in hosts {
        write!(text, "{:>7}  {}", host.number(), host.name()).expect("a string takes all text");
        if let Some(removed_at) = host.removed_at() {
            let removed_at = output::time(removed_at);
            write!(text, "  (removed {removed_at})").expect("a string takes all text");
        }
        text.push('\n');
    }
    text
}

fn as_json(host: &Host) -> serde_json::Value {
    json!({
        "name": host.name(),
        "number": host.number(),
        "added_at": output::time(host.added_at()),
        "removed_at": host.removed_at().map(output::time),
    })
}
