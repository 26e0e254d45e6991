//! What the tests of objects drive: objects of several clients, a table, and messages.

mod perform;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::core::bakery::{
    Acquire, Change, Claim, ContenderId, LeaseTerms, Mode, OpId, Patience, Read, Revocation,
    RevokeKind, Seen, Statics, StoredRow, Write,
};
use crate::core::object::io::{
    Caller, CallerId, Health, HolderRequest, Input, Loss, Need, Now, Origin, Refusal, Reply,
    Report, RequestId,
};
use crate::core::object::table::Table;
use crate::core::object::{Memory, Object, Settings};
use crate::core::turns::{KeptEnd, Request, TimedRequest, TurnId};

pub(super) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(super) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const SKEW: Duration = s(1);

/// When the tests begin, in µs since the Unix epoch.
const ORIGIN: i64 = 1_700_000_000_000_000;

/// A caller that wants the object for itself, and waits for long.
pub(super) fn wants(number: CallerId) -> Caller {
    let acquire = Acquire {
        mode: Mode::Exclusive,
        terms: LeaseTerms::new(s(60), SKEW),
        patience: Patience::Wait,
        renew: true,
        gives_up: None,
        owner: format!("caller {number}").into(),
    };
    let (min_hold, at_least) = (Duration::ZERO, Duration::ZERO);
    let (asked, deadline) = (Duration::ZERO, s(100_000));
    let (hold_terms, yields) = (None, None);
    Caller { number, acquire, hold_terms, yields, min_hold, at_least, asked, deadline }
}

pub(super) fn shared(number: CallerId) -> Caller {
    in_mode(number, Mode::Shared)
}

pub(super) fn limited(number: CallerId, most: i32) -> Caller {
    in_mode(number, Mode::Limited(most))
}

fn in_mode(number: CallerId, mode: Mode) -> Caller {
    let caller = wants(number);
    Caller { acquire: Acquire { mode, ..caller.acquire }, ..caller }
}

/// The same caller, which does not wait.
pub(super) fn tries(caller: Caller) -> Caller {
    let acquire = Acquire { patience: Patience::Try, ..caller.acquire };
    Caller { acquire, ..caller }
}

/// How a turn ended for its guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Lost(Loss),
}

/// One client.
struct Client {
    id: ContenderId,
    object: Object,
    inputs: VecDeque<Input>,
    operations: usize,
    operations_of_machine: usize,
    looks: usize,
    sweep_reads: usize,
    connections: usize,
    requests_to_keepers: usize,
}

pub(super) struct World {
    now: Duration,
    last_stamp: i64,
    last_request: RequestId,
    clients: Vec<Client>,
    pub(super) table: Table,
    /// Whether callers collect their guards.
    pub(super) collects: bool,
    /// Whether connections take longer than the test, unless it says that one is there.
    pub(super) connects_slowly: bool,
    /// Whether messages are lost.
    pub(super) loses_messages: bool,
    /// Whether deletions by clients have no effect, and no answer.
    pub(super) loses_deletions: bool,
    /// Whether the database refuses all statements.
    pub(super) refuses: bool,
    /// Whether reads show no rows.
    pub(super) loses_rows: bool,
    /// Whether blocks of tokens can be issued.
    pub(super) issues_blocks: bool,
    turns: BTreeMap<CallerId, TurnId>,
    origins: BTreeMap<CallerId, Origin>,
    refusals: BTreeMap<CallerId, Refusal>,
    replies: BTreeMap<RequestId, Reply>,
    ended: BTreeMap<TurnId, Ended>,
    /// The turns that were said to be at risk, each time.
    at_risk: Vec<TurnId>,
    /// The turns whose holders were asked to finish.
    expiring: Vec<TurnId>,
    reports: Vec<Report>,
    /// The mark of the object.
    mark: Option<i64>,
}

impl World {
    /// Clients that are peers.
    pub(super) fn of(clients: u128) -> Self {
        Self::new(clients, true)
    }

    /// Clients that know each other by the table alone.
    pub(super) fn without_messages(clients: u128) -> Self {
        Self::new(clients, false)
    }

    /// Clients that use the object again and again, and keep it meanwhile.
    pub(super) fn keeping(clients: u128, has_network: bool) -> Self {
        let mut world = Self::new(clients, has_network);
        for Client { id, object, .. } in &mut world.clients {
            let settings = Settings { keep_idle: s(1), ..object.settings };
            *object = Object::new(*id, settings, Memory::of_use(ms(300)));
        }
        world
    }

    fn new(clients: u128, has_network: bool) -> Self {
        let settings = Settings {
            patience: s(5),
            turns: true,
            has_network,
            exchanges: false,
            guest_hold_max: None,
            max_clock_skew: SKEW,
            keep_idle: Duration::ZERO,
        };
        let client = |number: u128| {
            // As clients choose their ids.
            let id = ContenderId { host: 1, client: 4 << 76 | number, slot: 0 };
            let object = Object::new(id, settings, Memory::default());
            let (inputs, operations, operations_of_machine) = (VecDeque::new(), 0, 0);
            let (looks, sweep_reads, connections, requests_to_keepers) = (0, 0, 0, 0);
            Client {
                id,
                object,
                inputs,
                operations,
                operations_of_machine,
                looks,
                sweep_reads,
                connections,
                requests_to_keepers,
            }
        };
        World {
            now: s(1_000),
            last_stamp: 0,
            last_request: 0,
            clients: (0..clients).map(client).collect(),
            table: Table::default(),
            collects: true,
            connects_slowly: false,
            loses_messages: false,
            loses_deletions: false,
            refuses: false,
            loses_rows: false,
            issues_blocks: true,
            turns: BTreeMap::new(),
            origins: BTreeMap::new(),
            refusals: BTreeMap::new(),
            replies: BTreeMap::new(),
            ended: BTreeMap::new(),
            at_risk: Vec::new(),
            expiring: Vec::new(),
            reports: Vec::new(),
            mark: None,
        }
    }

    // What happens.

    /// A caller asks, and has its turn within a second.
    pub(super) fn granted(&mut self, client: usize, caller: Caller) -> TurnId {
        let number = caller.number;
        self.asks(client, caller);
        self.passes(s(1));
        self.turn_of(number).expect("the object is free")
    }

    pub(super) fn asks(&mut self, client: usize, caller: Caller) {
        let caller = Caller { asked: self.now, ..caller };
        self.tell(client, Input::Acquire(Box::new(caller)));
    }

    /// A client takes back a request that was never in the line of another one.
    pub(super) fn withdraws(&mut self, guest: u128, keeper: usize) {
        let request = TimedRequest { sent: self.now, request: Request::Withdraw { request: 1 } };
        let name = Some(format!("client {guest}").into());
        self.tell(keeper, Input::Request { guest, name, request });
    }

    /// The connection of a client to its keeper has ended.
    pub(super) fn is_disconnected(&mut self, client: usize, keeper: usize) {
        let guest = self.clients[client].id.client;
        self.tell(keeper, Input::GuestLeft { guest });
    }

    /// A caller asks that waits for so long.
    pub(super) fn asks_for(&mut self, client: usize, caller: Caller, patience: Duration) {
        self.asks(client, Caller { deadline: self.now + patience, ..caller });
    }

    /// A caller stops waiting.
    pub(super) fn leaves(&mut self, client: usize, caller: CallerId) {
        self.tell(client, Input::Leave { caller });
    }

    /// Another contender, of a client that can't be reached, holds the object, without an end.
    pub(super) fn is_held_by_stranger(&mut self, contender: ContenderId, round: i64, mode: Mode) {
        let owner = "stranger".into();
        let claim = Claim { contender, round, mode, ticket: None, owner, held_since: None };
        let change = Change::Put { claim, ttl_seconds: 100_000 };
        let stamp = self.moment().stamp;
        self.table.write(self.now, &Write { stamp, change });
    }

    /// A client has a new connection to its keeper.
    pub(super) fn is_reconnected(&mut self, client: usize, keeper: usize) {
        let keeper = self.clients[keeper].id.client;
        self.tell(client, Input::Reconnected { keeper });
    }

    /// A client is connected to another one, or can't be.
    pub(super) fn is_connected(&mut self, client: usize, keeper: usize, is_reachable: bool) {
        let keeper = self.clients[keeper].id.client;
        self.tell(client, Input::Connected { keeper, is_reachable });
    }

    /// A turn is returned; what became of that at once.
    pub(super) fn returns(&mut self, client: usize, turn: TurnId) -> Option<Reply> {
        self.requests(client, turn, |request| HolderRequest::Return { request: Some(request) })
    }

    /// A holder wants something confirmed; the answer, if it comes at once.
    pub(super) fn confirms(&mut self, client: usize, turn: TurnId, need: Need) -> Option<Reply> {
        self.requests(client, turn, |request| HolderRequest::Confirm { need, request })
    }

    /// A holder wants its rows written otherwise; the answer, if it comes at once.
    pub(super) fn revises(
        &mut self,
        client: usize,
        turn: TurnId,
        (ttl, owner): (Option<Duration>, Option<&str>),
    ) -> Option<Reply> {
        let terms = ttl.map(|ttl| LeaseTerms::new(ttl, s(1)));
        let owner = owner.map(Arc::from);
        self.requests(client, turn, |request| HolderRequest::Revise { terms, owner, request })
    }

    /// A holder shares what it had alone; the answer, if it comes at once.
    pub(super) fn shares(&mut self, client: usize, turn: TurnId) -> Option<Reply> {
        self.requests(client, turn, |request| HolderRequest::Share { request })
    }

    /// A holder wants a token; the answer, if it comes at once.
    pub(super) fn issues_token(&mut self, client: usize, turn: TurnId) -> Option<Reply> {
        self.requests(client, turn, |request| HolderRequest::IssueToken { request })
    }

    fn requests(
        &mut self,
        client: usize,
        turn: TurnId,
        request: impl FnOnce(RequestId) -> HolderRequest,
    ) -> Option<Reply> {
        self.last_request += 1;
        let number = self.last_request;
        self.tell(client, Input::Holder { turn, request: request(number) });
        self.replies.get(&number).cloned()
    }

    pub(super) fn health(&mut self, client: usize, health: Health) {
        self.tell(client, Input::Health(health));
    }

    pub(super) fn keeps_too_many(&mut self, client: usize) {
        self.tell(client, Input::TooManyKept);
    }

    /// The contender of a client is asked to leave.
    pub(super) fn revokes(&mut self, client: usize) {
        let contender = self.clients[client].id;
        let seen =
            self.table.read(self.now, Read::Entering(contender)).expect("the table is there");
        let round = seen.rows.first().and_then(|row| row.round).expect("it is in the table");
        let (by, why) = ("operator".to_owned(), String::new());
        let revocation = Revocation { contender, round, by, why, kind: RevokeKind::Request };
        let change = Change::Revoke { revocation, ttl_seconds: 60 };
        let stamp = self.moment().stamp;
        self.table.write(self.now, &Write { stamp, change });
    }

    /// A read of a client is answered that met very many dead rows.
    pub(super) fn meets_dead_rows(&mut self, client: usize, read: Read) {
        self.sees(client, read, Statics::default(), true);
    }

    /// A read of a client shows a mark that is this far ahead of its clock.
    pub(super) fn sees_mark_ahead(&mut self, client: usize, ahead: Duration) {
        let ahead = i64::try_from(ahead.as_micros()).expect("it is short");
        let mark = Some(self.moment().wall + ahead);
        self.sees(client, Read::Object, Statics { mark, ..Statics::default() }, false);
    }

    /// The object has a mark that is this far ahead of all clocks.
    pub(super) fn is_marked_ahead(&mut self, ahead: Duration) {
        let ahead = i64::try_from(ahead.as_micros()).expect("it is short");
        self.mark = Some(self.moment().wall + ahead);
    }

    fn sees(&mut self, client: usize, read: Read, statics: Statics, many_dead: bool) {
        let seen = Ok(Seen { rows: Vec::new(), statics, many_dead });
        let read = Box::new(read);
        self.tell(client, Input::Read { slot: 0, op: OpId::default(), read, seen });
    }

    pub(super) fn closes(&mut self, client: usize) {
        self.tell(client, Input::Close);
    }

    /// Nothing is known of how the object was used.
    pub(super) fn forgets(&mut self, client: usize) {
        let Client { id, object, .. } = &mut self.clients[client];
        *object = Object::new(*id, object.settings, Memory::default());
    }

    /// An object that is idle is forgotten, but for what counts later, and used again.
    pub(super) fn begins_anew(&mut self, client: usize) {
        let now = self.moment();
        let Client { id, object, .. } = &mut self.clients[client];
        assert!(object.is_idle());
        *object = Object::new(*id, object.settings, object.memory(now));
    }

    /// The task of an object fails, and another one begins.
    pub(super) fn fails(&mut self, client: usize) {
        let now = self.moment();
        let Client { id, object, operations_of_machine, .. } = &mut self.clients[client];
        let settings = object.settings;
        let failed = std::mem::replace(object, Object::new(*id, settings, Memory::default()));
        *object = Object::new(*id, settings, failed.memory_of_failed(now));
        *operations_of_machine = 0;
    }

    /// Time passes.
    pub(super) fn passes(&mut self, time: Duration) {
        const WAKES_MAX: usize = 100_000;
        let until = self.now + time;
        for _ in 0..WAKES_MAX {
            let now = self.moment();
            let sleeps =
                self.clients.iter().filter_map(|client| client.object.sleep(now.of_turns()));
            let next = sleeps.min().map(|sleep| self.now.saturating_add(sleep));
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            // Timers are a moment late, and never stand still.
            self.now = next + Duration::from_micros(1);
            for client in 0..self.clients.len() {
                self.tell(client, Input::Tick);
            }
        }
        let objects: Vec<_> = self.clients.iter().map(|client| &client.object).collect();
        panic!("it wakes up over and over: {objects:#?}");
    }

    fn tell(&mut self, client: usize, input: Input) {
        self.clients[client].inputs.push_back(input);
        while let Some(client) = self.clients.iter().position(|it| !it.inputs.is_empty()) {
            let input = self.clients[client].inputs.pop_front().expect("it was there");
            let now = self.moment();
            self.clients[client].object.handle(now, input);
            while let Some(output) = self.clients[client].object.poll() {
                self.perform(client, output);
            }
        }
    }

    fn moment(&mut self) -> Now {
        let wall = ORIGIN + i64::try_from(self.now.as_micros()).expect("it is soon");
        self.last_stamp = wall.max(self.last_stamp + 1);
        let stamp = self.last_stamp;
        Now { elapsed: self.now, boot: self.now, wall, stamp, jitter: 0.5, chance: 0.5 }
    }

    // What is seen.

    pub(super) fn object(&self, client: usize) -> &Object {
        &self.clients[client].object
    }

    /// The id of a client, for others.
    pub(super) fn id(&self, client: usize) -> u128 {
        self.clients[client].id.client
    }

    fn number_of(&self, client: u128) -> Option<usize> {
        self.clients.iter().position(|it| it.id.client == client)
    }

    /// The turn that a caller was given.
    pub(super) fn turn_of(&self, caller: CallerId) -> Option<TurnId> {
        self.turns.get(&caller).copied()
    }

    /// Where the turn of a caller came from.
    pub(super) fn origin_of(&self, caller: CallerId) -> Option<Origin> {
        self.origins.get(&caller).copied()
    }

    /// The number of the last request of a holder.
    pub(super) fn last_request(&self) -> RequestId {
        self.last_request
    }

    pub(super) fn reply_to(&self, request: RequestId) -> Option<&Reply> {
        self.replies.get(&request)
    }

    pub(super) fn refusal(&self, caller: CallerId) -> Option<&Refusal> {
        self.refusals.get(&caller)
    }

    /// How a turn ended by itself, if it did.
    pub(super) fn ended(&self, turn: TurnId) -> Option<&Ended> {
        self.ended.get(&turn)
    }

    pub(super) fn live_rows(&self) -> usize {
        self.table.live_rows(self.now)
    }

    /// How many reads and writes a client has made.
    pub(super) fn operations(&self, client: usize) -> usize {
        self.clients[client].operations
    }

    /// The same of its present task.
    pub(super) fn operations_of_machine(&self, client: usize) -> usize {
        self.clients[client].operations_of_machine
    }

    /// How often a client has connected to others.
    pub(super) fn connections(&self, client: usize) -> usize {
        self.clients[client].connections
    }

    /// How many requests a client has sent to keepers.
    pub(super) fn requests_to_keepers(&self, client: usize) -> usize {
        self.clients[client].requests_to_keepers
    }

    /// How the rows in the table want the object.
    pub(super) fn modes(&self) -> Vec<Option<i8>> {
        self.rows().iter().map(|row| row.mode).collect()
    }

    /// Whom the rows in the table name.
    pub(super) fn owners(&self) -> Vec<Option<String>> {
        self.rows().into_iter().map(|row| row.owner).collect()
    }

    fn rows(&self) -> Vec<StoredRow> {
        self.table.read(self.now, Read::Object).expect("the table is there").rows
    }

    /// Whether the holder of a turn was asked to finish.
    pub(super) fn is_expiring(&self, turn: TurnId) -> bool {
        self.expiring.contains(&turn)
    }

    /// How often a turn was said to be at risk.
    pub(super) fn warnings(&self, turn: TurnId) -> usize {
        self.at_risk.iter().filter(|it| **it == turn).count()
    }

    /// How often a client has looked for contenders in the table.
    pub(super) fn looks(&self, client: usize) -> usize {
        self.clients[client].looks
    }

    /// How often the sweeps of a client have read the object.
    pub(super) fn sweep_reads(&self, client: usize) -> usize {
        self.clients[client].sweep_reads
    }

    /// How kept places ended.
    pub(super) fn kept_ends(&self) -> Vec<KeptEnd> {
        let ends = self.reports.iter().filter_map(|report| {
            if let Report::KeptEnds(end) = report { Some(*end) } else { None }
        });
        ends.collect()
    }

    pub(super) fn reports(&self) -> &[Report] {
        &self.reports
    }

    pub(super) fn is_kept(&self, client: usize) -> bool {
        self.clients[client].object.is_kept()
    }

    /// Whether what a client would remember of the object is of use.
    pub(super) fn remembers(&mut self, client: usize) -> bool {
        let now = self.moment();
        self.clients[client].object.memory(now).is_of_use(now)
    }

    pub(super) fn is_idle(&self, client: usize) -> bool {
        self.clients[client].object.is_idle()
    }
}
