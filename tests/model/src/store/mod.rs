//! Where rows live in a model, and how requests reach them.
//!
//! A write is *under way* from when it is sent until it can surprise no contender any more. It
//! reaches the rows at any moment, or never, acknowledged or not, so nothing need be said of
//! writes that are lost, late, repeated, or of unknown fate: a write of the same stamp is the same
//! write, however often it is sent.

pub(crate) mod registers;
pub(crate) mod replicas;

use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::core::bakery::{
    Change, Claim, ContenderId, Mode, Read, Revocation, RevokeKind, Statics, StoredRow, Write,
    row_name,
};
use crate::scenario::Scenario;

/// The rows of one object, the requests under way, and what can become of them.
pub(crate) trait Store: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// One way in which a request can get on.
    type Way: Copy + Debug + Display + Eq + Send + Sync;

    /// No rows yet.
    fn new(scenario: &Scenario) -> Self;

    /// A write is sent.
    fn send(&mut self, write: Effects);

    /// All ways in which a write can come to be acknowledged next.
    fn acknowledgements(&self, write: Effects) -> Vec<Self::Way>;

    /// A write is acknowledged.
    fn acknowledge(&mut self, write: Effects, way: Self::Way);

    /// A read is sent; the reader's read before it is forgotten. Each contender has a read, and so
    /// has a client that sweeps, by the place of the mark. Each replica that answers makes the
    /// write first, if there is one; it is under way, too.
    fn begin_read(&mut self, reader: usize, read: Read, write: Option<Effects>);

    /// A reader's read is forgotten.
    fn forget_read(&mut self, reader: usize);

    /// All ways in which a read can get on.
    fn readings(&self, reader: usize) -> Vec<Self::Way>;

    /// A read gets on; what it shows, once it is answered.
    fn read_on(&mut self, reader: usize, way: Self::Way) -> Option<Vec<SeenRow>>;

    /// A contender is dead, and its row expires, at any moment.
    fn expire(&mut self, contender: usize);

    /// Everything under way arrives.
    fn calm_down(&mut self);

    /// Brings equal states to one form.
    fn tidy(&mut self);

    /// What the newest stamp of a contender's rows can be, by what a read shows; none is where the
    /// read shows that the round is over.
    fn newest_stamps(&self, contender: usize, round: i64) -> Vec<i64>;

    /// Whether a read can show any row of a contender that contends, whatever is still under way.
    fn shows_rows(&self) -> bool;
}

/// Stamps every row that a dead contender ever wrote; nothing is above it.
const EXPIRED: i64 = i64::MAX;

/// The rows that a contender can have, in the order in which [`Effects`] names them.
pub(crate) const KINDS: usize = 2;
pub(crate) const ENTERING: usize = 0;
const REVOKED: usize = 1;

/// What a row of a known kind and contender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Content {
    round: i64,
    ticket: Option<i64>,
    held_since: Option<i64>,
}

/// A row with the stamp of its last write, or the deletion that took it away. A row that was never
/// written is one that was deleted before all stamps.
///
/// The order is that of Cassandra: the larger stamp stays, of equal ones the deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    stamp: i64,
    content: Option<Content>,
}

impl Cell {
    /// Whether a write of this cell changes `other`.
    pub(crate) fn beats(self, other: Cell) -> bool {
        self.order() > other.order()
    }

    /// Whether a read shows it.
    pub(crate) fn is_there(self) -> bool {
        self.content.is_some()
    }

    /// It is forgotten, and hides nothing any more.
    pub(crate) fn vanish(&mut self) {
        *self = Cell::default();
    }

    /// It is over, and hides what is older as it did before.
    pub(crate) fn expire(&mut self) {
        self.content = None;
    }

    fn order(self) -> (i64, bool) {
        (self.stamp, self.content.is_none())
    }
}

/// What a write does to the rows of one contender; it leaves those alone that are not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Effects {
    pub(crate) contender: usize,
    pub(crate) cells: [Option<Cell>; KINDS],
}

impl Effects {
    /// What the protocol's write does.
    pub(crate) fn of(write: &Write) -> Self {
        let stamp = write.stamp;
        let deleted = Cell { stamp, content: None };
        match &write.change {
            Change::Put { claim, .. } => {
                let Claim { round, ticket, held_since, .. } = *claim;
                let put = Cell { stamp, content: Some(Content { round, ticket, held_since }) };
                Effects { contender: index_of(claim.contender), cells: [Some(put), None] }
            }
            Change::Revoke { .. } | Change::Mark | Change::Sweep { .. } => {
                unreachable!("a contender writes its own rows only")
            }
            Change::Delete { contender, revoked, last_release: _ } => {
                let cells = [Some(deleted), revoked.then_some(deleted)];
                Effects { contender: index_of(*contender), cells }
            }
        }
    }

    /// What asks a contender to give up a round, or says that its rows are deleted by force. The
    /// row has no ticket, so that says which.
    pub(crate) fn revocation(contender: usize, round: i64, stamp: i64, kind: RevokeKind) -> Self {
        let ticket = (kind == RevokeKind::Force).then_some(0);
        let content = Some(Content { round, ticket, held_since: None });
        Effects { contender, cells: [None, Some(Cell { stamp, content })] }
    }

    /// What removes a contender, by force or by a sweep.
    pub(crate) fn removal(contender: usize, stamp: i64) -> Self {
        let deleted = Some(Cell { stamp, content: None });
        Effects { contender, cells: [deleted, None] }
    }

    /// What raises the mark of the object, which is kept at this place, behind the contenders.
    pub(crate) fn mark(place: usize, horizon: i64) -> Self {
        let content = Some(Content { round: horizon, ticket: None, held_since: None });
        let mark = Cell { stamp: horizon, content };
        Effects { contender: place, cells: [Some(mark), None] }
    }

    /// Whether it deletes the rows at the end of a round.
    pub(crate) fn is_release(self) -> bool {
        self.cells[ENTERING].is_some_and(|cell| cell.content.is_none())
    }

    /// The expiry of a contender's row.
    fn expiry(contender: usize) -> Self {
        let expired = Cell { stamp: EXPIRED, content: None };
        Effects { contender, cells: [Some(expired), None] }
    }
}

/// A row as a read shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeenRow {
    contender: usize,
    kind: usize,
    content: Content,
}

impl SeenRow {
    /// The row of this number, if it is there.
    pub(crate) fn of(row: usize, cell: Cell) -> Option<Self> {
        let content = cell.content?;
        Some(SeenRow { contender: row / KINDS, kind: row % KINDS, content })
    }

    /// The row as the protocol takes it; the contender wants to hold in `mode`.
    pub(crate) fn stored(self, mode: impl Fn(usize) -> Mode) -> StoredRow {
        let Content { round, ticket, held_since } = self.content;
        let contender = id_of(self.contender);
        let claim = Claim {
            contender,
            round,
            mode: mode(self.contender),
            ticket,
            owner: "".into(),
            held_since,
        };
        match self.kind {
            ENTERING => StoredRow::entering(&claim),
            REVOKED => StoredRow::revoked(&Revocation {
                contender,
                round,
                by: String::new(),
                why: String::new(),
                kind: if ticket.is_none() { RevokeKind::Request } else { RevokeKind::Force },
            }),
            kind => unreachable!("there are {KINDS} kinds of rows, and no {kind}"),
        }
    }

    /// The mark of the object, if it is that; `place` is where the mark is kept.
    pub(crate) fn mark(self, place: usize) -> Option<i64> {
        (self.contender == place).then_some(self.content.round)
    }

    /// The contender that announced itself, and its round, if the row says so.
    pub(crate) fn announced(self) -> Option<(usize, i64)> {
        (self.kind == ENTERING).then_some((self.contender, self.content.round))
    }
}

/// The rows as the protocol takes them; `modes` says how contenders want to hold.
pub(crate) fn stored(rows: &[SeenRow], modes: &[Mode]) -> (Vec<StoredRow>, Statics) {
    let mark = rows.iter().find_map(|row| row.mark(modes.len()));
    let of_contenders = rows.iter().filter(|row| row.contender < modes.len());
    let stored = of_contenders.map(|row| row.stored(|contender| modes[contender]));
    (stored.collect(), Statics { last_release: None, mark })
}

/// The stamp of a contender's row, if it is of this round.
fn stamp_of_round(entering: Cell, round: i64) -> Option<i64> {
    entering.content.filter(|content| content.round == round).map(|_| entering.stamp)
}

/// Which rows a read asks for, as numbers in their order: those of contender `n` begin at
/// `n * KINDS`.
pub(crate) fn rows_asked(read: Read, places: usize) -> Vec<usize> {
    // The mark has a place of its own behind the contenders.
    let row_name =
        |row| if row % KINDS == ENTERING { row_name::ENTERING } else { row_name::REVOKED };
    let is_asked = |row: &usize| read.asks_for(row_name(*row), id_of(row / KINDS));
    (0..places * KINDS).filter(is_asked).collect()
}

/// The contender of this number. Ties are broken by it: the first one has the smallest place.
pub(crate) fn id_of(index: usize) -> ContenderId {
    // As the uuid of a client has it.
    const VERSION: u128 = 4 << 76;
    let host = i32::try_from(index).expect("a model has few contenders") + 1;
    ContenderId { host, client: VERSION, slot: 0 }
}

/// The number of a contender.
pub(crate) fn index_of(id: ContenderId) -> usize {
    usize::try_from(id.host - 1).expect("the model numbers hosts from one")
}
