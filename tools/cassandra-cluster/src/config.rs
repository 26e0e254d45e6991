//! The contents of a cluster's configuration files.

use crate::options::{Authentication, CQL_PORT, ClusterOptions, CommitLog, STORAGE_PORT};

/// The logging configuration of nodes. All messages go to standard output, which the supervisor
/// redirects to a file, so the file also has the output of the virtual machine itself.
pub(crate) const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"#;

/// The logging configuration of nodetool: only warnings, on standard error.
pub(crate) const LOGBACK_TOOLS: &str = r#"<configuration>
  <appender name="ERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="ERR"/></root>
</configuration>
"#;

/// The `cassandra.yaml` of node `number`.
///
/// All nodes are seeds with fixed tokens and without bootstrap, so that they can start at the same
/// time. Caches and thread pools are small, because the cluster shares a machine with the tests.
pub(crate) fn cassandra_yaml(options: &ClusterOptions, number: u8) -> String {
    let mut lines = settings(options, number);
    for (key, value) in &options.settings {
        match lines.iter_mut().find(|(existing, _)| existing == key) {
            Some((_, old)) => old.clone_from(value),
            None => lines.push((key.clone(), value.clone())),
        }
    }
    lines.into_iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// The `cassandra-rackdc.properties` of node `number`. Unused if there is only one data centre.
pub(crate) fn rackdc_properties(options: &ClusterOptions, number: u8) -> String {
    format!("dc={}\nrack=rack1\n", options.datacenter(number))
}

fn settings(options: &ClusterOptions, number: u8) -> Vec<(String, String)> {
    let address = options.address(number).to_string();
    let peer_address = options.peer_address(number).to_string();
    let seeds = options.numbers().map(|n| options.peer_address(n).to_string());
    let seeds: Vec<String> = seeds.collect();
    let seed_provider = format!(
        "[{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
         parameters: [{{seeds: \"{}\"}}]}}]",
        seeds.join(",")
    );
    let token = format!("\"{}\"", initial_token(number, options.nodes));
    let cluster_name = format!("cassandra-cluster-{}", options.name);
    // An eighth, because the heap is small; Cassandra's default is a quarter.
    let memtable_heap_space = format!("{}MiB", options.heap_mib / 8);
    let memtable_offheap_space = format!("{}MiB", options.heap_mib / 16);
    let storage_port = STORAGE_PORT.to_string();
    let cql_port = CQL_PORT.to_string();
    // The simple snitch puts all nodes into datacenter1, and starts without a round of gossip.
    let snitch = match options.datacenters {
        1 => "SimpleSnitch",
        _ => "GossipingPropertyFileSnitch",
    };
    let mut lines = vec![
        ("cluster_name", cluster_name.as_str()),
        ("num_tokens", "1"),
        ("initial_token", &token),
        ("auto_bootstrap", "false"),
        ("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner"),
        ("endpoint_snitch", snitch),
        ("listen_address", &address),
        ("broadcast_address", &peer_address),
        ("rpc_address", &address),
        ("storage_port", &storage_port),
        ("native_transport_port", &cql_port),
        ("start_native_transport", "true"),
        ("seed_provider", &seed_provider),
        ("commitlog_segment_size", "5MiB"),
        ("memtable_heap_space", &memtable_heap_space),
        // Slabs take 1 MiB per table, so the keyspaces of tests would fill the heap.
        ("memtable_allocation_type", "unslabbed_heap_buffers"),
        ("memtable_offheap_space", &memtable_offheap_space),
        ("file_cache_size", "32MiB"),
        ("networking_cache_size", "16MiB"),
        ("key_cache_size", "0MiB"),
        ("counter_cache_size", "0MiB"),
        ("prepared_statements_cache_size", "10MiB"),
        ("concurrent_reads", "8"),
        ("concurrent_writes", "8"),
        ("concurrent_counter_writes", "2"),
        ("concurrent_compactors", "1"),
        ("native_transport_max_threads", "16"),
        ("auto_snapshot", "false"),
        ("hinted_handoff_enabled", "true"),
        ("disk_failure_policy", "die"),
        ("commit_failure_policy", "die"),
    ];
    lines.extend_from_slice(commit_log(options.commit_log));
    lines.extend_from_slice(authentication(options.authentication));
    lines.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn commit_log(commit_log: CommitLog) -> &'static [(&'static str, &'static str)] {
    match commit_log {
        CommitLog::Periodic => {
            &[("commitlog_sync", "periodic"), ("commitlog_sync_period", "10000ms")]
        }
        CommitLog::Group => &[("commitlog_sync", "group"), ("commitlog_sync_group_window", "1ms")],
        CommitLog::Batch => &[("commitlog_sync", "batch")],
    }
}

fn authentication(authentication: Authentication) -> &'static [(&'static str, &'static str)] {
    match authentication {
        Authentication::AllowAll => &[],
        Authentication::Password => &[
            ("authenticator", "PasswordAuthenticator"),
            ("authorizer", "CassandraAuthorizer"),
            ("role_manager", "CassandraRoleManager"),
        ],
    }
}

/// The token of node `number` if `nodes` nodes share the ring evenly.
fn initial_token(number: u8, nodes: u8) -> i64 {
    let share = (1_i128 << 64) / i128::from(nodes);
    let token = i128::from(i64::MIN) + share * i128::from(number - 1);
    i64::try_from(token).expect("a node's number is at most the number of nodes")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::options::Network;

    #[test]
    fn tokens_divide_ring_evenly() {
        assert_eq!(initial_token(1, 1), i64::MIN);
        let three: Vec<i64> = (1..=3).map(|n| initial_token(n, 3)).collect();
        assert_eq!(three, [i64::MIN, -3_074_457_345_618_258_603, 3_074_457_345_618_258_602]);
        assert_eq!(initial_token(2, 2), 0);
    }

    #[test]
    fn node_has_own_address_and_all_seeds() {
        let options = ClusterOptions { nodes: 3, first_host: 11, ..ClusterOptions::default() };
        let yaml = cassandra_yaml(&options, 2);
        assert!(yaml.contains("listen_address: 127.0.0.12\n"), "{yaml}");
        assert!(yaml.contains("broadcast_address: 127.0.0.12\n"), "{yaml}");
        assert!(yaml.contains("rpc_address: 127.0.0.12\n"), "{yaml}");
        assert!(yaml.contains("{seeds: \"127.0.0.11,127.0.0.12,127.0.0.13\"}"), "{yaml}");
        assert!(yaml.contains("initial_token: \"-3074457345618258603\"\n"), "{yaml}");
        assert!(!yaml.contains("authenticator"), "{yaml}");
    }

    #[test]
    fn relayed_nodes_broadcast_relay_addresses() {
        let network = Network::Relayed;
        let options = ClusterOptions { nodes: 2, network, ..ClusterOptions::default() };
        let yaml = cassandra_yaml(&options, 2);
        assert!(yaml.contains("listen_address: 127.0.0.2\n"), "{yaml}");
        assert!(yaml.contains("broadcast_address: 127.1.0.2\n"), "{yaml}");
        assert!(yaml.contains("rpc_address: 127.0.0.2\n"), "{yaml}");
        assert!(yaml.contains("{seeds: \"127.1.0.1,127.1.0.2\"}"), "{yaml}");
    }

    #[test]
    fn commit_log_kinds_set_their_sync_lines() {
        let lines = |commit_log| {
            let options = ClusterOptions { commit_log, ..ClusterOptions::default() };
            let yaml = cassandra_yaml(&options, 1);
            let lines: Vec<String> =
                yaml.lines().filter(|l| l.contains("commitlog_sync")).map(str::to_owned).collect();
            lines
        };
        let periodic = ["commitlog_sync: periodic", "commitlog_sync_period: 10000ms"];
        assert_eq!(lines(CommitLog::Periodic), periodic);
        let group = ["commitlog_sync: group", "commitlog_sync_group_window: 1ms"];
        assert_eq!(lines(CommitLog::Group), group);
        assert_eq!(lines(CommitLog::Batch), ["commitlog_sync: batch"]);
    }

    #[test]
    fn passwords_set_authenticator_and_authorizer() {
        let authentication = Authentication::Password;
        let options = ClusterOptions { authentication, ..ClusterOptions::default() };
        let yaml = cassandra_yaml(&options, 1);
        assert!(yaml.contains("authenticator: PasswordAuthenticator\n"), "{yaml}");
        assert!(yaml.contains("authorizer: CassandraAuthorizer\n"), "{yaml}");
    }

    #[test]
    fn several_data_centres_set_gossiping_snitch() {
        let options = ClusterOptions { nodes: 2, ..ClusterOptions::default() };
        let yaml = cassandra_yaml(&options, 2);
        assert!(yaml.contains("endpoint_snitch: SimpleSnitch\n"), "{yaml}");
        let options = ClusterOptions { datacenters: 2, ..options };
        let yaml = cassandra_yaml(&options, 2);
        assert!(yaml.contains("endpoint_snitch: GossipingPropertyFileSnitch\n"), "{yaml}");
        assert_eq!(rackdc_properties(&options, 2), "dc=datacenter2\nrack=rack1\n");
    }

    #[test]
    fn settings_add_and_override_lines() {
        let settings = BTreeMap::from([
            ("paxos_variant".to_owned(), "v2".to_owned()),
            ("concurrent_reads".to_owned(), "16".to_owned()),
        ]);
        let yaml = cassandra_yaml(&ClusterOptions { settings, ..ClusterOptions::default() }, 1);
        assert!(yaml.contains("paxos_variant: v2\n"), "{yaml}");
        assert_eq!(yaml.matches("concurrent_reads:").count(), 1, "{yaml}");
        assert!(yaml.contains("concurrent_reads: 16\n"), "{yaml}");
    }
}
