//! Redis servers of a test's own: started, killed, frozen and emptied, and never left behind.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{cluster, failure, pace};

/// Names another server than Redis, such as Valkey's.
const PROGRAM_VARIABLE: &str = "BAKERY_LOCK_TEST_REDIS";

/// Debian's package has it there.
const PROGRAM: &str = "/usr/bin/redis-server";

/// A server that runs without persistence, so that it is empty each time that it starts.
pub const WITHOUT_PERSISTENCE: &[&str] = &["--save", "", "--appendonly", "no"];

/// A server that keeps all it acknowledges.
pub const SYNCED: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "always"];

/// Some servers that know nothing of each other. They end with this value, and with the thread that
/// started them.
pub struct MasterServers {
    program: PathBuf,
    directory: PathBuf,
    servers: Vec<Server>,
}

/// One of them.
struct Server {
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl MasterServers {
    /// Starts servers without persistence.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, WITHOUT_PERSISTENCE)
    }

    /// Starts servers with these options.
    ///
    /// # Panics
    ///
    /// If Redis is not installed, or a server does not start.
    pub fn start_with(count: usize, options: &[&str]) -> Self {
        failure::explain();
        let program = std::env::var_os(PROGRAM_VARIABLE).map_or(PROGRAM.into(), PathBuf::from);
        assert!(
            program.exists(),
            "{} is missing: install it with `apt-get install redis-server`, or name another one \
             with {PROGRAM_VARIABLE}",
            program.display()
        );
        let name = cluster::unique("masters").replace(':', "_");
        let directory = std::env::temp_dir().join(name);
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        let mut servers = MasterServers { program, directory, servers: Vec::new() };
        for index in 0..count {
            let options = options.clone();
            servers.servers.push(Server { port: next_port(), options, child: None });
            servers.start_again(index);
        }
        servers
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// The addresses as clients take them.
    pub fn urls(&self) -> Vec<String> {
        (0..self.count()).map(|index| format!("redis://{}", self.address(index))).collect()
    }

    /// The address of one.
    pub fn address(&self, index: usize) -> SocketAddr {
        SocketAddr::from((own_address(), self.servers[index].port))
    }

    /// Kills a server with `SIGKILL`.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.servers[index].child.take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }

    /// Starts a server that was killed, and waits until it answers.
    pub fn start_again(&mut self, index: usize) {
        let directory = self.directory.join(index.to_string());
        fs::create_dir_all(&directory).expect("the directory can be made");
        let server = &mut self.servers[index];
        let log = fs::File::options().create(true).append(true).open(directory.join("log"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .args(["--bind", &own_address().to_string(), "--port", &server.port.to_string()])
            .args(&server.options)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(log.expect("the log can be written"))
            .spawn();
        server.child = Some(child.expect("redis-server can be started"));
        let began = Instant::now();
        while self.try_command(index, "PING").map(|answer| answer != "+PONG").unwrap_or(true) {
            let log = || fs::read_to_string(directory.join("log")).unwrap_or_default();
            assert!(began.elapsed() < pace::limit(), "a server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops a server without closing its connections.
    pub fn freeze(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    /// Deletes all of a server's data.
    pub fn flush(&self, index: usize) {
        assert_eq!(self.command(index, "FLUSHALL"), "+OK");
    }

    /// Sends a command without spaces in its arguments, and returns the first line of the answer.
    pub fn command(&self, index: usize, command: &str) -> String {
        self.try_command(index, command).expect("the server answers")
    }

    fn try_command(&self, index: usize, command: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address(index))?;
        stream.set_read_timeout(Some(pace::limit()))?;
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }

    fn signal(&self, index: usize, signal: Signal) {
        if let Some(child) = &self.servers[index].child {
            let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has an id");
            kill_process(pid, signal).expect("it is our child");
        }
    }
}

impl Drop for MasterServers {
    fn drop(&mut self) {
        for index in 0..self.count() {
            self.kill(index);
        }
        // What is left there takes a few bytes.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The address of this process's servers: loopback has 2^24, and process ids 22 bits. On a shared
/// one another program could take the port of a server that is being started again.
fn own_address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 0x80, middle, low)
}

/// A port that no other server of this process has.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(7_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
