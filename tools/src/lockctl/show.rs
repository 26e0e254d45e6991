//! `show`.

use std::time::{Duration, SystemTime};

use bakery_lock::admin::HolderQueue;

use bakery_lock::{ContenderInfo, ContenderState, LockClient, TurnUser};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::contender::{self, ago, seconds, warning};
use crate::failure::Failure;
use crate::options::lock_name;
use crate::output::{self, visible};

/// How long the client that holds the lock may take to say who uses it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Show who holds a lock, and who waits for it
///
/// Shows each holder and waiter in the table: since when, for how long its rows live if it does not
/// renew them, and whether its renewal is overdue. If the holder lets other clients take turns, it
/// is asked who uses the lock now and who stands in its line.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lockctl show users::snap\n  lockctl show users::snap --json")]
pub(super) struct ShowOptions {
    /// What is locked
    #[arg(value_parser = lock_name)]
    name: String,

    /// Print JSON: an object with `name`, `contenders`, each with `state` (holding or waiting),
    /// `mode`, `host`, `pid`, `label`, `note`, `since`, `renewed_at`, `remaining_seconds`,
    /// `overdue_seconds` and more, and `line`, null if the holder reports none: `keeper`, `user`,
    /// `waiting` and `first`
    #[arg(long)]
    json: bool,
}

/// Shows one lock.
pub(super) async fn show(client: &LockClient, options: &ShowOptions) -> Result<(), Failure> {
    let ShowOptions { name, json } = options;
    let contenders = client.contenders(name).await?;
    let line = line(client, name, &contenders).await;
    if *json {
        return output::print_json(&as_json(name, &contenders, line.as_ref()));
    }
    print(name, &contenders, line.as_ref())
}

/// Prints a lock as a table, and warnings of contenders that seem to be dead.
pub(super) fn print(
    name: &str,
    contenders: &[ContenderInfo],
    line: Option<&HolderQueue>,
) -> Result<(), Failure> {
    output::print(&as_text(name, contenders, line))?;
    contenders.iter().filter_map(warning).for_each(|warning| output::warn(&warning));
    Ok(())
}

/// A lock as JSON.
pub(super) fn as_json(
    name: &str,
    contenders: &[ContenderInfo],
    line: Option<&HolderQueue>,
) -> Value {
    let contenders: Vec<_> = contenders.iter().map(contender::as_json).collect();
    json!({ "name": name, "contenders": contenders, "line": line.map(line_as_json) })
}

/// A lock as a table, the notes of its contenders, and its line.
fn as_text(name: &str, contenders: &[ContenderInfo], line: Option<&HolderQueue>) -> String {
    if contenders.is_empty() {
        return format!("{} is free\n", visible(name));
    }
    let line = line.map(line_as_text).unwrap_or_default();
    let table = table(contenders, SystemTime::now()).to_string();
    let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
    let notes = contenders.iter().filter_map(|contender| {
        let owner = &contender.owner;
        owner.note().map(|note| format!("{}: {}\n", visible(owner.as_str()), visible(note)))
    });
    lines.chain(notes).collect::<String>() + &line
}

/// The line at the client that holds the lock, if it lets others take turns and answers.
pub(super) async fn line(
    client: &LockClient,
    name: &str,
    contenders: &[ContenderInfo],
) -> Option<HolderQueue> {
    let is_held =
        contenders.iter().any(|contender| contender.state == Some(ContenderState::Holding));
    if !is_held {
        return None;
    }
    timeout(ANSWER_TIMEOUT, client.queue(name)).await.ok()?.ok()
}

/// The columns of the table.
pub(super) const COLUMNS: [&str; 9] =
    ["STATE", "HOST", "PID", "LABEL", "MODE", "TICKET", "SINCE", "RENEWED", "EXPIRES"];

/// Whether the cells of a column are aligned as numbers.
pub(super) fn is_number(column: &str) -> bool {
    ["PID", "TICKET", "SINCE", "RENEWED", "EXPIRES"].contains(&column)
}

/// The cells of a contender.
pub(super) fn cells(contender: &ContenderInfo, now: SystemTime) -> [String; COLUMNS.len()] {
    let owner = &contender.owner;
    [
        contender::state(contender).to_owned(),
        visible(owner.host_name().unwrap_or(owner.as_str())),
        owner.pid().map(|pid| pid.to_string()).unwrap_or_default(),
        visible(owner.label().unwrap_or_default()),
        contender::mode(contender),
        contender.ticket.map(|ticket| ticket.to_string()).unwrap_or_default(),
        ago(contender.held_since.or_else(|| contender.since()), now),
        ago(contender.renewed_at, now),
        contender.remaining.map(seconds).unwrap_or_default(),
    ]
}

fn table(contenders: &[ContenderInfo], now: SystemTime) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(COLUMNS);
    for (column, name) in table.column_iter_mut().zip(COLUMNS) {
        column.set_padding((0, 2));
        if is_number(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for contender in contenders {
        table.add_row(cells(contender, now));
    }
    table
}

pub(super) fn line_as_text(line: &HolderQueue) -> String {
    let user = match &line.user {
        Some(user) if user.client == line.keeper.client => {
            format!("{} uses it now", visible(user.owner.as_str()))
        }
        Some(user) => format!("{} uses it now, in turn", visible(user.owner.as_str())),
        None if line.is_kept => "kept, idle".to_owned(),
        None => "it passes to the next one at this moment".to_owned(),
    };
    let keeper = visible(line.keeper.owner.as_str());
    let mut text = format!("{user}; {} wait in the line of {keeper}", line.waiting);
    let more = line.waiting.saturating_sub(line.first.len());
    for (index, user) in line.first.iter().enumerate() {
        text.push_str(if index == 0 { ": " } else { ", " });
        text.push_str(&visible(user.owner.as_str()));
    }
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    text.push('\n');
    text
}

fn line_as_json(line: &HolderQueue) -> Value {
    let HolderQueue { keeper, user, is_kept, waiting, first, .. } = line;
    let first: Vec<_> = first.iter().map(user_as_json).collect();
    json!({
        "keeper": user_as_json(keeper),
        "user": user.as_ref().map(user_as_json),
        "kept": is_kept,
        "waiting": waiting,
        "first": first,
    })
}

fn user_as_json(user: &TurnUser) -> Value {
    let TurnUser { client, owner, .. } = user;
    json!({
        "client": client.to_string(),
        "owner": owner.as_str(),
        "host": owner.host_name(),
        "pid": owner.pid(),
        "label": owner.label(),
    })
}
