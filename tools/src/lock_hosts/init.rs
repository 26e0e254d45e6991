//! `init`.

use std::collections::BTreeMap;
use std::time::Duration;

use bakery_lock::Consistency;
use bakery_lock::schema::{self, CreateOptions, Created, Replication};
use clap::Args;
use scylla::client::session::Session;

use super::init_masters;
use crate::connect::{ConnectOptions, Database};
use crate::failure::Failure;
use crate::options;
use crate::outage::explained;
use crate::output;

/// Create the keyspace and the tables where they are missing, and record the settings of the lock
/// table
///
/// The settings are --consistency and --max-clock-skew: clients that use another consistency are
/// refused. Matching objects are left unchanged, so `init` can be run again. If an object exists
/// but differs, or the keyspace has a lock table of another name, nothing is changed. Waits until
/// all nodes agree on the tables.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts init --replication 3\n  \
                        lock-hosts init --replication dc1=3,dc2=3 --max-ttl 60s\n  \
                        lock-hosts --consistency local-quorum:dc1 init --replication dc1=3,dc2=1")]
pub(super) struct InitOptions {
    /// How many copies of each row a new keyspace keeps: N in each data centre, or a number for
    /// each data centre that is named. With 3, locks work while one node is down
    #[arg(long, value_name = "N|DC=N,...", value_parser = replication)]
    replication: Option<Replication>,

    /// The longest TTL that clients may use: whole seconds, 30s to 600s. Dead rows are kept for
    /// twice as long
    #[arg(long, value_name = "TIME", value_parser = options::duration, default_value = "120s")]
    max_ttl: Duration,

    /// How far the clocks of the nodes may differ from each other, and the clocks of clients from
    /// them: whole milliseconds, up to 1499ms. It shortens each lease, and clients are refused
    /// where clocks differ by more. It can't be smaller than what can be measured here
    #[arg(long, value_name = "TIME", value_parser = options::duration, default_value = "1s")]
    max_clock_skew: Duration,

    /// Create a lock table in a keyspace that has one of another name. Clients of different lock
    /// tables do not exclude each other
    #[arg(long)]
    another_lock_table: bool,

    /// With --masters: these servers were not used for this lock table in the last minutes, so they
    /// can be used at once. If they were, two clients may hold one lock
    #[arg(long)]
    fresh: bool,
}

/// The keyspace has lock tables, but not the one that is asked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "keyspace {keyspace:?} has lock table {}, and its clients would not exclude those of lock \
     table {wanted:?}; nothing was changed: use --lock-table {}, or the variable \
     BAKERY_LOCK_LOCK_TABLE, or give --another-lock-table to create {wanted:?} too",
    others.iter().map(|other| format!("{other:?}")).collect::<Vec<_>>().join(", "),
    others[0]
)]
struct OtherTables {
    keyspace: String,
    wanted: String,
    others: Vec<String>,
}

/// Creates keyspace and tables, and records settings.
pub(super) async fn init(
    connection: &ConnectOptions,
    options: &InitOptions,
) -> Result<(), Failure> {
    let ConnectOptions { keyspace, lock_table, consistency, .. } = connection;
    let mut create = CreateOptions::new()
        .lock_table(lock_table)
        .max_ttl(options.max_ttl)
        .consistency(consistency.clone())
        .max_clock_skew(options.max_clock_skew);
    if let Some(replication) = &options.replication {
        create = create.replication(replication.clone());
    }
    let of_clusters = options.replication.is_some() || options.another_lock_table;
    if connection.is_on_masters() && of_clusters {
        return Err(Failure::Usage("--replication and --another-lock-table are for nodes".into()));
    }
    if options.fresh && !connection.is_on_masters() {
        return Err(Failure::Usage("--fresh is for masters".into()));
    }
    let database = connection.connect().await?;
    let session = match &database {
        Database::Cassandra(session) => session,
        Database::Masters(masters) => {
            let InitOptions { max_ttl, max_clock_skew, fresh, .. } = *options;
            let settings = (max_ttl, max_clock_skew, fresh);
            return Box::pin(init_masters::init(connection, masters, settings)).await;
        }
    };
    let create = Box::pin(async {
        if !options.another_lock_table {
            refuse_another(session, keyspace, lock_table).await?;
        }
        Ok(schema::create(session, keyspace, &create).await?)
    });
    let created = explained(&database, connection, create).await?;
    let mut text = made(keyspace, &created);
    if created.settings {
        let skew = options.max_clock_skew;
        text.push_str(&recorded(keyspace, lock_table, consistency, skew));
    }
    text.push_str(&format!("keyspace {keyspace} is ready for locks; now run `lock-hosts add`\n"));
    output::print(&text)
}

/// Refuses a lock table that would be used besides others.
async fn refuse_another(session: &Session, keyspace: &str, wanted: &str) -> Result<(), Failure> {
    let others = schema::lock_tables(session, keyspace).await?;
    if others.is_empty() || others.iter().any(|other| other == wanted) {
        return Ok(());
    }
    let (keyspace, wanted) = (keyspace.to_owned(), wanted.to_owned());
    Err(Failure::No(Box::new(OtherTables { keyspace, wanted, others })))
}

fn made(keyspace: &str, created: &Created) -> String {
    let mut text = String::new();
    if created.keyspace {
        text.push_str(&format!("made keyspace {keyspace}\n"));
    }
    for table in &created.tables {
        text.push_str(&format!("made table {keyspace}.{table}\n"));
    }
    for column in &created.columns {
        text.push_str(&format!("added column {keyspace}.{column}; now build clients again\n"));
    }
    text
}

fn recorded(keyspace: &str, lock_table: &str, consistency: &Consistency, skew: Duration) -> String {
    format!("recorded for {keyspace}.{lock_table}: {consistency}, max_clock_skew {skew:?}\n")
}

fn replication(text: &str) -> Result<Replication, String> {
    const FORMS: &str = "use a number, or one for each data centre: 3, or dc1=3,dc2=3";
    if let Ok(factor) = text.parse() {
        return Ok(Replication::Factor(factor));
    }
    let mut factors = BTreeMap::new();
    for part in text.split(',') {
        let (datacenter, factor) = part.split_once('=').ok_or(FORMS)?;
        let factor = factor.parse().map_err(|_| FORMS)?;
        if datacenter.is_empty() {
            return Err(FORMS.to_owned());
        }
        if factors.insert(datacenter.to_owned(), factor).is_some() {
            return Err(format!("data centre {datacenter} is named twice"));
        }
    }
    Ok(Replication::PerDatacenter(factors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replication_is_for_all_or_for_each_data_centre() {
        assert_eq!(replication("3"), Ok(Replication::Factor(3)));
        let factors = [("dc1".to_owned(), 3), ("dc2".to_owned(), 2)];
        let expected = Replication::PerDatacenter(factors.into());
        assert_eq!(replication("dc1=3,dc2=2"), Ok(expected));
        for text in ["", "three", "-1", "dc1=", "=3", "dc1:3", "dc1=3,", "dc1=3,dc1=3"] {
            assert!(replication(text).is_err(), "{text}");
        }
    }
}
