//! `remove --inactive-for`.

use std::time::{Duration, Instant};

use bakery_lock::hosts::{Host, HostRegistry};

use super::hosts::{RemoveOptions, as_json, removed_line};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;

/// How often the progress is printed.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);

/// Removes the hosts that were not seen for a time.
pub(super) async fn remove_inactive(
    registry: &HostRegistry,
    options: &RemoveOptions,
    time: Duration,
) -> Result<(), Failure> {
    let inactive = registry.inactive_for(time).await?;
    if options.dry_run {
        return print_hosts(options, &inactive, |host| {
            format!("would remove {}\n", described(host))
        });
    }
    if !options.yes && !inactive.is_empty() {
        let hosts = inactive.len();
        let without_terminal = format!(
            "{hosts} hosts would be removed: add --yes to remove them, or --dry-run to see which"
        );
        let question = format!("remove {hosts} hosts that were not seen?");
        confirm(&question, without_terminal, "nothing was removed").await?;
    }
    let mut removed = Vec::new();
    let result = remove_each(registry, options, time, &inactive, &mut removed).await;
    if options.json {
        // Also if the removal ended early: these hosts are removed.
        print_hosts(options, &removed, |_| String::new())?;
    } else if inactive.is_empty() {
        output::print("no host to remove: all were seen or added since\n")?;
    }
    result
}

async fn remove_each(
    registry: &HostRegistry,
    options: &RemoveOptions,
    time: Duration,
    inactive: &[Host],
    removed: &mut Vec<Host>,
) -> Result<(), Failure> {
    let mut last_note = Instant::now();
    for (done, host) in inactive.iter().enumerate() {
        if last_note.elapsed() >= PROGRESS_PAUSE {
            last_note = Instant::now();
            output::note(&format!("{done} of {} hosts are done", inactive.len()));
        }
        match registry.remove_inactive(host.name(), time).await? {
            Some(host) => {
                if !options.json {
                    output::print(&removed_line(&host))?;
                }
                removed.push(host);
            }
            None => output::warn(&format!(
                "host {} was seen or removed meanwhile, and is left unchanged",
                host.name()
            )),
        }
    }
    Ok(())
}

/// Prints hosts, as JSON or a line for each.
fn print_hosts(
    options: &RemoveOptions,
    hosts: &[Host],
    line: impl Fn(&Host) -> String,
) -> Result<(), Failure> {
    if options.json {
        let hosts: Vec<_> = hosts.iter().map(as_json).collect();
        return output::print_json(&hosts.into());
    }
    if hosts.is_empty() {
        return output::print("no host to remove: all were seen or added since\n");
    }
    output::print(&hosts.iter().map(line).collect::<String>())
}

fn described(host: &Host) -> String {
    let seen = match host.seen_at() {
        Some(seen_at) => format!("last seen {}", output::time(seen_at)),
        None => format!("never seen, added {}", output::time(host.added_at())),
    };
    format!("host {} with number {}: {seen}", host.name(), host.number())
}
