//! Three ZooKeeper servers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::servers::process::{ServerProcess, address, empty_directory, until};

/// Debian's file; what else it needs is beside it, and named in it.
pub(crate) const JAR: &str = "/usr/share/java/zookeeper.jar";

/// What writes its log, beside it.
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";

/// A server that is about to start or was frozen answers later, or to the next request.
const ANSWER_MAX: Duration = Duration::from_secs(2);

const CLIENT_PORT: u16 = 2181;
const PEER_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;

/// Starts them, and waits until they have a leader.
pub(crate) async fn start(root: &Path, servers: usize) -> Result<Vec<ServerProcess>> {
    let root = empty_directory(root, "zookeeper")?;
    let mut started = Vec::new();
    for number in 0..servers {
        let directory = root.join(number.to_string());
        let configuration = configure(&directory, number, servers)?;
        let command = [
            "java",
            "-Xms256m",
            "-Xmx512m",
            "-Dzookeeper.admin.enableServer=false",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            &format!("{JAR}:{LOGGER}"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &configuration,
        ];
        let ports = [CLIENT_PORT, PEER_PORT, ELECTION_PORT];
        let listens = ports.map(|port| SocketAddr::from((address(number), port)));
        let command = command.map(str::to_owned).into();
        started.push(ServerProcess::start(&directory, command, listens.into())?);
    }
    until("ZooKeeper has a leader", async || {
        started.iter_mut().try_for_each(ServerProcess::check)?;
        Ok(leader(&started).await?.is_some())
    })
    .await?;
    Ok(started)
}

/// Writes a server's files; returns the path of its configuration.
fn configure(directory: &Path, number: usize, servers: usize) -> Result<String> {
    let data = directory.join("data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("myid"), (number + 1).to_string())?;
    let mut lines = vec![
        // The defaults of its documentation, and longer sessions than twenty ticks.
        "tickTime=2000".to_owned(),
        "initLimit=10".to_owned(),
        "syncLimit=5".to_owned(),
        "maxSessionTimeout=120000".to_owned(),
        "maxClientCnxns=0".to_owned(),
        "4lw.commands.whitelist=srvr".to_owned(),
        format!("dataDir={}", data.display()),
        format!("clientPort={CLIENT_PORT}"),
        format!("clientPortAddress={}", address(number)),
    ];
    for other in 0..servers {
        let host = address(other);
        lines.push(format!("server.{}={host}:{PEER_PORT}:{ELECTION_PORT}", other + 1));
    }
    let file = directory.join("zoo.cfg");
    fs::write(&file, lines.join("\n") + "\n")?;
    Ok(file.display().to_string())
}

/// Which of them leads.
pub(crate) async fn leader(servers: &[ServerProcess]) -> Result<Option<usize>> {
    let mut leader = None;
    for (number, server) in servers.iter().enumerate() {
        match value(&status(server).await?, "Mode")? {
            "leader" => leader = Some(number),
            "follower" => {}
            _ => return Ok(None),
        }
    }
    Ok(leader)
}

/// How many packets a server has had from clients.
pub(crate) async fn requests(server: &ServerProcess) -> Result<u64> {
    Ok(value(&status(server).await?, "Received")?.parse()?)
}

/// What a running server says of its version.
pub(crate) async fn version(server: &ServerProcess) -> Result<String> {
    let status = status(server).await?;
    let version = value(&status, "Zookeeper version")?;
    Ok(version.split(['-', ',']).next().context("it says its version")?.to_owned())
}

async fn status(server: &ServerProcess) -> Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(server.listens()).await?;
        stream.write_all(b"srvr").await?;
        let mut said = String::new();
        stream.read_to_string(&mut said).await?;
        Ok(said)
    };
    timeout(ANSWER_MAX, asked).await?
}

fn value<'a>(status: &'a str, key: &str) -> Result<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.with_context(|| format!("a server says no {key}: {status:?}"))
}
