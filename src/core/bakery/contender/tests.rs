//! Scripts of the state machine: the inputs of a contender, and the outputs that must follow.
//!
//! A [`Script`] also checks every step against the contract: the script expects every output; early
//! ticks and late answers change nothing; the deadline lies ahead, and exists unless idle; stamps
//! and rounds grow, and a stamp never stands for two contents.

mod contract;
mod doorway;
mod exchange;
mod lease;
mod reassign;
mod release;
mod revocation;
mod tries;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use super::super::io::{
    Acquire, Assignment, Change, ContenderEvent, ContenderInput, ContenderOutput, Failure, Loss,
    Now, OpId, Patience, Read, ReadFailure, Write, WriteOutcome,
};
use super::super::lease::{Lease, LeaseTerms, TIME_IN_FLIGHT, ttl_seconds};
use super::super::row::{
    Claim, ContenderId, LastRelease, Mode, Revocation, RevokeKind, Statics, StoredRow,
};
use super::{Contender, State};

/// The contender of every script. Hosts below it win ties, hosts above it lose them.
const ME: ContenderId = id(5);
const TTL: Duration = s(60);
const SKEW: Duration = s(1);
/// The length of a lease, from the first try of the write.
const LEASE: Duration = s(58);
const RENEWAL_DUE: Duration = s(20);

const fn id(host: i32) -> ContenderId {
    ContenderId { host, client: 0, slot: 0 }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn terms() -> LeaseTerms {
    LeaseTerms::new(TTL, SKEW)
}

fn exclusive() -> Acquire {
    Acquire {
        mode: Mode::Exclusive,
        terms: terms(),
        patience: Patience::Wait,
        renew: true,
        gives_up: None,
        owner: "me".into(),
    }
}

fn a_try() -> Acquire {
    Acquire { patience: Patience::Try, ..exclusive() }
}

/// The rows of another contender, exclusive and in its first round, without a ticket yet.
fn choosing(host: i32) -> Vec<StoredRow> {
    rows_of(&claim(host, 1, None))
}

/// The rows of another contender, exclusive and in its first round, with a ticket.
fn queued(host: i32, ticket: i64) -> Vec<StoredRow> {
    rows_of(&claim(host, 1, Some(ticket)))
}

fn claim(host: i32, round: i64, ticket: Option<i64>) -> Claim {
    let owner = format!("host {host}").into();
    let (contender, mode) = (id(host), Mode::Exclusive);
    Claim { contender, round, mode, ticket, owner, held_since: None }
}

fn rows_of(claim: &Claim) -> Vec<StoredRow> {
    vec![StoredRow::entering(claim)]
}

/// The request that we give up a round.
fn revocation(round: i64) -> Revocation {
    let (by, why) = ("ops".to_owned(), "it hangs".to_owned());
    Revocation { contender: ME, round, by, why, kind: RevokeKind::Request }
}

/// A row that a later version may write.
fn unreadable(host: i32) -> Vec<StoredRow> {
    let row = StoredRow::entering(&claim(host, 1, None));
    vec![StoredRow { row_name: "priority::".to_owned(), ..row }]
}

/// The read of our rows, and of those of these hosts ahead.
fn front(hosts: &[i32]) -> Read {
    Read::front(ME, hosts.iter().map(|host| id(*host)))
}

/// A contender and its history so far.
struct Script {
    contender: Contender,
    now: Duration,
    jitter: f64,
    stamp: i64,
    /// The outputs that the script has not yet expected.
    said: VecDeque<ContenderOutput>,
    /// All operations so far; the last one may still be outstanding.
    ops: Vec<OpId>,
    writes: Vec<Write>,
    /// The content of our rows, by their last write.
    claim: Claim,
    /// A `revoked::` row of ours was seen.
    revoked_row_seen: bool,
    /// The stamp of the contender's last input.
    told: i64,
    /// The TTL of the next write.
    ttl: Duration,
    /// What our rows must state from the next write on.
    held_since: Option<i64>,
}

impl Script {
    fn new() -> Self {
        Script {
            contender: Contender::new(ME),
            now: s(1_000),
            jitter: 0.5,
            stamp: 1_700_000_000_000_000,
            said: VecDeque::new(),
            ops: Vec::new(),
            writes: Vec::new(),
            claim: claim(ME.host, 0, None),
            revoked_row_seen: false,
            told: 0,
            held_since: None,
            ttl: TTL,
        }
    }

    // Inputs of the contender.

    /// Every state before the grant, with its operation outstanding.
    fn acquiring() -> [Self; 5] {
        [
            Script::announcing(exclusive()),
            Script::looking(exclusive()),
            Script::drawing(exclusive(), &[queued(1, 7)], 8),
            Script::settling(exclusive(), &[queued(1, 7)], 8),
            Script::waiting(exclusive()),
        ]
    }

    /// Announced, but not yet acknowledged.
    fn announcing(acquire: Acquire) -> Self {
        let mut script = Script::new();
        script.acquire(acquire);
        script
    }

    fn acquire(&mut self, acquire: Acquire) {
        self.tell(ContenderInput::Acquire(acquire));
        self.announces();
    }

    /// Announced, and the first read is in progress.
    fn looking(acquire: Acquire) -> Self {
        let mut script = Script::announcing(acquire);
        script.applied();
        script.reads(Read::Object);
        script
    }

    /// Writing a ticket after seeing `others`.
    fn drawing(acquire: Acquire, others: &[Vec<StoredRow>], ticket: i64) -> Self {
        let mut script = Script::looking(acquire);
        script.sees(others);
        script.draws(ticket);
        script
    }

    /// In the queue after seeing `others`, and reading once more.
    fn settling(acquire: Acquire, others: &[Vec<StoredRow>], ticket: i64) -> Self {
        let mut script = Script::drawing(acquire, others, ticket);
        script.applied();
        script.reads(Read::Object);
        script
    }

    /// Behind host 1, which has ticket 7, and asking whether it is still there.
    fn waiting(acquire: Acquire) -> Self {
        let mut script = Script::settling(acquire, &[queued(1, 7)], 8);
        script.sees(&[queued(1, 7)]);
        script.reads(front(&[1]));
        script
    }

    /// Held on the fast path.
    fn held(acquire: Acquire) -> Self {
        let mut script = Script::looking(acquire);
        script.sees(&[]);
        script.is_let_in();
        script
    }

    /// Held with a ticket.
    fn held_with_ticket(acquire: Acquire) -> Self {
        let mut script = Script::settling(acquire, &[queued(1, 7)], 8);
        script.sees(&[]);
        script.is_let_in();
        script
    }

    /// The write is acknowledged.
    fn applied(&mut self) {
        self.written(WriteOutcome::Applied);
    }

    fn written(&mut self, outcome: WriteOutcome) {
        let op = self.outstanding();
        self.tell(ContenderInput::Written { op, outcome });
    }

    /// The read shows our own rows and those of others.
    fn sees(&mut self, others: &[Vec<StoredRow>]) {
        let mine = rows_of(&self.claim);
        self.sees_only(&[&[mine], others].concat());
    }

    /// The read shows our own rows, those of others, and a request to give up a round.
    fn sees_revoked(&mut self, round: i64, others: &[Vec<StoredRow>]) {
        self.revoked_row_seen = true;
        self.sees(&[&[vec![StoredRow::revoked(&revocation(round))]], others].concat());
    }

    /// The read shows these rows.
    fn sees_only(&mut self, rows: &[Vec<StoredRow>]) {
        self.sees_statics(rows, Statics::default());
    }

    /// The read shows these rows and static columns.
    fn sees_statics(&mut self, rows: &[Vec<StoredRow>], statics: Statics) {
        let op = self.outstanding();
        self.tell(ContenderInput::Read { op, rows: Ok(rows.concat()), statics });
    }

    fn read_fails(&mut self, failure: ReadFailure) {
        let op = self.outstanding();
        self.tell(ContenderInput::Read { op, rows: Err(failure), statics: Statics::default() });
    }

    fn release(&mut self) {
        self.tell(ContenderInput::Release);
    }

    /// Time passes, and no input comes yet.
    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Time passes up to the deadline, which is reached after exactly this time.
    fn sleeps(&mut self, time: Duration) {
        let deadline = self.contender.deadline().expect("there is something to wait for");
        assert_eq!(deadline - self.now, time, "another deadline was expected");
        self.wakes();
    }

    /// Time passes up to the deadline, whenever that is.
    fn wakes(&mut self) {
        self.now = self.contender.deadline().expect("there is something to wait for");
        self.tell(ContenderInput::Tick);
    }

    fn tell(&mut self, input: ContenderInput) {
        self.is_silent();
        let said = self.handle(input);
        self.told = self.stamp;
        for output in &said {
            match output {
                ContenderOutput::Exchange { op, write, .. } if self.writes.contains(write) => {
                    self.note_op(*op);
                    self.writes.push(write.clone());
                }
                ContenderOutput::Write { op, write }
                | ContenderOutput::Exchange { op, write, .. } => self.note_write(*op, write),
                ContenderOutput::Read { op, .. } => self.note_op(*op),
                ContenderOutput::Event(_) => {}
            }
        }
        self.said.extend(said);
        self.check_contract();
    }

    fn handle(&mut self, input: ContenderInput) -> Vec<ContenderOutput> {
        self.stamp += 1;
        let now = Now { elapsed: self.now, stamp: self.stamp, jitter: self.jitter };
        self.contender.handle(now, input);
        std::iter::from_fn(|| self.contender.poll()).collect()
    }

    // Outputs of the contender.

    fn announces(&mut self) {
        let write = self.writes_something();
        let round = write.stamp;
        assert!(round > self.claim.round, "rounds grow");
        self.held_since = None;
        self.claim = Claim { round, ticket: None, held_since: None, ..self.claim.clone() };
        self.claim.owner = "me".into();
        self.claim.mode = match &write.change {
            Change::Put { claim, .. } => claim.mode,
            Change::Revoke { .. } | Change::Delete { .. } | Change::Mark | Change::Sweep { .. } => {
                unreachable!("nothing else announces")
            }
        };
        assert_eq!(write.change, self.put());
    }

    fn draws(&mut self, ticket: i64) {
        self.claim.ticket = Some(ticket);
        self.puts();
    }

    /// Our rows are written whole, with a new stamp.
    fn puts(&mut self) {
        self.claim.held_since = self.held_since;
        let write = self.writes_something();
        assert_eq!(write.change, self.put());
        let before = self.writes.iter().filter(|before| before.stamp == write.stamp);
        assert_eq!(before.count(), 1, "a new stamp");
    }

    /// Repeats the last write exactly.
    fn writes_again(&mut self) {
        let write = self.writes_something();
        assert_eq!(write, self.writes[self.writes.len() - 2]);
    }

    /// Deletes our rows; returns what that reports to waiters.
    fn deletes(&mut self) -> Option<LastRelease> {
        let write = self.writes_something();
        let Change::Delete { contender, revoked, last_release } = write.change else {
            panic!("{write:?} deletes nothing");
        };
        assert_eq!(contender, ME);
        assert_eq!(revoked, self.revoked_row_seen);
        last_release
    }

    fn writes_something(&mut self) -> Write {
        match self.said.pop_front() {
            Some(ContenderOutput::Write { write, .. }) => write,
            other => panic!("a write was expected, not {other:?}"),
        }
    }

    #[track_caller]
    fn reads(&mut self, expected: Read) {
        match self.said.pop_front() {
            Some(ContenderOutput::Read { read, .. }) => assert_eq!(read, expected),
            other => panic!("a read was expected, not {other:?}"),
        }
    }

    fn says(&mut self, expected: ContenderEvent) {
        assert_eq!(self.said.pop_front(), Some(ContenderOutput::Event(expected)));
    }

    /// Held, for this long from now.
    fn is_held_for(&mut self, time: Duration) {
        let lease = self.is_let_in();
        assert_eq!(lease.deadline() - self.now, time);
    }

    fn is_let_in(&mut self) -> Lease {
        match self.said.pop_front() {
            Some(ContenderOutput::Event(ContenderEvent::Held { lease, terms: granted })) => {
                assert_eq!(granted, LeaseTerms::new(self.ttl, s(1)));
                assert!(lease.is_valid(self.now));
                self.held_since = Some(self.told / 1000);
                lease
            }
            other => panic!("the lock was expected, not {other:?}"),
        }
    }

    /// Renewed, for this long from now.
    fn is_renewed_for(&mut self, time: Duration) {
        match self.said.pop_front() {
            Some(ContenderOutput::Event(ContenderEvent::Renewed { lease, .. })) => {
                assert_eq!(lease.deadline() - self.now, time);
            }
            other => panic!("a renewal was expected, not {other:?}"),
        }
    }

    /// A renewal is due: it begins with a read, which shows the rows, and writes them again.
    fn begins_to_renew(&mut self) {
        self.sleeps(RENEWAL_DUE);
        self.checks();
        self.puts();
    }

    /// Reads its own rows, which are intact.
    fn checks(&mut self) {
        self.reads(Read::Contender(ME));
        self.sees(&[]);
    }

    /// A holder renews its rows when that is due, and begins to read the object.
    fn renews(&mut self) {
        self.sleeps(RENEWAL_DUE);
        self.renews_now();
    }

    /// The same if it is already due, with a lease from now on.
    fn renews_now(&mut self) {
        self.checks();
        self.puts();
        self.applied();
        self.is_renewed_for(LEASE);
        self.reads(Read::Object);
    }

    /// The same behind host 1, which is still there. It reads its own rows only.
    fn renews_while_it_waits(&mut self) {
        self.pass(RENEWAL_DUE);
        self.sees(&[queued(1, 7)]);
        self.checks();
        self.puts();
        self.applied();
        self.reads(Read::Contender(ME));
    }

    fn fails(&mut self, failure: Failure) {
        self.says(ContenderEvent::Failed(failure));
        self.gives_back();
    }

    fn is_lost(&mut self, loss: Loss) {
        self.loses(loss);
        self.gives_back();
    }

    /// Lost, and then released, unless that was the input which found it lost.
    fn loses(&mut self, loss: Loss) {
        self.says(ContenderEvent::Lost(loss));
        if self.said.is_empty() {
            self.release();
        }
    }

    fn is_taken(&mut self) {
        self.says(ContenderEvent::Taken);
        self.gives_back();
    }

    /// The rows are deleted, and the contender is idle.
    fn gives_back(&mut self) {
        self.deletes();
        self.applied();
        self.says(ContenderEvent::Released);
        self.revoked_row_seen = false;
        assert!(self.contender.is_idle());
    }

    fn is_silent(&self) {
        assert_eq!(self.said, [], "nothing more was expected");
    }

    // The contract.

    fn put(&self) -> Change {
        Change::Put { claim: self.claim.clone(), ttl_seconds: ttl_seconds(self.ttl) }
    }

    /// The operation to answer: the last one.
    fn outstanding(&self) -> OpId {
        *self.ops.last().expect("an operation was started")
    }

    fn note_write(&mut self, op: OpId, write: &Write) {
        self.note_op(op);
        let latest = self.writes.iter().max_by_key(|write| write.stamp);
        let repeated = self.writes.last() == Some(write);
        assert!(
            repeated || latest.is_none_or(|latest| write.stamp > latest.stamp),
            "a stamp was used for something new: {write:?} after {latest:?}"
        );
        self.writes.push(write.clone());
    }

    fn note_op(&mut self, op: OpId) {
        assert!(self.ops.last().is_none_or(|last| op > *last), "ids grow");
        self.ops.push(op);
    }

    /// Checks the present state against what holds in every state.
    fn check_contract(&mut self) {
        let rests = matches!(self.contender.state, State::Idle | State::Lost);
        assert_eq!(self.contender.deadline().is_none(), rests);
        assert!(
            self.contender.deadline().is_none_or(|deadline| deadline > self.now),
            "nothing is left to be done now"
        );
        let before = format!("{:?}", self.contender);
        let stale = self.ops.iter().rev().skip(1).take(3).copied().collect::<Vec<_>>();
        let never = self.ops.last().copied().unwrap_or_default().next();
        for op in stale.into_iter().chain([never]) {
            let outcome = WriteOutcome::Applied;
            assert_eq!(self.handle(ContenderInput::Written { op, outcome }), [], "a stale answer");
            let (rows, statics) = (Ok(Vec::new()), Statics::default());
            assert_eq!(
                self.handle(ContenderInput::Read { op, rows, statics }),
                [],
                "a stale answer"
            );
        }
        assert_eq!(self.handle(ContenderInput::Tick), [], "a spurious tick");
        assert_eq!(format!("{:?}", self.contender), before);
    }
}
