//! `watch`.

mod frame;
mod screen;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use bakery_lock::admin::HolderQueue;

use bakery_lock::{ContenderInfo, LockClient};
use clap::Args;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::frame::Picture;
use self::screen::{Event, Screen};
use super::show::{self, as_json, line};
use crate::failure::Failure;
use crate::options::{lock_name, timeout};
use crate::output;

/// After so long without an answer a picture is said to be old.
const SILENCE: Duration = Duration::from_secs(3);

/// Watch who holds a lock, and who waits for it
///
/// Shows what `show` shows, again and again: the holder, those that wait in the table, and those
/// that stand in the line of the client that holds it. Ends with q, Esc or Ctrl-C. Without a
/// terminal it prints what `show` prints, after each change.
///
/// Each look reads the whole object, once more while the lock is held, and then asks the client
/// that holds it. While the database does not answer, it says so and continues; it ends if it is
/// refused.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lockctl watch users::snap\n  lockctl watch users::snap \
                        --interval 5s\n  lockctl watch users::snap --json | jq -c .contenders[0]")]
pub(super) struct WatchOptions {
    /// What is locked
    #[arg(value_parser = lock_name)]
    name: String,

    /// The pause between two looks: 1, 1s, 500ms
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "1s")]
    interval: Duration,

    /// Print JSON after each change, an object in a line, as `show --json` has it
    #[arg(long)]
    json: bool,
}

/// Watches one lock until the user ends it.
pub(super) async fn watch(client: &LockClient, options: &WatchOptions) -> Result<(), Failure> {
    if options.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return print_changes(client, options).await;
    }
    let (mut screen, mut last) = (Screen::open()?, None);
    loop {
        let Some(picture) = next(client, &options.name, &mut screen, last.as_mut()).await? else {
            return Ok(());
        };
        screen.draw(&picture)?;
        let picture = last.insert(picture);
        let pause = sleep(options.interval);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                event = screen.event() => match event {
                    Event::Quit => return Ok(()),
                    Event::Resized => screen.draw(picture)?,
                },
            }
        }
    }
}

/// The next picture; `None` if the user has enough. Meanwhile the last one is said to be old once
/// the look takes long.
async fn next(
    client: &LockClient,
    name: &str,
    screen: &mut Screen,
    mut last: Option<&mut Picture>,
) -> Result<Option<Picture>, Failure> {
    let mut looking = pin!(look(client, name));
    let mut silence = pin!(sleep(SILENCE));
    loop {
        tokio::select! {
            seen = &mut looking => return Ok(Some(match seen {
                Ok(seen) => Picture::of(name, &seen, SystemTime::now()),
                Err(failure) => Picture::trouble(name, &failure.passing()?),
            })),
            () = &mut silence, if last.is_some() => {
                if let Some(picture) = last.take() {
                    picture.note_silence(SILENCE);
                    screen.draw(picture)?;
                }
            }
            () = screen.quit() => return Ok(None),
        }
    }
}

/// What a look shows.
struct Seen {
    contenders: Vec<ContenderInfo>,
    line: Option<HolderQueue>,
}

async fn look(client: &LockClient, name: &str) -> Result<Seen, Failure> {
    let contenders = client.contenders(name).await?;
    let line = line(client, name, &contenders).await;
    Ok(Seen { contenders, line })
}

/// Prints what `show` prints, after each change.
async fn print_changes(client: &LockClient, options: &WatchOptions) -> Result<(), Failure> {
    let mut last = None;
    loop {
        match look(client, &options.name).await {
            Ok(Seen { contenders, line }) => {
                let whole = as_json(&options.name, &contenders, line.as_ref());
                let now = Some(without_times(&whole));
                if now != last {
                    last = now;
                    if options.json {
                        output::print(&format!("{whole}\n"))?;
                    } else {
                        show::print(&options.name, &contenders, line.as_ref())?;
                    }
                }
            }
            Err(failure) => output::warn(&failure.passing()?),
        }
        sleep(options.interval).await;
    }
}

/// What must differ for a change: times pass by themselves, and renewals are none.
fn without_times(seen: &Value) -> Value {
    let mut seen = seen.clone();
    for contender in seen["contenders"].as_array_mut().into_iter().flatten() {
        let is_overdue = !contender["overdue_seconds"].is_null();
        contender["overdue_seconds"] = json!(is_overdue);
        contender["remaining_seconds"] = Value::Null;
        contender["renewed_at"] = Value::Null;
        contender["held_since"] = Value::Null;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_people_call_a_change_counts() {
        let seen = |state: &str, renewed: &str, overdue: Option<u8>| {
            let contender = json!({
                "state": state, "renewed_at": renewed, "overdue_seconds": overdue,
                "remaining_seconds": 7, "held_since": null,
            });
            without_times(&json!({ "name": "a", "contenders": [contender], "line": null }))
        };
        let before = seen("holding", "1", None);
        assert_eq!(seen("holding", "2", None), before);
        assert_ne!(seen("waiting", "1", None), before);
        assert_ne!(seen("holding", "1", Some(3)), before);
        assert_eq!(seen("holding", "1", Some(3)), seen("holding", "1", Some(4)));
    }
}
