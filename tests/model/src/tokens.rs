//! A small model of its own, of fencing tokens: a holder draws them again and again while it is
//! removed by force, and so does its successor.
//!
//! The holder knows nothing of its removal until it reads its rows, however long that takes. The
//! fence and its rows are on three replicas; writes are late, or never acknowledged, and each
//! client may take any of two clocks for each token. What a value is, and what rows show, is
//! computed by the shipped [`Right::next`] and [`Snapshot`]. The order of the requests is that of
//! `src/guard/token_issuer.rs`, written once more.

mod replicas;

use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};

use self::replicas::{Answer, Asked, Data, Replicas, Write};
use crate::core::bakery::{
    Claim, Mode, Revocation, RevokeKind, Right, SPACING, Snapshot, StoredRow,
};
use crate::core::turns::TokenBlock;
use crate::search::Tell;
use crate::sightings::{FirstViolation, Sight, Sightings};
use crate::store::id_of;

/// What clients' clocks say, in µs: no more apart than they may be, and not a multiple of what is
/// between tokens.
const CLOCKS: [i64; 2] = [1_000_000, 1_002_500];
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// Stamps of the holder's rows: of its announcement, and this much more at each renewal.
const STAMP: i64 = 10;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A token is handed out once the fence is acknowledged, whatever became of the rows.
    OwnRowsUnread,
    /// The own rows are read before the fence is acknowledged.
    OwnRowsReadEarly,
    /// The rows are deleted before the `revoked::` row is acknowledged.
    RowsDeletedEarly,
    /// The fence is read before the lock is granted.
    FenceReadEarly,
    /// The own rows are read, and tokens handed out, while the fence may be on no replica yet.
    FenceUnacknowledged,
}

/// How often holder and successor draw a token, how often the holder renews, and what is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) draws: [u8; 2],
    pub(crate) renewals: u8,
    /// How many more tokens are reserved each time, for later turns.
    pub(crate) reserve: u8,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) must_see: &'static [Sight],
}

/// Tokens of a plan.
#[derive(Debug)]
pub(crate) struct Tokens {
    plan: Plan,
    sightings: Arc<Sightings>,
    violations: FirstViolation,
}

/// A moment of a history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    replicas: Replicas,
    clients: [Client; 2],
    operator: Operator,
    /// The stamp of the holder's rows, and how often it may still write them again.
    stamp: i64,
    renewals_left: u8,
    /// Whether the tokens of one client ceased to grow.
    fell: bool,
}

/// A client that draws tokens: its number, and that of its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// The holder that is removed.
    Holder = 0,
    /// The successor that is let in once the holder's rows are gone.
    Successor = 1,
}

use Role::{Holder, Successor};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    stage: Stage,
    draws_left: u8,
    /// Tokens that it has reserved.
    block: Option<TokenBlock>,
    /// The smallest and the largest token that it was given.
    tokens: Option<(i64, i64)>,
}

/// What a read of the fence shows.
type Seen = Option<i64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// It wants nothing yet.
    Outside,
    /// It reads whether the holder is there. With the flaw it has read the fence before.
    Looking(Option<Seen>),
    /// It holds the lock, and draws nothing.
    Resting,
    ReadingFence,
    /// It has read the fence.
    Choosing(Seen),
    /// It writes the fence, as the last of these tokens.
    Writing(TokenBlock),
    /// It reads its own rows, and then is given the first of these tokens.
    ReadingRows(TokenBlock),
    /// It knows that it is removed.
    Lost,
}

/// The client that removes the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Idle,
    /// The `revoked::` row is under way.
    Revoking,
    /// It is acknowledged.
    Revoked,
    /// The deletion of the rows is under way.
    Removing,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The successor wants the lock.
    Begin,
    /// It wants a token.
    Draw(Role),
    /// It is given one that it has reserved.
    HandOut(Role),
    /// It writes the fence, by this clock.
    Write(Role, i64),
    /// It waits no longer for its fence to be acknowledged.
    GiveUp(Role),
    /// A replica answers its read.
    Answer(Role, Answer),
    /// Its fence is acknowledged, and has reached these replicas.
    Acknowledge(Role, u8),
    /// The holder writes its rows again.
    Renew,
    /// The operator asks the holder to leave.
    Revoke,
    /// That is acknowledged.
    AcknowledgeRevocation(u8),
    /// The operator deletes the holder's rows of this stamp.
    Remove(i64),
}

impl Tokens {
    pub(crate) fn new(plan: Plan, sightings: Arc<Sightings>) -> Self {
        Tokens { plan, sightings, violations: FirstViolation::default() }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaw == Some(flaw)
    }

    // What a step does.

    fn begin_read(moment: &mut Moment, role: Role, asked: Asked, stage: Stage) {
        moment.replicas.begin_read(role as usize, asked);
        moment.clients[role as usize].stage = stage;
    }

    fn draw(moment: &mut Moment, role: Role) {
        moment.clients[role as usize].draws_left -= 1;
        Self::begin_read(moment, role, Asked::Fence, Stage::ReadingFence);
    }

    fn write(&self, moment: &mut Moment, role: Role, clock: i64) {
        let Stage::Choosing(fence) = moment.clients[role as usize].stage else {
            unreachable!("the fence is written once it was read")
        };
        let value = Right::Raise.next(fence, clock, clock, MAX_CLOCK_SKEW);
        let value = value.expect("the fence is ahead by less than clocks differ");
        let more = Duration::from_micros(SPACING.into()) * u32::from(self.plan.reserve);
        let block = TokenBlock::from(value, value, more * 4).expect("it begins with the clock");
        if self.has(Flaw::OwnRowsReadEarly) && role == Holder {
            Self::begin_read(moment, role, Asked::Rows, Stage::ReadingRows(block));
        } else if self.has(Flaw::FenceUnacknowledged) && role == Holder {
            moment.replicas.send(Write::Fence(block.last()));
            Self::begin_read(moment, role, Asked::Rows, Stage::ReadingRows(block));
        } else {
            Self::send_fence(moment, role, block);
        }
    }

    fn send_fence(moment: &mut Moment, role: Role, block: TokenBlock) {
        moment.replicas.send(Write::Fence(block.last()));
        moment.clients[role as usize].stage = Stage::Writing(block);
    }

    fn answer(&self, moment: &mut Moment, role: Role, answer: Answer) {
        let Some(seen) = moment.replicas.answer(role as usize, answer) else { return };
        match moment.clients[role as usize].stage {
            Stage::Looking(fence) if is_let_in(seen) => {
                // With the flaw the first token is drawn from what was read before.
                let stage = fence.map_or(Stage::Resting, Stage::Choosing);
                moment.clients[role as usize].stage = stage;
            }
            looking @ Stage::Looking(_) => Self::begin_read(moment, role, Asked::Rows, looking),
            Stage::ReadingFence if self.has(Flaw::FenceReadEarly) && role == Successor => {
                Self::begin_read(moment, role, Asked::Rows, Stage::Looking(Some(seen.fence)));
            }
            Stage::ReadingFence => self.fence_read(moment, role, seen.fence),
            Stage::ReadingRows(_) if !stands(seen) => {
                self.sightings.note(Sight::TokenRefused);
                moment.clients[role as usize].stage = Stage::Lost;
            }
            Stage::ReadingRows(block) if self.has(Flaw::OwnRowsReadEarly) => {
                Self::send_fence(moment, role, block);
            }
            Stage::ReadingRows(block) => self.reserved(moment, role, block),
            stage @ (Stage::Outside
            | Stage::Resting
            | Stage::Choosing(_)
            | Stage::Writing(_)
            | Stage::Lost) => unreachable!("nothing is read in {stage:?}"),
        }
    }

    fn fence_read(&self, moment: &mut Moment, role: Role, seen: Seen) {
        let given = moment.clients[Holder as usize].tokens.map(|(_, largest)| largest);
        if role == Successor && moment.clients[role as usize].tokens.is_none() && seen > given {
            self.sightings.note(Sight::TokenGivenUp);
        }
        moment.clients[role as usize].stage = Stage::Choosing(seen);
    }

    fn acknowledge(&self, moment: &mut Moment, role: Role, reached: u8) {
        let Stage::Writing(block) = moment.clients[role as usize].stage else {
            unreachable!("the fence is acknowledged once it was written")
        };
        moment.replicas.acknowledge(Write::Fence(block.last()), reached);
        let read = self.has(Flaw::OwnRowsUnread) || self.has(Flaw::OwnRowsReadEarly);
        // The successor is not removed, so its rows stand.
        if read || role == Successor {
            self.reserved(moment, role, block);
        } else {
            Self::begin_read(moment, role, Asked::Rows, Stage::ReadingRows(block));
        }
    }

    fn reserved(&self, moment: &mut Moment, role: Role, block: TokenBlock) {
        moment.clients[role as usize].block = Some(block);
        moment.clients[role as usize].stage = Stage::Resting;
        self.hand_out(moment, role);
    }

    fn hand_out(&self, moment: &mut Moment, role: Role) {
        let block = &mut moment.clients[role as usize].block;
        let Some(value) = block.as_mut().and_then(TokenBlock::take) else { return };
        match role {
            Holder if moment.operator == Operator::Removing => {
                self.sightings.note(Sight::TokenBesideRemoval);
            }
            Holder => {}
            Successor => self.sightings.note(Sight::TokenOfSuccessor),
        }
        let client = &mut moment.clients[role as usize];
        client.tokens = Some(match client.tokens {
            None => (value, value),
            Some((smallest, largest)) => {
                moment.fell |= !is_above(value, largest);
                (smallest, value)
            }
        });
    }

    // What must be true.

    /// Whether every token of the successor is above all of the holder.
    fn is_ordered(&self, moment: &Moment) -> bool {
        let [holder, successor] = moment.clients.map(|client| client.tokens);
        let ordered = match (holder, successor) {
            (Some((_, largest)), Some((smallest, _))) => is_above(smallest, largest),
            (None, _) | (_, None) => true,
        };
        self.violations.allow(ordered)
    }

    fn is_growing(&self, moment: &Moment) -> bool {
        self.violations.allow(!moment.fell)
    }

    // What can happen.

    fn actions_of(moment: &Moment, role: Role, actions: &mut Vec<Action>) {
        let client = moment.clients[role as usize];
        match client.stage {
            Stage::Outside => actions.push(Action::Begin),
            Stage::Resting => {
                if client.draws_left > 0 {
                    actions.push(Action::Draw(role));
                }
                if client.block.is_some_and(|mut block| block.take().is_some()) {
                    actions.push(Action::HandOut(role));
                }
            }
            Stage::Choosing(_) => actions.extend(CLOCKS.map(|clock| Action::Write(role, clock))),
            Stage::Writing(block) => {
                let fence = Write::Fence(block.last());
                let reached = moment.replicas.acknowledgements(fence).into_iter();
                actions.extend(reached.map(|reached| Action::Acknowledge(role, reached)));
                actions.push(Action::GiveUp(role));
            }
            Stage::Looking(_) | Stage::ReadingFence | Stage::ReadingRows(_) => {
                let answers = moment.replicas.answers(role as usize).into_iter();
                actions.extend(answers.map(|answer| Action::Answer(role, answer)));
            }
            Stage::Lost => {}
        }
    }

    fn actions_of_operator(&self, moment: &Moment, actions: &mut Vec<Action>) {
        let may_remove = match moment.operator {
            Operator::Idle => {
                actions.push(Action::Revoke);
                false
            }
            Operator::Revoking => {
                let reached = moment.replicas.acknowledgements(Write::Revocation).into_iter();
                actions.extend(reached.map(Action::AcknowledgeRevocation));
                self.has(Flaw::RowsDeletedEarly)
            }
            Operator::Revoked => true,
            Operator::Removing => false,
        };
        if may_remove {
            // Perhaps it does not know of the last renewal.
            let stamps =
                (1..).map(|write| write * STAMP).take_while(|stamp| *stamp <= moment.stamp);
            actions.extend(stamps.map(Action::Remove));
        }
    }
}

impl Model for Tokens {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let [holder, successor] = self.plan.draws;
        let client = |stage, draws_left| Client { stage, draws_left, block: None, tokens: None };
        vec![Moment {
            replicas: Replicas::with(Write::Entering(STAMP)),
            clients: [client(Stage::Resting, holder), client(Stage::Outside, successor)],
            operator: Operator::Idle,
            stamp: STAMP,
            renewals_left: self.plan.renewals,
            fell: false,
        }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for role in [Holder, Successor] {
            Self::actions_of(moment, role, actions);
        }
        self.actions_of_operator(moment, actions);
        if moment.renewals_left > 0 && moment.clients[Holder as usize].stage != Stage::Lost {
            actions.push(Action::Renew);
        }
    }

    fn next_state(&self, moment: &Moment, action: Action) -> Option<Moment> {
        let mut next = moment.clone();
        match action {
            Action::Begin if self.has(Flaw::FenceReadEarly) => Self::draw(&mut next, Successor),
            Action::Begin => {
                Self::begin_read(&mut next, Successor, Asked::Rows, Stage::Looking(None));
            }
            Action::Draw(role) => Self::draw(&mut next, role),
            Action::HandOut(role) => self.hand_out(&mut next, role),
            Action::Write(role, clock) => self.write(&mut next, role, clock),
            Action::GiveUp(role) => next.clients[role as usize].stage = Stage::Resting,
            Action::Answer(role, answer) => self.answer(&mut next, role, answer),
            Action::Acknowledge(role, reached) => self.acknowledge(&mut next, role, reached),
            Action::Renew => {
                next.renewals_left -= 1;
                next.stamp += STAMP;
                next.replicas.send(Write::Entering(next.stamp));
            }
            Action::Revoke => {
                next.operator = Operator::Revoking;
                next.replicas.send(Write::Revocation);
            }
            Action::AcknowledgeRevocation(reached) => {
                next.operator = Operator::Revoked;
                next.replicas.acknowledge(Write::Revocation, reached);
            }
            Action::Remove(stamp) => {
                next.operator = Operator::Removing;
                next.replicas.send(Write::Removal(stamp + 1));
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("tokens of the successor are above the holder's", Self::is_ordered),
            Property::always("tokens of each grow", Self::is_growing),
        ]
    }
}

/// Whether a token leaves room above another one for the write timestamps of that.
fn is_above(token: i64, other: i64) -> bool {
    token >= other + i64::from(SPACING)
}

/// Whether a read of the whole object lets the successor in on the fast path.
fn is_let_in(seen: Data) -> bool {
    let blockers = Snapshot::of(&rows(seen)).blockers_before_ticket(id_of(1), Mode::Exclusive);
    blockers.admit(Mode::Exclusive)
}

/// Whether a read of its own rows shows the holder that they stand.
fn stands(seen: Data) -> bool {
    Snapshot::of(&rows(seen)).shows(&claim()).is_ok()
}

/// What of the holder's rows is seen.
fn rows(seen: Data) -> Vec<StoredRow> {
    let Claim { contender, round, .. } = claim();
    let revocation = Revocation {
        contender,
        round,
        by: String::new(),
        why: String::new(),
        kind: RevokeKind::Force,
    };
    let entering = seen.is_present().then(|| StoredRow::entering(&claim()));
    let revoked = seen.is_revoked.then(|| StoredRow::revoked(&revocation));
    entering.into_iter().chain(revoked).collect()
}

/// What the holder's rows say; it was let in on the fast path.
fn claim() -> Claim {
    Claim {
        contender: id_of(0),
        round: STAMP,
        mode: Mode::Exclusive,
        ticket: None,
        owner: "".into(),
        held_since: None,
    }
}

impl Tell for Action {
    fn tell(&self) -> String {
        match self {
            Action::Begin => "the successor begins".to_owned(),
            Action::Draw(role) => format!("{role:?} draws"),
            Action::HandOut(role) => format!("{role:?} hands out a token of its block"),
            Action::Write(role, clock) => {
                format!("{role:?} writes the fence, by the clock {clock}")
            }
            Action::GiveUp(role) => format!("{role:?} gives up its write"),
            Action::Answer(role, _) => format!("{role:?}: a replica answers its read"),
            Action::Acknowledge(role, _) => format!("{role:?}: its write is acknowledged"),
            Action::Renew => "the holder writes its rows again".to_owned(),
            Action::Revoke => "the operator asks the holder to leave".to_owned(),
            Action::AcknowledgeRevocation(_) => "that is acknowledged".to_owned(),
            Action::Remove(_) => "the operator deletes the holder's rows".to_owned(),
        }
    }
}

impl Tell for Moment {
    fn tell(&self) -> String {
        let tell = |client: Client| match client.tokens {
            Some((_, largest)) => format!("{:?}, was given {largest}", client.stage),
            None => format!("{:?}", client.stage),
        };
        self.clients.map(tell).join(" | ")
    }
}
