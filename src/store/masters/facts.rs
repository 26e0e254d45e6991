//! What a server says about itself, and whether locks can rely on it.

use super::link::{CallError, Connection};
use super::reply;

/// What a server said when its connection was opened. It may be another process behind the next
/// connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Identifies the running process.
    pub(super) run_id: String,
    /// Its version.
    version: String,
    role: String,
    mode: String,
    replicas: u64,
    /// The process has followed another server, and may have its data.
    has_followed: bool,
    eviction: String,
    /// Whether what it acknowledges survives its crash, and that of its machine.
    pub(super) is_durable: bool,
}

/// The oldest major version whose scripts may read the clock and then write.
const MAJOR_MIN: u32 = 5;

impl Facts {
    /// Asks a server.
    pub(super) async fn read(connection: &Connection) -> Result<Self, CallError> {
        let info = reply::text(&connection.ask(&redis::cmd("INFO")).await?);
        let mut facts = Facts::of(&info.unwrap_or_default());
        if facts.run_id.is_empty() {
            return Err(CallError::refused("it does not say which server it is (INFO)"));
        }
        if facts.is_durable {
            let setting = async |name: &str| {
                let mut get = redis::cmd("CONFIG");
                get.arg("GET").arg(name);
                // A user without the right to ask gets no answer: it counts as the less durable.
                let value = connection.ask(&get).await.ok()?;
                reply::pairs(&value)?.pop().map(|(_, value)| value)
            };
            facts.is_durable = setting("appendfsync").await.as_deref() == Some("always")
                && setting("no-appendfsync-on-rewrite").await.as_deref() == Some("no");
        }
        Ok(facts)
    }

    /// Reads the answer to `INFO`. Only that there is an AOF is known of its durability.
    fn of(info: &str) -> Self {
        let of = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        Facts {
            run_id: of("run_id"),
            version: of("redis_version"),
            role: of("role"),
            mode: of("redis_mode"),
            replicas: of("connected_slaves").parse().unwrap_or(0),
            has_followed: !matches!(of("second_repl_offset").as_str(), "" | "-1"),
            eviction: of("maxmemory_policy"),
            // While an AOF is being written, again or for the first time, it may lack old data.
            is_durable: of("aof_enabled") == "1"
                && of("aof_rewrite_in_progress") == "0"
                && of("aof_rewrite_scheduled") == "0"
                && of("aof_last_write_status") == "ok",
        }
    }

    /// Why locks can't rely on the server, if they can't, and what to do.
    pub(super) fn refusal(&self, allow_replicas: bool) -> Option<String> {
        let Facts { version, role, mode, replicas, eviction, .. } = self;
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < MAJOR_MIN) {
            return Some(format!("it has version {version}: use {MAJOR_MIN} or later"));
        }
        if role != "master" {
            let what = "it follows another server, so it may lose what was acknowledged";
            return Some(format!("its role is {role:?}: {what}; name a master of its own"));
        }
        if mode == "cluster" {
            let what = "its slots may move; name servers that run without cluster mode";
            return Some(format!("it is a node of a cluster: {what}"));
        }
        if *replicas > 0 && !allow_replicas {
            return Some(format!(
                "it has {replicas} replica(s), and one that is promoted may lack what was \
                 acknowledged: detach them, or allow replicas if they are never promoted"
            ));
        }
        if eviction != "noeviction" {
            return Some(format!(
                "it may evict keys ({eviction}), and with them locks that are held: run \
                 `CONFIG SET maxmemory-policy noeviction`, and set it in its configuration"
            ));
        }
        None
    }

    /// Whether the data is what it was, although the server was started again.
    pub(super) fn keeps_data(&self) -> bool {
        self.is_durable && self.replicas == 0 && !self.has_followed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\
                        run_id:ab12\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\n\
                        aof_enabled:1\r\naof_rewrite_in_progress:0\r\n\
                        aof_rewrite_scheduled:0\r\naof_last_write_status:ok\r\n\
                        # Replication\r\nrole:master\r\nconnected_slaves:0\r\n";

    #[test]
    fn usual_server_is_accepted() {
        let facts = Facts::of(INFO);
        assert_eq!((facts.run_id.as_str(), facts.is_durable), ("ab12", true));
        assert_eq!(facts.refusal(false), None);
        assert!(facts.keeps_data());
        let never_followed = INFO.replace("connected_slaves:0", "second_repl_offset:-1");
        assert!(Facts::of(&never_followed).keeps_data());
        for (from, to) in [
            ("aof_enabled:1", "aof_enabled:0"),
            ("in_progress:0", "in_progress:1"),
            ("scheduled:0", "scheduled:1"),
            ("status:ok", "status:err"),
            ("connected_slaves:0", "second_repl_offset:57"),
        ] {
            assert!(!Facts::of(&INFO.replace(from, to)).keeps_data(), "{to}");
        }
    }

    #[test]
    fn unfit_servers_are_refused_with_what_to_do() {
        for (from, to, expected) in [
            ("redis_version:7", "redis_version:4", "use 5 or later"),
            ("role:master", "role:slave", "name a master of its own"),
            ("role:master", "role:active-replica", "name a master of its own"),
            ("redis_mode:standalone", "redis_mode:cluster", "without cluster mode"),
            ("connected_slaves:0", "connected_slaves:2", "it has 2 replica(s)"),
            ("policy:noeviction", "policy:allkeys-lru", "maxmemory-policy noeviction"),
        ] {
            let facts = Facts::of(&INFO.replace(from, to));
            let refusal = facts.refusal(false).expect("it is refused");
            assert!(refusal.contains(expected), "{refusal}");
        }
        let with_replicas = Facts::of(&INFO.replace("slaves:0", "slaves:1"));
        assert_eq!(with_replicas.refusal(true), None);
        assert!(!with_replicas.keeps_data());
    }
}
