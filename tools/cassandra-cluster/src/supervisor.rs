//! The process that owns the nodes of a cluster: starts and stops them, and answers requests.
//!
//! The main thread owns all state and does all work in a loop of events and ticks. The other
//! threads only turn connections and lines into events.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::place::Place;
use crate::protocol::{self, Failure, OldData, Reply, Request, Status};
use crate::ring::{Goal, Obstacle, Ring};
use crate::{ClusterError, ClusterOptions};

/// How long a cluster outlives its last lease, so that the next test program finds it running.
const LINGER: Duration = Duration::from_secs(2);
/// How long a new supervisor waits for its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// How long nodes may take to start, or to notice each other.
const LIMIT: Duration = Duration::from_secs(300);
/// How often logs are read and processes checked.
const TICK: Duration = Duration::from_millis(100);

/// Supervises the cluster at `place` until it is no longer needed. Must be called on the main
/// thread, because the nodes end with it.
///
/// Returns at once if another process supervises this cluster already.
pub(crate) fn supervise(place: Place) -> Result<(), ClusterError> {
    let Some(_lock) = lock(&place)? else {
        return Ok(());
    };
    // A session of its own: an interrupt typed into the terminal of a test program must not stop
    // the nodes while that program still cleans up. A session leader already has one.
    let _ = rustix::process::setsid();
    let listener = protocol::listen(&place).map_err(ClusterError::io("open the socket"))?;
    let (sender, events) = mpsc::channel();
    thread::spawn(move || accept(&listener, &sender));
    Supervisor::new(place).run(&events);
    Ok(())
}

struct Supervisor {
    place: Place,
    ring: Option<Ring>,
    /// Whether the cluster stays when no lease is left.
    stays: bool,
    connections: BTreeMap<ConnectionId, Connection>,
    waiters: Vec<Waiter>,
    /// When to end, unless a request or lease needs the cluster before.
    unneeded_at: Instant,
    ended: bool,
    began: Instant,
}

type ConnectionId = u64;

struct Connection {
    stream: UnixStream,
    /// Whether the cluster must not end before this connection.
    leases: bool,
}

/// A request that is answered when a goal is reached.
struct Waiter {
    connection: ConnectionId,
    goal: Goal,
    then: Then,
    deadline: Instant,
}

/// What happens when a goal is reached, besides the answer.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Stay,
}

enum Event {
    Opened(ConnectionId, UnixStream),
    Asked(ConnectionId, Request),
    NotUnderstood(ConnectionId, String),
    Closed(ConnectionId),
}

impl Supervisor {
    fn new(place: Place) -> Self {
        Self {
            place,
            ring: None,
            stays: false,
            connections: BTreeMap::new(),
            waiters: Vec::new(),
            unneeded_at: Instant::now() + FIRST_REQUEST,
            ended: false,
            began: Instant::now(),
        }
    }

    fn run(mut self, events: &Receiver<Event>) {
        self.note(&format!("process {} supervises", std::process::id()));
        while !self.ended {
            match events.recv_timeout(TICK) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                // The thread that accepts connections is gone, so no request could stop the
                // cluster.
                Err(RecvTimeoutError::Disconnected) => self.end(),
            }
            self.tick();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Opened(id, stream) => {
                self.connections.insert(id, Connection { stream, leases: false });
            }
            Event::Asked(id, request) => {
                self.note(&format!("connection {id}: {request:?}"));
                match self.fulfil(id, request) {
                    Ok(Some(reply)) => self.reply(id, &reply),
                    Ok(None) => {}
                    Err(error) => self.reply(id, &Reply::Failed(failure(error))),
                }
            }
            Event::NotUnderstood(id, why) => {
                let message = format!(
                    "the supervisor is of another build ({why}): stop it with \
                     `cassandra-cluster down`, or kill process {}",
                    std::process::id()
                );
                self.reply(id, &Reply::Failed(Failure::Refused(message)));
            }
            Event::Closed(id) => {
                self.waiters.retain(|waiter| waiter.connection != id);
                if self.connections.remove(&id).is_some_and(|connection| connection.leases) {
                    self.note(&format!("connection {id}: lease ended"));
                    self.unneeded_at = Instant::now() + LINGER;
                }
            }
        }
    }

    /// Fulfils a request. `None` means that the reply comes when a goal is reached.
    fn fulfil(
        &mut self,
        id: ConnectionId,
        request: Request,
    ) -> Result<Option<Reply>, ClusterError> {
        match request {
            Request::Lease(options) => {
                self.open(id, options, OldData::Discard)?;
                self.wait(id, Goal::Whole, Then::Nothing);
                return Ok(None);
            }
            Request::Up(options, old_data) => {
                self.open(id, options, old_data)?;
                self.wait(id, Goal::Whole, Then::Stay);
                return Ok(None);
            }
            Request::Down => self.down(id)?,
            Request::Status => return self.status().map(Some),
            Request::Kill(number) => self.ring()?.kill(number)?,
            Request::Pause(number) => self.ring()?.pause(number)?,
            Request::Resume(number) => self.ring()?.resume(number)?,
            Request::Start(number) => {
                self.ring()?.start_node(number)?;
                self.wait(id, Goal::Up(number), Then::Nothing);
                return Ok(None);
            }
            Request::Heal => {
                self.ring()?.heal()?;
                self.wait(id, Goal::Whole, Then::Nothing);
                return Ok(None);
            }
            Request::Cut(link) => self.ring()?.cut(link)?,
            Request::Join => self.ring()?.join(),
            Request::Delay(link, delay) => self.ring()?.delay(link, delay)?,
            Request::WaitSeenDown(number) => {
                self.wait(id, Goal::SeenDown(number), Then::Nothing);
                return Ok(None);
            }
        }
        Ok(Some(Reply::Done))
    }

    /// Makes the connection a lease of a cluster with these options. Starts or restarts the cluster
    /// if needed, or heals it if it has no other lease.
    fn open(
        &mut self,
        id: ConnectionId,
        options: ClusterOptions,
        old_data: OldData,
    ) -> Result<(), ClusterError> {
        let shared = self.stays || self.leases() > 0;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.leases = true;
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
        self.ring = Some(Ring::start(self.place.clone(), options, old_data)?);
        Ok(())
    }

    fn down(&mut self, id: ConnectionId) -> Result<(), ClusterError> {
        self.stays = false;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.leases = false;
        }
        let leases = self.leases();
        if leases > 0 {
            return Err(ClusterError::Refused(format!(
                "cluster {} is leased {leases} times; it ends with the last lease",
                self.place.name()
            )));
        }
        self.end();
        Ok(())
    }

    fn status(&mut self) -> Result<Reply, ClusterError> {
        let (stays, leases) = (self.stays, self.leases());
        let ring = self.ring()?;
        ring.observe();
        Ok(Reply::Status(Status {
            options: ring.options().clone(),
            supervisor: std::process::id(),
            stays,
            leases,
            nodes: ring.node_statuses(),
            cut_links: ring.cut_links(),
        }))
    }

    fn wait(&mut self, connection: ConnectionId, goal: Goal, then: Then) {
        let deadline = Instant::now() + LIMIT;
        self.waiters.push(Waiter { connection, goal, then, deadline });
    }

    fn tick(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.observe();
        }
        for waiter in std::mem::take(&mut self.waiters) {
            self.settle(waiter);
        }
        let needed = self.stays || self.leases() > 0;
        if needed {
            self.unneeded_at = Instant::now() + LINGER;
        }
        // If the directory was removed, and the socket with it, no request can end the cluster.
        if Instant::now() >= self.unneeded_at || !self.place.socket().exists() {
            self.end();
        }
    }

    /// Answers a waiter if its goal is reached or given up; otherwise it keeps waiting.
    fn settle(&mut self, waiter: Waiter) {
        let Some(ring) = &mut self.ring else {
            let gone = Failure::NotStarted("the nodes were stopped meanwhile".to_owned());
            return self.reply(waiter.connection, &Reply::Failed(gone));
        };
        let was_whole = ring.was_whole();
        let why = match ring.check(waiter.goal) {
            Ok(()) => {
                match waiter.then {
                    Then::Stay => self.stays = true,
                    Then::Nothing => {}
                }
                return self.reply(waiter.connection, &Reply::Done);
            }
            Err(Obstacle::Yet(_)) if Instant::now() < waiter.deadline => {
                return self.waiters.push(waiter);
            }
            Err(Obstacle::Yet(what)) => {
                format!("gave up after {} s: {what}; {}", LIMIT.as_secs(), ring.relevant_log())
            }
            Err(Obstacle::Forever(what)) => what,
        };
        let failure = if was_whole || waiter.goal != Goal::Whole {
            Failure::Refused(why)
        } else {
            ring.stop();
            self.ring = None;
            Failure::NotStarted(why)
        };
        self.reply(waiter.connection, &Reply::Failed(failure));
    }

    /// Stops answering, then kills the nodes: the next process to ask starts a new supervisor,
    /// which waits for this one's lock.
    fn end(&mut self) {
        if self.ended {
            return;
        }
        self.note("ending");
        self.ended = true;
        // The socket is gone already if the whole directory was removed.
        let _ = fs::remove_file(self.place.socket());
        if let Some(ring) = &mut self.ring {
            ring.stop();
        }
    }

    /// A reply that can't be delivered is dropped: the connection's end is noticed elsewhere.
    fn reply(&self, id: ConnectionId, reply: &Reply) {
        if let Reply::Failed(failure) = reply {
            self.note(&format!("connection {id}: {failure:?}"));
        }
        if let Some(connection) = self.connections.get(&id) {
            let _ = protocol::write_line(&connection.stream, reply);
        }
    }

    /// Writes to the supervisor's log, which is its error output.
    fn note(&self, text: &str) {
        eprintln!("{} {:8.3} s: {text}", self.place.name(), self.began.elapsed().as_secs_f64());
    }

    fn ring(&mut self) -> Result<&mut Ring, ClusterError> {
        let name = self.place.name();
        self.ring.as_mut().ok_or_else(|| ClusterError::NotRunning { name: name.to_owned() })
    }

    fn leases(&self) -> usize {
        self.connections.values().filter(|connection| connection.leases).count()
    }

    fn options_differ(&self, running: &ClusterOptions, wanted: &ClusterOptions) -> ClusterError {
        let reason = if self.stays {
            "it stays until `cassandra-cluster down`"
        } else {
            "another process holds a lease of it"
        };
        ClusterError::OptionsDiffer(format!(
            "cluster {} runs with other options ({}), and {reason}",
            self.place.name(),
            running.differences(wanted)
        ))
    }
}

/// Takes the lock that makes this process the only supervisor; `None` if another one has it.
fn lock(place: &Place) -> Result<Option<File>, ClusterError> {
    let path = place.lock();
    let file =
        File::create(&path).map_err(ClusterError::io(format!("create {}", path.display())))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(ClusterError::io(format!("lock {}", path.display()))(error.into())),
    }
}

/// Turns connections into events until the supervisor is gone.
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

/// Turns the lines of a connection into events, up to its end.
fn read(id: ConnectionId, stream: &UnixStream, events: &Sender<Event>) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let event = match serde_json::from_str(&line) {
            Ok(request) => Event::Asked(id, request),
            Err(error) => Event::NotUnderstood(id, error.to_string()),
        };
        if events.send(event).is_err() {
            return;
        }
    }
    // If the channel has no receiver, the supervisor is ending.
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
