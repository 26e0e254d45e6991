//! `init`.

use std::collections::BTreeMap;
use std::time::Duration;

use bakery_lock::schema::{self, CreateOptions, Created, Replication};
use clap::Args;

use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::options;
use crate::output;

/// Make the keyspace and the tables, as far as they are missing
///
/// What is there as asked for stays as it is, so it can be run again. When something is there but
/// differs, nothing is changed. Waits until all nodes agree on the tables.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lock-hosts init --replication 3\n  \
                        lock-hosts init --replication dc1=3,dc2=3 --max-ttl 60s")]
pub(super) struct InitOptions {
    /// How many copies of each row a new keyspace keeps: so many in each data centre, or in each
    /// that is named. 3 let locks go on while one node is down
    #[arg(long, value_name = "N|DC=N,...", value_parser = replication)]
    replication: Option<Replication>,

    /// The longest TTL that clients may use: whole seconds, 30s to 600s. Dead rows are kept for
    /// twice as long
    #[arg(long, value_name = "TIME", value_parser = options::duration, default_value = "120s")]
    max_ttl: Duration,
}

/// Makes keyspace and tables.
pub(super) async fn init(
    connection: &ConnectOptions,
    options: &InitOptions,
) -> Result<(), Failure> {
    let ConnectOptions { keyspace, lock_table, .. } = connection;
    let mut create = CreateOptions::new().lock_table(lock_table).max_ttl(options.max_ttl);
    if let Some(replication) = &options.replication {
        create = create.replication(replication.clone());
    }
    let session = connection.connect().await?;
    let created = schema::create(&session, keyspace, &create).await?;
    output::print(&as_text(keyspace, &created))
}

fn as_text(keyspace: &str, created: &Created) -> String {
    let mut text = String::new();
    if created.keyspace {
        text.push_str(&format!("made keyspace {keyspace}\n"));
    }
    for table in &created.tables {
        text.push_str(&format!("made table {keyspace}.{table}\n"));
    }
    text.push_str(&format!("keyspace {keyspace} is ready for locks; now run `lock-hosts add`\n"));
    text
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
