//! The Java command lines of nodes, nodetool and the compiler.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::paths::ClusterPaths;
use crate::{ClusterError, ClusterOptions, Compiler, artifacts, clock};

/// The modules that Cassandra 5.0 needs opened in Java 17, from its `conf/jvm17-server.options`
/// without the lines that need a full JDK.
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

/// Off-heap memory, and the switches that let a small test node start fast: no wait for gossip to
/// settle, no delay before the default role is created, no announcement before a stop.
///
/// By default, the quarantine is twice the ring delay. A node forgets another starting node that
/// has published no tokens for half of the quarantine (`Gossiper.doStatusCheck`). On a busy
/// machine, a start may pause for a second.
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

/// Keeps schema changes in memtables. Cassandra's own tests use this option.
const KEEP_SCHEMA_IN_MEMORY: &str = "-Dcassandra.test.flush_local_schema_changes=false";

/// Enables only the first of Java's two compilers.
const QUICK_COMPILER: &str = "-XX:TieredStopAtLevel=1";

/// The `java` to use: from `JAVA_HOME` if set, otherwise from `PATH`.
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
            found: version_line(&text).unwrap_or("of unknown version").to_owned(),
        }),
    }
}

/// The arguments that start node `number`.
pub(crate) fn node_arguments(
    paths: &ClusterPaths,
    options: &ClusterOptions,
    number: u8,
) -> Vec<String> {
    let home = paths.node_directory(number);
    let home = home.display();
    let mut arguments = module_arguments();
    if options.clock_offsets.contains_key(&number) {
        arguments.extend(clock::arguments(&paths.clock_file(number)));
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
        format!(
            "-Dlogback.configurationFile=file:{}/logback.xml",
            paths.configuration_directory().display()
        ),
        "-cp".to_owned(),
        class_path(paths),
        "org.apache.cassandra.service.CassandraDaemon".to_owned(),
    ]);
    arguments
}

/// The arguments of nodetool for the node with the JMX address `jmx`.
///
/// `user.home` is the cluster's directory, because nodetool writes its history there.
pub(crate) fn nodetool_arguments(
    paths: &ClusterPaths,
    jmx: SocketAddr,
    command: &[String],
) -> Vec<String> {
    let mut arguments = module_arguments();
    let directory = paths.directory();
    let configuration = paths.configuration_directory();
    arguments.extend([
        "-Xmx128m".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        QUICK_COMPILER.to_owned(),
        "-XX:-UsePerfData".to_owned(),
        format!("-Duser.home={}", directory.display()),
        format!("-Dcassandra.storagedir={}", directory.display()),
        format!("-Dlogback.configurationFile=file:{}/logback-tools.xml", configuration.display()),
        "-cp".to_owned(),
        class_path(paths),
        "org.apache.cassandra.tools.NodeTool".to_owned(),
        "-h".to_owned(),
        jmx.ip().to_string(),
        "-p".to_owned(),
        jmx.port().to_string(),
    ]);
    arguments.extend_from_slice(command);
    arguments
}

/// The arguments that compile a source file against Cassandra's classes, with the `java` of the
/// nodes: the `javac` in `PATH` may belong to another Java.
pub(crate) fn compiler_arguments(
    paths: &ClusterPaths,
    source: &Path,
    output: &Path,
) -> Vec<String> {
    let cassandra = format!("cassandra-all-{}.jar", artifacts::cassandra_version());
    let cassandra = paths.jars().join(cassandra);
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

fn class_path(paths: &ClusterPaths) -> String {
    format!("{}:{}/*", paths.configuration_directory().display(), paths.jars().display())
}

/// Returns the 17 in `openjdk version "17.0.15" 2025-04-15`.
fn major_version(text: &str) -> Option<u32> {
    let (_, quoted) = version_line(text)?.split_once(VERSION_SEPARATOR)?;
    let digits: String = quoted.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the line with the version. Other lines may precede it: the virtual machine prints the
/// options from `JAVA_TOOL_OPTIONS` and similar variables, which may contain anything.
fn version_line(text: &str) -> Option<&str> {
    let is_name = |text: &str| !text.contains(char::is_whitespace);
    text.lines()
        .find(|line| line.split_once(VERSION_SEPARATOR).is_some_and(|(name, _)| is_name(name)))
}

/// The text between a Java's name and its version.
const VERSION_SEPARATOR: &str = " version \"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_parsed() {
        assert_eq!(major_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(major_version("java version \"1.8.0_402\""), Some(1));
        assert_eq!(major_version("Picked up X\nopenjdk version \"21\" 2023"), Some(21));
        assert_eq!(major_version("no such file"), None);
    }

    #[test]
    fn nodes_use_quick_compiler_by_default() {
        let paths = ClusterPaths::below(Path::new("clusters"), "test").unwrap();
        let is_quick = |compiler| {
            let options = ClusterOptions { compiler, ..ClusterOptions::default() };
            node_arguments(&paths, &options, 1).contains(&QUICK_COMPILER.to_owned())
        };
        assert!(is_quick(Compiler::Quick) && !is_quick(Compiler::Full));
        assert!(is_quick(ClusterOptions::default().compiler));
    }

    #[test]
    fn options_from_environment_are_not_mistaken_for_version() {
        let version = "openjdk version \"17.0.15\" 2025-04-15";
        for picked_up in [
            "Picked up JAVA_TOOL_OPTIONS: -Dfile.encoding=UTF-8",
            "Picked up JAVA_TOOL_OPTIONS: -Dapp=\"of version \"3\"",
            "NOTE: Picked up JDK_JAVA_OPTIONS: -Dapp='version \"21\"'",
        ] {
            let output = format!("{picked_up}\n{version}\nOpenJDK Runtime Environment\n");
            assert_eq!(major_version(&output), Some(17), "{output}");
            assert_eq!(version_line(&output), Some(version), "{output}");
        }
    }
}
