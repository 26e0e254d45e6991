//! A Cassandra or Scylla node in a container, one for all tests of this process.
//!
//! A value that all tests share lives in a static, and those are never dropped; nor does a killed
//! process drop anything, so the container is removed by a janitor: a process that waits until the
//! pipe from this process breaks, whatever the reason.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use testcontainers::core::WaitFor;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};

const CQL_PORT: u16 = 9042;

/// A node takes up to half a minute, on a busy machine longer; an image may have to be pulled.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(180);

/// The mark of every container of these tests, for a clean-up by hand:
/// `docker ps -aq --filter label=bakery-lock.test | xargs -r docker rm --force --volumes`.
const LABEL: &str = "bakery-lock.test";

/// The address and CQL port, as `ip:port`, of a node in a container of `image`.
///
/// The first call starts the container and blocks until the node answers; later calls share it.
/// The container is gone soon after this process has ended, however it ended.
///
/// # Errors
///
/// Says what failed and what to install or build. Later calls get the same answer at once.
///
/// # Panics
///
/// If a later call names another image: one process tests one image.
pub(crate) fn contact_point(image: &str) -> Result<String, String> {
    static NODE: OnceLock<(String, Result<Node, String>)> = OnceLock::new();
    let (started, node) = NODE.get_or_init(|| (image.to_owned(), Node::start(image)));
    assert_eq!(started, image, "one process tests one image");
    match node {
        Ok(node) => Ok(node.contact_point.clone()),
        Err(error) => Err(error.clone()),
    }
}

struct Node {
    contact_point: String,
    /// Kept because dropping it would remove the container under the tests.
    _container: ContainerAsync<GenericImage>,
    /// Kept because its end of the pipe is what the janitor waits for.
    _janitor: Child,
}

impl Node {
    fn start(image: &str) -> Result<Self, String> {
        let name = format!("bakery-lock-test-{}", uuid::Uuid::new_v4());
        // The janitor comes first, so that there is no moment without a process that would clean
        // up.
        let janitor = janitor(&name)?;
        let (contact_point, container) = run(image, &name)?;
        Ok(Self { contact_point, _container: container, _janitor: janitor })
    }
}

/// Starts the process that removes the container `name` once this process is gone.
///
/// It has a process group of its own, so that an interrupt at the terminal leaves it alone, and
/// none of this process's outputs, so that no reader of those waits for it. If there is no such
/// container it waits a little: the engine may still be creating what was ordered last.
fn janitor(name: &str) -> Result<Child, String> {
    let script = r#"cat
        [ -n "$(docker ps --all --quiet --filter "name=$0")" ] || sleep 2
        docker rm --force --volumes "$0""#;
    Command::new("sh")
        .args(["-c", script, name])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("start the process that removes the test container: {error}"))
}

/// Runs the container on a thread and a runtime of its own, because tests call from theirs.
fn run(image: &str, name: &str) -> Result<(String, ContainerAsync<GenericImage>), String> {
    let start = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("start a runtime for the test container: {error}"))?
            .block_on(start_container(image, name))
    };
    std::thread::scope(|scope| {
        scope
            .spawn(start)
            .join()
            .unwrap_or_else(|_| Err(format!("starting a container of {image} panicked")))
    })
}

async fn start_container(
    image: &str,
    name: &str,
) -> Result<(String, ContainerAsync<GenericImage>), String> {
    let kind = Kind::of(image);
    let container = kind
        .request(image)
        .with_container_name(name)
        .with_label(LABEL, "container")
        .with_startup_timeout(STARTUP_TIMEOUT)
        .start()
        .await
        .map_err(|error| {
            format!(
                "start a container of {image}: {error}; Docker must run (scripts/docker-engine) \
                 and have the image (tools/cassandra-image/build makes bakery-lock/cassandra)"
            )
        })?;
    let contact_point = kind
        .contact_point(&container)
        .await
        .map_err(|error| format!("find the address of the container of {image}: {error}"))?;
    Ok((contact_point, container))
}

#[derive(Clone, Copy)]
enum Kind {
    /// Built by `tools/cassandra-image`; runs on the host's network, where sandboxes that
    /// know no packet filter can reach it.
    OwnCassandra,
    PublicCassandra,
    PublicScylla,
}

impl Kind {
    fn of(image: &str) -> Self {
        if image.starts_with("bakery-lock/") {
            Self::OwnCassandra
        } else if image.contains("scylla") {
            Self::PublicScylla
        } else {
            Self::PublicCassandra
        }
    }

    fn request(self, image: &str) -> ContainerRequest<GenericImage> {
        let (name, tag) = name_and_tag(image);
        let image = GenericImage::new(name, tag);
        let cassandra_is_up = WaitFor::message_on_stdout("Startup complete");
        match self {
            Self::OwnCassandra => image
                .with_wait_for(cassandra_is_up)
                .with_network("host")
                .with_env_var("CASSANDRA_LISTEN_ADDRESS", own_address().to_string()),
            Self::PublicCassandra => image
                .with_wait_for(cassandra_is_up)
                .with_network("bridge")
                .with_env_var("MAX_HEAP_SIZE", "512M")
                .with_env_var("HEAP_NEWSIZE", "128M")
                .with_env_var(
                    "JVM_EXTRA_OPTS",
                    "-Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.initial_token=0",
                ),
            Self::PublicScylla => image
                .with_wait_for(WaitFor::message_on_either_std("initialization completed"))
                .with_network("bridge")
                .with_cmd(
                    "--smp 1 --memory 512M --developer-mode 1 --overprovisioned 1"
                        .split_ascii_whitespace(),
                ),
        }
    }

    async fn contact_point(
        self,
        container: &ContainerAsync<GenericImage>,
    ) -> testcontainers::core::error::Result<String> {
        match self {
            Self::OwnCassandra => Ok(format!("{}:{CQL_PORT}", own_address())),
            // Not the mapped port: the driver connects to the address the node tells it, so that
            // address itself must be the contact point. A Linux host reaches it over the bridge.
            Self::PublicCassandra | Self::PublicScylla => {
                let ip = container.get_bridge_ip_address().await?;
                Ok(format!("{ip}:{CQL_PORT}"))
            }
        }
    }
}

/// A loopback address that no other process of these tests uses at the same time: it is made of
/// this process's number, which has 22 bits on Linux, within 127.64.0.0/10.
fn own_address() -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 0).to_bits() | std::process::id())
}

/// Splits `image`; a colon that belongs to a registry's port comes before a slash.
fn name_and_tag(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        Some(_) | None => (image, "latest"),
    }
}
