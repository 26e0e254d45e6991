//! The process that owns a cluster's nodes: it starts and stops them, and serves requests.
//!
//! The main thread owns all state and handles events and ticks in a loop. The other threads only
//! turn connections and lines into events.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::paths::ClusterPaths;
use crate::protocol::{self, Failure, GOAL_TIMEOUT, OldData, Reply, Request, Status};
use crate::ring::{Goal, Ring, Unmet};
use crate::{ClusterError, ClusterOptions};

/// How long a cluster outlives its last lease, to let the next test program take it over.
const LINGER: Duration = Duration::from_secs(2);
/// How long a new supervisor waits for its first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which logs are read and processes are checked.
const TICK: Duration = Duration::from_millis(100);

/// Supervises the cluster with these `paths` until it is no longer needed. Must be called on the
/// main thread, because the nodes die with the thread that starts them.
///
/// Returns at once if another process already supervises this cluster.
pub(crate) fn supervise(paths: ClusterPaths) -> Result<(), ClusterError> {
    let Some(_lock) = lock(&paths)? else {
        return Ok(());
    };
    // A separate session keeps Ctrl-C in a test program's terminal from stopping the nodes while
    // that program cleans up. The call fails for a session leader, which needs no new session.
    let _ = rustix::process::setsid();
    let listener = protocol::listen(&paths).map_err(ClusterError::io("open the socket"))?;
    let (sender, events) = mpsc::channel();
    thread::spawn(move || accept(&listener, &sender));
    Supervisor::new(paths).run(&events);
    Ok(())
}

struct Supervisor {
    paths: ClusterPaths,
    ring: Option<Ring>,
    /// Whether the cluster outlives its last lease.
    stays: bool,
    connections: BTreeMap<ConnectionId, Connection>,
    waiters: Vec<Waiter>,
    /// When to stop, unless a request or lease needs the cluster before then.
    idle_deadline: Instant,
    stopped: bool,
    started_at: Instant,
}

type ConnectionId = u64;

struct Connection {
    stream: UnixStream,
    /// Whether this connection holds a lease.
    is_lease: bool,
}

/// A request whose reply waits for a goal.
struct Waiter {
    connection: ConnectionId,
    goal: Goal,
    on_success: OnSuccess,
    deadline: Instant,
}

/// What to do in addition to the reply when a goal is reached.
#[derive(Clone, Copy)]
enum OnSuccess {
    Nothing,
    Stay,
}

enum Event {
    Opened(ConnectionId, UnixStream),
    Request(ConnectionId, Request),
    InvalidRequest(ConnectionId, String),
    Closed(ConnectionId),
}

impl Supervisor {
    fn new(paths: ClusterPaths) -> Self {
        Self {
            paths,
            ring: None,
            stays: false,
            connections: BTreeMap::new(),
            waiters: Vec::new(),
            idle_deadline: Instant::now() + FIRST_REQUEST_TIMEOUT,
            stopped: false,
            started_at: Instant::now(),
        }
    }

    fn run(mut self, events: &Receiver<Event>) {
        self.log(&format!("supervising as process {}", std::process::id()));
        while !self.stopped {
            match events.recv_timeout(TICK) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                // The accepting thread is gone, so no request could stop the cluster.
                Err(RecvTimeoutError::Disconnected) => self.stop(),
            }
            self.tick();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Opened(id, stream) => {
                self.connections.insert(id, Connection { stream, is_lease: false });
            }
            Event::Request(id, request) => {
                self.log(&format!("connection {id}: {request:?}"));
                match self.handle_request(id, request) {
                    Ok(Some(reply)) => self.reply(id, &reply),
                    Ok(None) => {}
                    Err(error) => self.reply(id, &Reply::Failed(failure(error))),
                }
            }
            Event::InvalidRequest(id, why) => {
                let message = format!(
                    "the supervisor is from a different build ({why}): stop it with \
                     `cassandra-cluster down`, or kill process {}",
                    std::process::id()
                );
                self.reply(id, &Reply::Failed(Failure::Refused(message)));
            }
            Event::Closed(id) => {
                self.waiters.retain(|waiter| waiter.connection != id);
                if self.connections.remove(&id).is_some_and(|connection| connection.is_lease) {
                    self.log(&format!("connection {id}: lease ended"));
                    self.idle_deadline = Instant::now() + LINGER;
                }
            }
        }
    }

    /// Handles a request. `None` means that the reply follows when a goal is reached.
    fn handle_request(
        &mut self,
        id: ConnectionId,
        request: Request,
    ) -> Result<Option<Reply>, ClusterError> {
        match request {
            Request::Lease(options) => {
                self.open(id, options, OldData::Discard)?;
                self.wait(id, Goal::AllUp, OnSuccess::Nothing);
                return Ok(None);
            }
            Request::Up(options, old_data) => {
                self.open(id, options, old_data)?;
                self.wait(id, Goal::AllUp, OnSuccess::Stay);
                return Ok(None);
            }
            Request::Down => self.down(id)?,
            Request::Status => return self.status().map(Some),
            Request::Kill(number) => self.ring()?.kill(number)?,
            Request::Pause(number) => self.ring()?.pause(number)?,
            Request::Resume(number) => self.ring()?.resume(number)?,
            Request::Start(number) => {
                self.ring()?.start_node(number)?;
                self.wait(id, Goal::NodeUp(number), OnSuccess::Nothing);
                return Ok(None);
            }
            Request::Heal => {
                self.ring()?.heal()?;
                self.wait(id, Goal::AllUp, OnSuccess::Nothing);
                return Ok(None);
            }
            Request::Cut(link) => self.ring()?.cut(link)?,
            Request::Join => self.ring()?.join(),
            Request::Delay(link, delay) => self.ring()?.delay(link, delay)?,
            Request::WaitSeenDown(number) => {
                self.wait(id, Goal::SeenDown(number), OnSuccess::Nothing);
                return Ok(None);
            }
        }
        Ok(Some(Reply::Done))
    }

    /// Makes the connection a lease of a cluster with these options. Starts or restarts the cluster
    /// if needed, or heals it if nothing else uses it.
    fn open(
        &mut self,
        id: ConnectionId,
        options: ClusterOptions,
        old_data: OldData,
    ) -> Result<(), ClusterError> {
        let shared = self.stays || self.leases() > 0;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_lease = true;
        }
        match &mut self.ring {
            Some(ring) if shared => {
                let running = ring.options().clone();
                if running == options {
                    return Ok(());
                }
                return Err(self.options_differ(&running, &options));
            }
            Some(ring) if *ring.options() == options && ring.can_heal() => return ring.heal(),
            Some(ring) => ring.stop(),
            None => {}
        }
        self.ring = None;
        self.ring = Some(Ring::start(self.paths.clone(), options, old_data)?);
        Ok(())
    }

    fn down(&mut self, id: ConnectionId) -> Result<(), ClusterError> {
        self.stays = false;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_lease = false;
        }
        let leases = self.leases();
        if leases > 0 {
            return Err(ClusterError::Refused(format!(
                "cluster {} still has leases ({leases}); it stops when the last lease ends",
                self.paths.name()
            )));
        }
        self.stop();
        Ok(())
    }

    fn status(&mut self) -> Result<Reply, ClusterError> {
        let (stays, leases) = (self.stays, self.leases());
        let ring = self.ring()?;
        ring.refresh();
        Ok(Reply::Status(Status {
            options: ring.options().clone(),
            supervisor: std::process::id(),
            stays,
            leases,
            nodes: ring.node_statuses(),
            cut_links: ring.cut_links(),
        }))
    }

    fn wait(&mut self, connection: ConnectionId, goal: Goal, on_success: OnSuccess) {
        let deadline = Instant::now() + GOAL_TIMEOUT;
        self.waiters.push(Waiter { connection, goal, on_success, deadline });
    }

    fn tick(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.refresh();
        }
        for waiter in std::mem::take(&mut self.waiters) {
            self.check_waiter(waiter);
        }
        let needed = self.stays || self.leases() > 0;
        if needed {
            self.idle_deadline = Instant::now() + LINGER;
        }
        // If the directory was removed with the socket, no request can stop the cluster.
        if Instant::now() >= self.idle_deadline || !self.paths.socket().exists() {
            self.stop();
        }
    }

    /// Replies to a waiter if its goal is reached, impossible or overdue; otherwise, keeps it.
    fn check_waiter(&mut self, waiter: Waiter) {
        let Some(ring) = &mut self.ring else {
            let failure = Failure::NotStarted("the nodes were stopped in the meantime".to_owned());
            return self.reply(waiter.connection, &Reply::Failed(failure));
        };
        let came_up = ring.came_up();
        let why = match ring.check(waiter.goal) {
            Ok(()) => {
                match waiter.on_success {
                    OnSuccess::Stay => self.stays = true,
                    OnSuccess::Nothing => {}
                }
                return self.reply(waiter.connection, &Reply::Done);
            }
            Err(Unmet::Pending(_)) if Instant::now() < waiter.deadline => {
                return self.waiters.push(waiter);
            }
            Err(Unmet::Pending(what)) => {
                format!(
                    "gave up after {} s: {what}; {}",
                    GOAL_TIMEOUT.as_secs(),
                    ring.relevant_log()
                )
            }
            Err(Unmet::Impossible(what)) => what,
        };
        let failure = if came_up || waiter.goal != Goal::AllUp {
            Failure::Refused(why)
        } else {
            ring.stop();
            self.ring = None;
            Failure::NotStarted(why)
        };
        self.reply(waiter.connection, &Reply::Failed(failure));
    }

    /// Removes the socket, then kills the nodes. The next client starts supervisors until one gets
    /// the lock, which this process holds until it exits.
    fn stop(&mut self) {
        if self.stopped {
            return;
        }
        self.log("stopping");
        self.stopped = true;
        // If the directory was removed, the socket is already gone.
        let _ = fs::remove_file(self.paths.socket());
        if let Some(ring) = &mut self.ring {
            ring.stop();
        }
    }

    /// Sends a reply. Ignores send errors: the reading thread reports the end of the connection.
    fn reply(&self, id: ConnectionId, reply: &Reply) {
        if let Reply::Failed(failure) = reply {
            self.log(&format!("connection {id}: {failure:?}"));
        }
        if let Some(connection) = self.connections.get(&id) {
            let _ = protocol::write_line(&connection.stream, reply);
        }
    }

    /// Writes to the supervisor's log, which is its standard error.
    fn log(&self, text: &str) {
        eprintln!(
            "{} {:8.3} s: {text}",
            self.paths.name(),
            self.started_at.elapsed().as_secs_f64()
        );
    }

    fn ring(&mut self) -> Result<&mut Ring, ClusterError> {
        let name = self.paths.name();
        self.ring.as_mut().ok_or_else(|| ClusterError::NotRunning { name: name.to_owned() })
    }

    fn leases(&self) -> usize {
        self.connections.values().filter(|connection| connection.is_lease).count()
    }

    fn options_differ(&self, running: &ClusterOptions, wanted: &ClusterOptions) -> ClusterError {
        let reason = if self.stays {
            "it runs until `cassandra-cluster down`"
        } else {
            "another process has leased it"
        };
        ClusterError::OptionsDiffer(format!(
            "cluster {} runs with other options ({}), and {reason}",
            self.paths.name(),
            running.differences(wanted)
        ))
    }
}

/// Takes the lock that makes this process the only supervisor; `None` if another one holds it.
fn lock(paths: &ClusterPaths) -> Result<Option<File>, ClusterError> {
    let path = paths.lock_file();
    let file =
        File::create(&path).map_err(ClusterError::io(format!("create {}", path.display())))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(ClusterError::io(format!("lock {}", path.display()))(error.into())),
    }
}

/// Turns connections into events until the supervisor exits.
fn accept(listener: &UnixListener, events: &Sender<Event>) {
    for (id, stream) in (1..).zip(listener.incoming()) {
        let Ok(stream) = stream else { return };
        let Ok(writer) = stream.try_clone() else {
            continue;
        };
        if events.send(Event::Opened(id, writer)).is_err() {
            return;
        }
        let events = events.clone();
        thread::spawn(move || read(id, &stream, &events));
    }
}

/// Turns the lines of a connection into events until the connection ends.
fn read(id: ConnectionId, stream: &UnixStream, events: &Sender<Event>) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let event = match serde_json::from_str(&line) {
            Ok(request) => Event::Request(id, request),
            Err(error) => Event::InvalidRequest(id, error.to_string()),
        };
        if events.send(event).is_err() {
            return;
        }
    }
    // If the channel has no receiver, the supervisor is exiting.
    let _ = events.send(Event::Closed(id));
}

fn failure(error: ClusterError) -> Failure {
    match error {
        ClusterError::OptionsDiffer(message) => Failure::OptionsDiffer(message),
        ClusterError::NotStarted(message) => Failure::NotStarted(message),
        ClusterError::Refused(message) => Failure::Refused(message),
        ClusterError::Io { .. } => Failure::NotStarted(error.to_string()),
        ClusterError::InvalidOptions(_)
        | ClusterError::MissingProgram { .. }
        | ClusterError::WrongJava { .. }
        | ClusterError::Artifacts(_)
        | ClusterError::Build(_)
        | ClusterError::NotRunning { .. }
        | ClusterError::SupervisorGone { .. }
        | ClusterError::Nodetool { .. } => Failure::Refused(error.to_string()),
    }
}
