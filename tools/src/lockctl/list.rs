//! `list`.

use bakery_lock::admin::{LockInUse, Locks};

use bakery_lock::{ContenderInfo, ContenderState, LockClient};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use super::contender::{self, warning};
use super::progress::progress_bar;
use crate::failure::Failure;
use crate::output::{self, visible};

/// List all locks in use
///
/// Reads the whole lock table, part by part and with pauses, and prints each lock as soon as it is
/// found: its holders, and how many wait. It also reads objects that were locked with a fencing
/// token within the last 30 days, so it takes a while on a large table. Progress goes to the
/// terminal.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lockctl list\n  lockctl list --prefix users:: --overdue\n  \
                        lockctl list --json | jq -r .name")]
pub(super) struct ListOptions {
    /// List only locks whose names begin with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,

    /// List only locks with a holder or waiter whose renewal is overdue: one that is dead or
    /// stopped, or does not reach the database
    #[arg(long)]
    overdue: bool,

    /// Print JSON, an object in a line for each lock, with `name` and `contenders` as `show --json`
    /// has them
    #[arg(long)]
    json: bool,
}

/// Lists all locks.
pub(super) async fn list(client: &LockClient, options: &ListOptions) -> Result<(), Failure> {
    let mut locks = client.locks();
    let bar = progress_bar("{bar:40} {percent}% read, {msg}");
    let mut found = 0_u64;
    while let Some(lock) = locks.try_next().await? {
        show_progress(&bar, &locks, found);
        if !options.wants(&lock) {
            continue;
        }
        found += 1;
        let text = if options.json { as_json(&lock) } else { as_text(&lock) };
        bar.suspend(|| output::print(&text))?;
    }
    bar.finish_and_clear();
    if found == 0 && !options.json {
        output::note("no such lock is in use");
    }
    Ok(())
}

impl ListOptions {
    fn wants(&self, lock: &LockInUse) -> bool {
        let is_overdue = || lock.contenders.iter().any(|contender| contender.overdue.is_some());
        lock.name.starts_with(&self.prefix) && (!self.overdue || is_overdue())
    }
}

fn show_progress(bar: &ProgressBar, locks: &Locks, found: u64) {
    let (read, parts) = locks.progress();
    bar.set_length(parts as u64);
    bar.set_position(read as u64);
    bar.set_message(format!("{found} locks"));
}

fn as_text(lock: &LockInUse) -> String {
    let (holders, others): (Vec<_>, Vec<_>) = lock
        .contenders
        .iter()
        .partition(|contender| contender.state == Some(ContenderState::Holding));
    let owner = |contender: &&ContenderInfo| visible(contender.owner.as_str());
    let holders = match holders.as_slice() {
        [] => "nothing holds it".to_owned(),
        holders => format!("held by {}", holders.iter().map(owner).collect::<Vec<_>>().join(", ")),
    };
    let waiting = match others.len() {
        0 => String::new(),
        waiting => format!(", {waiting} wait"),
    };
    let warnings = lock.contenders.iter().filter_map(warning);
    let warnings: String = warnings.map(|warning| format!("  warning: {warning}\n")).collect();
    format!("{}: {holders}{waiting}\n{warnings}", visible(&lock.name))
}

fn as_json(lock: &LockInUse) -> String {
    let contenders: Vec<_> = lock.contenders.iter().map(contender::as_json).collect();
    format!("{}\n", json!({ "name": lock.name, "contenders": contenders }))
}
