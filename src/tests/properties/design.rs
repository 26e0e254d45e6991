//! What the design says of rows (sections 3 and 4), written a second time and as plainly as can be.

use std::collections::BTreeSet;

use crate::core::bakery::{ContenderId, Mode, Standing, StoredRow, row_name};

/// How a contender stands by its rows; `None` when it is absent.
pub(super) fn standing(rows: &[StoredRow], who: ContenderId) -> Option<Standing> {
    let rows: Vec<_> = rows.iter().filter(|row| row.contender == who).collect();
    if !rows.iter().all(|row| is_understood(row)) {
        return Some(Standing::Unreadable);
    }
    let entering = rows.iter().find(|row| row.row_name == row_name::ENTERING)?;
    let (round, mode) = (entering.round?, mode(entering)?);
    Some(match entering.ticket {
        Some(ticket) => Standing::Queued { round, mode, ticket },
        None => Standing::Choosing { round, mode },
    })
}

/// Since when a contender says that it holds, in its present round (section 5).
pub(super) fn held_since(rows: &[StoredRow], who: ContenderId) -> Option<i64> {
    let own = rows.iter().filter(|row| row.contender == who && is_understood(row));
    let entering = own.into_iter().find(|row| row.row_name == row_name::ENTERING)?;
    entering.held_since.filter(|since| *since >= entering.round.unwrap_or(i64::MAX) / 1000)
}

/// Whether this version knows what a row says.
pub(super) fn is_understood(row: &StoredRow) -> bool {
    let claims = row.round.is_some() && mode(row).is_some();
    match row.row_name.as_str() {
        row_name::ENTERING => claims,
        row_name::REVOKED => true,
        _ => false,
    }
}

/// Whether contenders of these modes, all of them in the way, let one of `mode` in.
pub(super) fn let_in(mode: Mode, others: &[Option<Mode>]) -> bool {
    match mode {
        Mode::Exclusive => others.is_empty(),
        Mode::Shared => others.iter().all(|other| *other == Some(Mode::Shared)),
        Mode::Limited(most) => {
            let alike = others.iter().all(|other| *other == Some(mode));
            alike && i32::try_from(others.len()).is_ok_and(|others| others < most)
        }
    }
}

/// All contenders that have a row.
pub(super) fn contenders(rows: &[StoredRow]) -> BTreeSet<ContenderId> {
    rows.iter().map(|row| row.contender).collect()
}

fn mode(row: &StoredRow) -> Option<Mode> {
    match (row.mode?, row.max_holders) {
        (0, _) => Some(Mode::Exclusive),
        (1, _) => Some(Mode::Shared),
        (2, Some(most)) => (most > 0).then_some(Mode::Limited(most)),
        _ => None,
    }
}
