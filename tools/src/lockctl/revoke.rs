//! `revoke`.

use bakery_lock::{ContenderInfo, ContenderState, LockClient};
use clap::Args;
use serde_json::json;

use super::contender::{self, seconds};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::options::lock_name;
use crate::output::{self, visible};

/// Ask a holder to give up a lock, or take it from a dead one
///
/// The holder finds the request at its next renewal, after a third of its TTL at the latest. Its
/// lease is not renewed any more, and the program is to finish. No other client is let in before
/// it has released the lock or its lease has ended, so this is safe. A waiter gives up its place in
/// the queue.
///
/// With --force its rows are deleted too, and the next client is let in at once. That is for
/// holders that are certainly dead: a living one may continue for a third of its TTL, and two hold
/// the lock meanwhile. A dead holder's rows expire by themselves.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lockctl revoke users::snap --why 'the import hangs'\n  \
                        lockctl revoke users::snap --client 0193 --why 'wrong host'\n  \
                        lockctl revoke users::snap --force --why 'db7 burned down' --yes")]
pub(super) struct RevokeOptions {
    /// What is locked
    #[arg(value_parser = lock_name)]
    name: String,

    /// The reason, for the client that loses the lock
    #[arg(long, value_name = "TEXT")]
    why: String,

    /// The holder or waiter to revoke, by its client's id or the beginning of it, as `show --json`
    /// has it [default: the holder]
    #[arg(long, value_name = "ID")]
    client: Option<String>,

    /// Delete its rows without waiting for it: two may hold the lock if it lives
    #[arg(long)]
    force: bool,

    /// Don't ask before rows are deleted; without a terminal, none is deleted unless this is given
    #[arg(long, requires = "force")]
    yes: bool,

    /// Print JSON: an object with `name`, `forced` and `revoked`, the client as `show --json` has
    /// it
    #[arg(long)]
    json: bool,
}

/// Revokes one contender.
pub(super) async fn revoke(client: &LockClient, options: &RevokeOptions) -> Result<(), Failure> {
    let RevokeOptions { name, why, force, yes, json, .. } = options;
    let contenders = client.contenders(name).await?;
    let contender = options.chosen(&contenders)?;
    let owner = visible(contender.owner.as_str());
    if *force && !yes {
        let question =
            format!("if {owner} lives, two may hold {} now; delete its rows?", visible(name));
        let without_terminal = "add --yes to delete the rows of a client that may live".to_owned();
        confirm(&question, without_terminal, "nothing was changed").await?;
    }
    if *force {
        client.revoke_by_force(name, contender, why).await?;
    } else {
        client.revoke(name, contender, why).await?;
    }
    if *json {
        let revoked = contender::as_json(contender);
        return output::print_json(&json!({
            "name": name,
            "forced": force,
            "revoked": revoked,
        }));
    }
    output::print(&if *force {
        format!("{owner} does not hold {} any more\n", visible(name))
    } else {
        let left = seconds(contender.remaining.unwrap_or_default());
        format!("{owner} is asked to give up {}; its lease ends in {left}\n", visible(name))
    })
}

impl RevokeOptions {
    /// The one contender that is meant.
    fn chosen<'a>(&self, contenders: &'a [ContenderInfo]) -> Result<&'a ContenderInfo, Failure> {
        let is_meant = |contender: &&ContenderInfo| match &self.client {
            Some(id) => contender.client.to_string().starts_with(&id.to_lowercase()),
            None => contender.state == Some(ContenderState::Holding),
        };
        let meant: Vec<_> = contenders.iter().filter(is_meant).collect();
        match (meant.as_slice(), &self.client) {
            ([one], _) => Ok(one),
            ([], None) => Err(self.no("no client holds it")),
            ([], Some(id)) => Err(self.no(&format!("no client {id} holds it or waits for it"))),
            (several, _) => {
                let ids: Vec<_> = several
                    .iter()
                    .map(|it| format!("{} ({})", it.client, visible(it.owner.as_str())))
                    .collect();
                Err(self.no(&format!("choose one with --client: {}", ids.join(", "))))
            }
        }
    }

    fn no(&self, why: &str) -> Failure {
        Failure::No(format!("lock {:?}: {why}; nothing was changed", self.name).into())
    }
}
