//! Whether a host is registered, in a finding.

use bakery_lock::admin::shell_operand;
use bakery_lock::hosts::RegistryError;
use bakery_lock::schema::{SchemaError, Severity};

use crate::connect::{ConnectOptions, Database};
use crate::denied::Denied;
use crate::finding::Line;
use crate::output;

/// Looks up the registration of the host.
pub(crate) async fn registration(
    database: &Database,
    connection: &ConnectOptions,
    host: &str,
) -> Line {
    let registered = async {
        let registry = database.registry(connection).await?;
        let registered = registry.get(host).await;
        registry.close().await;
        registered
    };
    let options = connection.registry_options();
    let add = format!("run `lock-hosts {options} add {}`", shell_operand(host));
    let error = |found: String, advice: String| (Severity::Error, found, Some(advice));
    let unread = "its registration can't be looked up";
    let (severity, found, advice) = match registered.await {
        Ok(Some(known)) if known.removed_at().is_none() => {
            (Severity::Ok, format!("registered with number {}", known.number()), None)
        }
        Ok(Some(_)) => error("it was removed".to_owned(), add),
        Ok(None) if connection.is_on_masters() => {
            (Severity::Ok, "registers itself with its first lock".to_owned(), None)
        }
        Ok(None) => error("not registered".to_owned(), add),
        Err(RegistryError::Schema(cause)) if !matches!(cause, SchemaError::Database(_)) => {
            error(format!("{unread}: {cause}"), "first make the tables as required".into())
        }
        Err(cause) => match Denied::cause_of(&cause) {
            Some(denied) => error(format!("{unread}: {}", denied.found()), denied.advice()),
            None => {
                let advice = "see the findings about nodes and quorum, and check again";
                error(format!("{unread}: {}", output::chain(&cause)), advice.to_owned())
            }
        },
    };
    Line { severity, subject: format!("host {host}"), found, advice }
}
