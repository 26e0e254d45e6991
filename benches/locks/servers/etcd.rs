//! Three etcd servers.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use crate::servers::process::{ServerProcess, address, empty_directory, until, version};
use crate::sides::etcd::EtcdLock;

pub(crate) const PROGRAM: &str = "/usr/bin/etcd";

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// Starts them, and waits until they have a leader.
pub(crate) async fn start(root: &Path, servers: usize) -> Result<Vec<ServerProcess>> {
    let root = empty_directory(root, "etcd")?;
    let members: Vec<_> = (0..servers).map(|n| format!("e{n}={}", url(n, PEER_PORT))).collect();
    let mut started = Vec::new();
    for number in 0..servers {
        let directory = root.join(number.to_string());
        let (clients, peers) = (url(number, CLIENT_PORT), url(number, PEER_PORT));
        let command = [
            PROGRAM,
            &format!("--name=e{number}"),
            &format!("--data-dir={}", directory.join("data").display()),
            &format!("--listen-client-urls={clients}"),
            &format!("--advertise-client-urls={clients}"),
            &format!("--listen-peer-urls={peers}"),
            &format!("--initial-advertise-peer-urls={peers}"),
            &format!("--initial-cluster={}", members.join(",")),
            "--initial-cluster-state=new",
            "--logger=zap",
            "--log-level=warn",
        ];
        let listens =
            [CLIENT_PORT, PEER_PORT].map(|port| SocketAddr::from((address(number), port)));
        let command = command.map(str::to_owned).into();
        started.push(ServerProcess::start(&directory, command, listens.into())?);
    }
    until("etcd has a leader", async || {
        started.iter_mut().try_for_each(ServerProcess::check)?;
        Ok(leader(&started).await?.is_some())
    })
    .await?;
    Ok(started)
}

/// Which of them leads.
pub(crate) async fn leader(servers: &[ServerProcess]) -> Result<Option<usize>> {
    for (number, server) in servers.iter().enumerate() {
        let status = EtcdLock::status(&format!("http://{}", server.listens())).await?;
        if status.leader != 0 && status.leader == status.member()? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

pub(crate) fn installed_version() -> Result<String> {
    let said = version(PROGRAM, &["--version"], "etcd Version")?;
    Ok(said.split(": ").nth(1).context("it says its version")?.to_owned())
}

fn url(number: usize, port: u16) -> String {
    format!("http://{}:{port}", address(number))
}
