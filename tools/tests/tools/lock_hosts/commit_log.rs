//! What `check` says of commit logs.

use std::collections::BTreeMap;

use cassandra_cluster::{Cluster, ClusterOptions, CommitLog};

use crate::command::{lock_hosts, patient};

// Goal: `check` warns of a node that forgets acknowledged rows when only its process is killed,
// names the setting, and says what to do; it does not where writes are synced.
// Method: nodes that compress their commit logs: one that syncs now and then, one that syncs before
// it acknowledges.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn commit_log_in_the_memory_of_a_process_is_warned_of() {
    let check = |name: &str, first_host, commit_log| {
        let compression = ("commitlog_compression", "[{class_name: LZ4Compressor}]");
        let cluster = Cluster::lease(ClusterOptions {
            name: name.to_owned(),
            first_host,
            commit_log,
            settings: BTreeMap::from([(compression.0.to_owned(), compression.1.to_owned())]),
            ..ClusterOptions::default()
        });
        let cluster = cluster.unwrap_or_else(|error| panic!("no cluster: {error}"));
        let node = cluster.nodes()[0].to_string();
        let mut command = patient(lock_hosts(&["--nodes", &node]));
        let output = command.arg("doctor").output().expect("the tool starts");
        String::from_utf8(output.stdout).expect("the tool prints text")
    };
    let periodic = check("compressed", 111, CommitLog::Periodic);
    let warning = "warning  commit log of 127.0.0.111:9042: commitlog_sync is periodic, not batch \
                   or group, and commitlog_compression is LZ4Compressor, so a killed process \
                   forgets acknowledged rows; set commitlog_sync to group or batch, or keep a node \
                   whose process was killed or crashed, or that lost power";
    assert!(periodic.contains(warning), "{periodic}");
    let group = check("compressed-group", 112, CommitLog::Group);
    let fine = "ok       commit log of 127.0.0.112:9042: commitlog_sync is group\n";
    assert!(group.contains(fine), "{group}");
}
