//! The command lines of the Java virtual machine: a node, and nodetool.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::place::Place;
use crate::{ClusterError, ClusterOptions, Compiler, artifacts, clock};

/// The modules that Cassandra 5.0 needs opened in Java 17, from its `conf/jvm17-server.options`
/// without the lines that only a full JDK understands.
const MODULES: &[(&str, &str)] = &[
    ("--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    ("--add-exports", "java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED"),
    ("--add-exports", "java.management/com.sun.jmx.remote.security=ALL-UNNAMED"),
    ("--add-exports", "java.rmi/sun.rmi.registry=ALL-UNNAMED"),
    ("--add-exports", "java.rmi/sun.rmi.server=ALL-UNNAMED"),
    ("--add-exports", "java.sql/java.sql=ALL-UNNAMED"),
    ("--add-exports", "java.base/java.lang.ref=ALL-UNNAMED"),
    ("--add-exports", "jdk.unsupported/sun.misc=ALL-UNNAMED"),
    ("--add-opens", "java.base/java.lang.module=ALL-UNNAMED"),
    ("--add-opens", "java.base/jdk.internal.loader=ALL-UNNAMED"),
    ("--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED"),
    ("--add-opens", "java.base/jdk.internal.reflect=ALL-UNNAMED"),
    ("--add-opens", "java.base/jdk.internal.math=ALL-UNNAMED"),
    ("--add-opens", "java.base/jdk.internal.module=ALL-UNNAMED"),
    ("--add-opens", "java.base/jdk.internal.util.jar=ALL-UNNAMED"),
    ("--add-opens", "jdk.management/com.sun.management.internal=ALL-UNNAMED"),
    ("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    ("--add-opens", "java.base/java.io=ALL-UNNAMED"),
    ("--add-opens", "java.base/java.lang.reflect=ALL-UNNAMED"),
    ("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    ("--add-opens", "java.base/java.util=ALL-UNNAMED"),
    ("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
];

/// Memory outside of the heap, and the switches that make a small test node start fast: no wait for
/// gossip to settle, no delay before the default role is created, no announcement before a stop.
///
/// The quarantine is twice the ring delay by default. A node forgets another one that starts beside
/// it and has told no tokens for half of that (`Gossiper.doStatusCheck`), and on a busy machine a
/// start may pause for a second.
const NODE_OPTIONS: &[&str] = &[
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.useCacheForAllThreads=true",
    "-Dio.netty.allocator.maxOrder=11",
    "-Djava.net.preferIPv4Stack=true",
    "-Dchronicle.analytics.disable=true",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-XX:+UseSerialGC",
    "-XX:MaxDirectMemorySize=256m",
    "-Dcassandra-foreground=yes",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
    "-Dcassandra.gossip_quarantine_delay_ms=120000",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.shutdown_announce_in_ms=0",
    "-Dcassandra.size_recorder_interval=0",
];

/// Keeps schema changes in memtables. Cassandra's own tests use it.
const KEEP_SCHEMA_IN_MEMORY: &str = "-Dcassandra.test.flush_local_schema_changes=false";

/// Enables only the first of Java's two compilers.
const QUICK_COMPILER: &str = "-XX:TieredStopAtLevel=1";

/// The `java` to use: the one in `JAVA_HOME`, else the first in `PATH`.
pub(crate) fn program() -> PathBuf {
    match std::env::var_os("JAVA_HOME") {
        Some(home) if !home.is_empty() => Path::new(&home).join("bin/java"),
        Some(_) | None => PathBuf::from("java"),
    }
}

/// Ensures that [`program`] exists and is Java 17.
pub(crate) fn check() -> Result<(), ClusterError> {
    let program = program();
    let missing = || ClusterError::MissingProgram {
        program: program.display().to_string(),
        package: "openjdk-17-jdk-headless",
    };
    let output = Command::new(&program)
        .arg("-version")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| missing())?;
    let text = String::from_utf8_lossy(&output.stderr);
    match major_version(&text) {
        Some(17) => Ok(()),
        Some(_) | None => Err(ClusterError::WrongJava {
            program: program.display().to_string(),
            found: version_line(&text).unwrap_or("silent about its version").to_owned(),
        }),
    }
}

/// The arguments that start node `number` of the cluster at `place`.
pub(crate) fn node_arguments(place: &Place, options: &ClusterOptions, number: u8) -> Vec<String> {
    let home = place.node(number);
    let home = home.display();
    let mut arguments = module_arguments();
    if options.clock_offsets.contains_key(&number) {
        arguments.extend(clock::arguments(&place.clock(number)));
    }
    arguments.extend(NODE_OPTIONS.iter().map(|&option| option.to_owned()));
    if options.compiler == Compiler::Quick {
        arguments.push(QUICK_COMPILER.to_owned());
    }
    if options.disposable {
        arguments.push(KEEP_SCHEMA_IN_MEMORY.to_owned());
    }
    let (heap, jmx) = (options.heap_mib, options.jmx(number));
    arguments.extend([
        format!("-Xms{heap}m"),
        format!("-Xmx{heap}m"),
        format!("-Dcassandra.config=file://{home}/cassandra.yaml"),
        format!("-Dcassandra-rackdc.properties=file://{home}/cassandra-rackdc.properties"),
        format!("-Dcassandra.storagedir={home}"),
        format!("-Dcassandra.logdir={home}"),
        format!("-Dcassandra.jmx.local.port={}", jmx.port()),
        format!("-Djava.io.tmpdir={home}/tmp"),
        format!("-Djna.tmpdir={home}/tmp"),
        format!("-Dlogback.configurationFile=file:{}/logback.xml", place.configuration().display()),
        "-cp".to_owned(),
        class_path(place),
        "org.apache.cassandra.service.CassandraDaemon".to_owned(),
    ]);
    arguments
}

/// The arguments of nodetool for the node with the JMX address `jmx`.
///
/// Its home is the cluster's directory, because it writes a history there.
pub(crate) fn nodetool_arguments(
    place: &Place,
    jmx: SocketAddr,
    command: &[String],
) -> Vec<String> {
    let mut arguments = module_arguments();
    let directory = place.directory();
    let configuration = place.configuration();
    arguments.extend([
        "-Xmx128m".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        QUICK_COMPILER.to_owned(),
        "-XX:-UsePerfData".to_owned(),
        format!("-Duser.home={}", directory.display()),
        format!("-Dcassandra.storagedir={}", directory.display()),
        format!("-Dlogback.configurationFile=file:{}/logback-tools.xml", configuration.display()),
        "-cp".to_owned(),
        class_path(place),
        "org.apache.cassandra.tools.NodeTool".to_owned(),
        "-h".to_owned(),
        jmx.ip().to_string(),
        "-p".to_owned(),
        jmx.port().to_string(),
    ]);
    arguments.extend_from_slice(command);
    arguments
}

/// The arguments that compile a source against Cassandra's classes. The `java` of the nodes
/// compiles it, because the `javac` in `PATH` may belong to another Java.
pub(crate) fn compiler_arguments(place: &Place, source: &Path, output: &Path) -> Vec<String> {
    let cassandra = format!("cassandra-all-{}.jar", artifacts::cassandra_version());
    let cassandra = place.jars().join(cassandra);
    vec![
        QUICK_COMPILER.to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:-UsePerfData".to_owned(),
        "--module".to_owned(),
        "jdk.compiler/com.sun.tools.javac.Main".to_owned(),
        "-proc:none".to_owned(),
        "-cp".to_owned(),
        cassandra.display().to_string(),
        "-d".to_owned(),
        output.display().to_string(),
        source.display().to_string(),
    ]
}

fn module_arguments() -> Vec<String> {
    MODULES.iter().flat_map(|&(option, module)| [option.to_owned(), module.to_owned()]).collect()
}

fn class_path(place: &Place) -> String {
    format!("{}:{}/*", place.configuration().display(), place.jars().display())
}

/// The 17 in `openjdk version "17.0.15" 2025-04-15`.
fn major_version(text: &str) -> Option<u32> {
    let (_, quoted) = version_line(text)?.split_once(VERSION)?;
    let digits: String = quoted.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The line that names the version. Other lines may come first: the virtual machine repeats the
/// options that it takes from `JAVA_TOOL_OPTIONS` and the like, with any content.
fn version_line(text: &str) -> Option<&str> {
    let is_name = |text: &str| !text.contains(char::is_whitespace);
    text.lines().find(|line| line.split_once(VERSION).is_some_and(|(name, _)| is_name(name)))
}

/// The text between the name of a Java and its version.
const VERSION: &str = " version \"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_found() {
        assert_eq!(major_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(major_version("java version \"1.8.0_402\""), Some(1));
        assert_eq!(major_version("Picked up X\nopenjdk version \"21\" 2023"), Some(21));
        assert_eq!(major_version("no such file"), None);
    }

    #[test]
    fn nodes_use_the_quick_compiler_by_default() {
        let place = Place::at(Path::new("clusters"), "test").unwrap();
        let is_quick = |compiler| {
            let options = ClusterOptions { compiler, ..ClusterOptions::default() };
            node_arguments(&place, &options, 1).contains(&QUICK_COMPILER.to_owned())
        };
        assert!(is_quick(Compiler::Quick) && !is_quick(Compiler::Full));
        assert!(is_quick(ClusterOptions::default().compiler));
    }

    #[test]
    fn options_from_the_environment_are_not_taken_for_the_version() {
        let version = "openjdk version \"17.0.15\" 2025-04-15";
        for picked_up in [
            "Picked up JAVA_TOOL_OPTIONS: -Dfile.encoding=UTF-8",
            "Picked up JAVA_TOOL_OPTIONS: -Dapp=\"of version \"3\"",
            "NOTE: Picked up JDK_JAVA_OPTIONS: -Dapp='version \"21\"'",
        ] {
            let said = format!("{picked_up}\n{version}\nOpenJDK Runtime Environment\n");
            assert_eq!(major_version(&said), Some(17), "{said}");
            assert_eq!(version_line(&said), Some(version), "{said}");
        }
    }
}
