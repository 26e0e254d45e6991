//! What the daemon is started with.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bakery_lock::PeerOptions;
use clap::{Args, ValueEnum};

use super::scripts::GivenScript;
use crate::host::HostOptions;
use crate::options::duration;

/// What the daemon is started with.
#[derive(Clone, Debug, Args)]
pub(super) struct ServeOptions {
    /// Listen at this path
    #[arg(long, value_name = "PATH", default_value = "/run/bakery-lock/lockd.sock")]
    pub(super) socket: PathBuf,

    /// Mode of the socket: who may connect
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = mode)]
    pub(super) socket_mode: u32,

    /// Listen at this address too; one that other machines reach needs --users and
    /// --tls-server-cert
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Vec<SocketAddr>,

    /// Answer GET /metrics, for Prometheus, and GET /ready at this address; one that other machines
    /// reach needs --users and --tls-server-cert
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics_listen: Option<SocketAddr>,

    /// Note what is promised in a file whose name begins so, for the next daemon after a crash; or
    /// off. Keep it in memory, such as /run [default: beside the socket]
    #[arg(long, value_name = "PATH")]
    pub(super) journal: Option<JournalOption>,

    /// Ask for passwords: a file of mode 600 with lines of NAME PASSWORD, and a prefix that the
    /// names of the user's locks get
    #[arg(long, value_name = "FILE")]
    pub(super) users: Option<PathBuf>,

    /// Use TLS for --listen and --metrics-listen, with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_server_key")]
    pub(super) tls_server_cert: Option<PathBuf>,

    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_server_cert")]
    pub(super) tls_server_key: Option<PathBuf>,

    /// Where other daemons reach this one, to pass locks on: auto, off, or PORT or ADDRESS:PORT
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub(super) peers: Peers,

    /// How long rows live without renewal: a daemon that crashes blocks its locks for that long
    /// [env: `BAKERY_LOCK_TTL`] [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) ttl: Option<Duration>,

    /// What becomes of a lock that is to live for longer than the lock table allows
    #[arg(long, value_name = "ACTION", value_enum, default_value = "renew")]
    pub(super) long_ttl: LongTtl,

    /// Let locks be taken over TCP that have no time to live; they end with their connection
    #[arg(long)]
    pub(super) endless_over_tcp: bool,

    /// What a script does that the daemon does not know: SHA1=BEHAVIOUR
    #[arg(long, value_name = "SCRIPT")]
    pub(super) script: Vec<GivenScript>,

    /// The maximum number of connections
    #[arg(long, value_name = "N", default_value = "20000")]
    pub(super) max_connections: usize,

    /// The maximum number of locks that are held
    #[arg(long, value_name = "N", default_value = "200000")]
    pub(super) max_locks: usize,

    /// How long locks that are held may delay the end after TERM
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(super) drain: Duration,

    #[command(flatten)]
    pub(super) host: HostOptions,
}

/// Where the journal is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JournalOption {
    /// Nowhere.
    Off,
    /// In files whose names begin so.
    At(PathBuf),
}

impl std::str::FromStr for JournalOption {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(JournalOption::Off),
            text if Path::new(text).file_name().is_some() => Ok(JournalOption::At(text.into())),
            _ => Err("name a file, or off"),
        }
    }
}

impl ServeOptions {
    /// Where the journal is kept, if it is.
    pub(super) fn journal_path(&self) -> Option<PathBuf> {
        match &self.journal {
            None => Some(self.socket.with_extension("journal")),
            Some(JournalOption::At(path)) => Some(path.clone()),
            Some(JournalOption::Off) => None,
        }
    }
}

/// What becomes of a lock that is to live for longer than the table allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LongTtl {
    /// It is renewed; if the daemon is killed, it ends sooner than promised
    Renew,
    /// It is refused
    Refuse,
}

/// How other daemons reach this one.
#[derive(Clone, Debug)]
pub(super) struct Peers(pub(super) Option<PeerOptions>);

impl std::str::FromStr for Peers {
    type Err = bakery_lock::ParsePeersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Peers(None)),
            "auto" => Ok(Peers(Some(PeerOptions::auto()))),
            text => text.parse().map(|options| Peers(Some(options))),
        }
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "write the mode in octal digits: 660".to_owned())
}
