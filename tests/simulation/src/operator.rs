//! What a process does beside the work of its tasks: it makes others leave, and shuts down.

use bakery_lock::{ContenderInfo, LockClient};

use super::log::Shutdown;
use super::machine::Site;
use super::min_hold::stays_taken;
use super::worker::kind;

/// The name of the rows that ask a contender to leave. A contender that left before it saw its own
/// row leaves it to expire.
pub(crate) const REVOKED: &str = "revoked::";

/// Asks a holder or waiter of an object to leave.
pub(crate) async fn ask_to_leave(client: LockClient, site: Site, object: String, place: usize) {
    let all = contenders(&client, &site, &object).await;
    let Some(contender) = all.get(place % all.len().max(1)) else {
        return;
    };
    if let Err(error) = client.revoke(&object, contender, "it is asked to").await {
        site.failure(&object, format!("asking: {}", kind(&error)));
    }
}

/// Removes killed clients from an object, except those that may have a guest.
pub(crate) async fn remove_the_dead(client: LockClient, site: Site, object: String) {
    for contender in contenders(&client, &site, &object).await {
        if site.is_gone(&contender)
            && let Err(error) = client.revoke_by_force(&object, &contender, "it was killed").await
        {
            site.failure(&object, format!("removing: {}", kind(&error)));
        }
    }
}

/// Removes a holder or waiter of an object, although it may live: then it may hold together with
/// the next holder until it notices.
pub(crate) async fn remove_by_force(client: LockClient, site: Site, object: String, place: usize) {
    let all = contenders(&client, &site, &object).await;
    // Its own rows it deletes by itself.
    let others: Vec<_> = all.iter().filter(|contender| !site.is_self(contender)).collect();
    let Some(contender) = others.get(place % others.len().max(1)) else {
        return;
    };
    if let Err(error) = client.revoke_by_force(&object, contender, "it is removed").await {
        site.failure(&object, format!("removing: {}", kind(&error)));
    }
}

/// Shuts the client down, and looks whether anything is left once that is acknowledged.
pub(crate) async fn shut_down(client: LockClient, site: Site, objects: Vec<String>) {
    let asked = site.now();
    let shutdown = Shutdown { client: site.number, asked, done: None };
    let number = site.log().shutdowns.len();
    site.log().shutdowns.push(shutdown);
    if client.shutdown().await.is_err() {
        return;
    }
    let now = site.now();
    site.log().shutdowns[number].done = Some(now);
    // A clock that is set ahead by hours says that all rows have expired.
    if site.log().has_wrong_clocks {
        return;
    }
    let counts = |owner, name: &str| owner == site.number && name != REVOKED;
    let mut whole = site.log().not_truncated(&objects);
    // It may have been shut down before, and have left rows then.
    let client = site.number;
    let first = site.log().shutdowns.iter().find(|it| it.client == client).map(|it| it.asked);
    let first = first.unwrap_or(asked);
    whole.retain(|object| !stays_taken(&site.log(), client, object, first));
    site.log().note_rows(&site.cluster, &whole, now, counts);
}

async fn contenders(client: &LockClient, site: &Site, object: &str) -> Vec<ContenderInfo> {
    match client.contenders(object).await {
        Ok(all) => all,
        Err(error) => {
            site.failure(object, format!("looking: {}", kind(&error)));
            Vec::new()
        }
    }
}
