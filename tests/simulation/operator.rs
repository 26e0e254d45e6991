//! What a process does beside the work of its tasks: it makes others leave, and shuts down.

use bakery_lock::{Contender, LockClient};

use super::log::Shutdown;
use super::machine::Site;
use super::worker::kind;

/// What the rows are called by which somebody is asked to leave. Who left before it saw its own one
/// leaves it to expire.
pub(crate) const REVOKED: &str = "revoked::";

/// Asks one of those to leave who hold an object or wait for it.
pub(crate) async fn ask_to_leave(client: LockClient, site: Site, object: String, place: usize) {
    let all = contenders(&client, &site, &object).await;
    let Some(whom) = all.get(place % all.len().max(1)) else {
        return;
    };
    if let Err(error) = client.revoke(&object, whom, "it is asked to").await {
        site.setback(&object, format!("asking: {}", kind(&error)));
    }
}

/// Removes those from an object who were killed.
pub(crate) async fn remove_the_dead(client: LockClient, site: Site, object: String) {
    for whom in contenders(&client, &site, &object).await {
        if site.is_dead(&whom)
            && let Err(error) = client.revoke_by_force(&object, &whom, "it was killed").await
        {
            site.setback(&object, format!("removing: {}", kind(&error)));
        }
    }
}

/// Removes one of those from an object who hold it or wait for it, although it may live: then it
/// may hold together with the next one until it notices.
pub(crate) async fn remove_by_force(client: LockClient, site: Site, object: String, place: usize) {
    let all = contenders(&client, &site, &object).await;
    // Its own rows it deletes by itself.
    let others: Vec<_> = all.iter().filter(|contender| !site.is_self(contender)).collect();
    let Some(whom) = others.get(place % others.len().max(1)) else {
        return;
    };
    if let Err(error) = client.revoke_by_force(&object, whom, "it is removed").await {
        site.setback(&object, format!("removing: {}", kind(&error)));
    }
}

/// Shuts the client down, and looks whether anything is left once that is acknowledged.
pub(crate) async fn shut_down(client: LockClient, site: Site, objects: Vec<String>) {
    let shutdown = Shutdown { client: site.number, asked: site.now(), done: None };
    let number = site.log().shutdowns.len();
    site.log().shutdowns.push(shutdown);
    if client.shutdown().await.is_err() {
        return;
    }
    let now = site.now();
    site.log().shutdowns[number].done = Some(now);
    let counts = |owner, name: &str| owner == site.number && name != REVOKED;
    let whole = site.log().not_truncated(&objects);
    site.log().note_rows(&site.cluster, &whole, now, counts);
}

async fn contenders(client: &LockClient, site: &Site, object: &str) -> Vec<Contender> {
    match client.contenders(object).await {
        Ok(all) => all,
        Err(error) => {
            site.setback(object, format!("looking: {}", kind(&error)));
            Vec::new()
        }
    }
}
