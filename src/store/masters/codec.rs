//! How rows are written into the fields of a hash.
//!
//! A field names its row: `e/` or `r/` (`entering::`, `revoked::`) and the contender; any other
//! name begins with a dot. Fields without a `/` belong to the object: `mark`, `rel` (the last
//! release), `sweeps` and `prune` (when the server looks next for what it can forget).

use std::time::Duration;

use uuid::Uuid;

use super::cells::{Cell, Kind};
use crate::core::bakery::{ContenderId, LastRelease, StoredRow, row_name};
use crate::store::{HostRow, PeerRow};

/// The fields of an object that belong to no row, as far as clients read them.
pub(super) const MARK: &str = "mark";
pub(super) const LAST_RELEASE: &str = "rel";
pub(super) const SWEEPS: &str = "sweeps";

/// The only field of a fence, and that of a peer.
pub(super) const ONLY: &str = "it";

/// The largest number that was reserved for a host.
pub(super) const NEXT: &str = "next";

const HOST: &str = "host:";
const SEEN: &str = "seen:";

/// The digits of a stamp, of a value's expiry, and of all before its content.
const STAMP_DIGITS: usize = 20;
const ENDS_DIGITS: usize = 15;
const HEAD: usize = STAMP_DIGITS + 1 + ENDS_DIGITS;

/// Written for what is `None`.
const NONE: &str = "-";

/// A number as 20 digits, in the order of the numbers.
pub(super) fn digits(number: i64) -> String {
    format!("{:0STAMP_DIGITS$}", number.cast_unsigned() ^ (1 << 63))
}

fn from_digits(digits: &str) -> Option<i64> {
    Some((digits.parse::<u64>().ok()? ^ (1 << 63)).cast_signed())
}

/// Reads a value, as the scripts write it.
pub(super) fn cell(value: &str) -> Option<Cell> {
    let (head, content) = value.split_at_checked(HEAD).filter(|(head, _)| head.is_ascii())?;
    let stamp = from_digits(&head[..STAMP_DIGITS])?;
    let kind = match &head[STAMP_DIGITS..=STAMP_DIGITS] {
        "L" => Kind::Lives,
        "D" => Kind::Deleted,
        _ => return None,
    };
    let ends_millis = head[STAMP_DIGITS + 1..].parse().ok()?;
    Some(Cell { stamp, kind, ends_millis, content: content.to_owned() })
}

/// The field of a row.
pub(super) fn field(name: &str, contender: ContenderId) -> String {
    match name {
        row_name::ENTERING => format!("e/{contender}"),
        row_name::REVOKED => format!("r/{contender}"),
        other => format!(".{other}/{contender}"),
    }
}

/// The row that a field names; `None` if it names none.
pub(super) fn named(field: &str) -> Option<(String, ContenderId)> {
    let mut parts = field.rsplitn(4, '/');
    let slot = parts.next()?.parse().ok()?;
    let client = parts.next().filter(|client| client.len() == 32)?;
    let client = u128::from_str_radix(client, 16).ok()?;
    let host = parts.next()?.parse().ok()?;
    let name = match parts.next()? {
        "e" => row_name::ENTERING,
        "r" => row_name::REVOKED,
        other => other.strip_prefix('.')?,
    };
    Some((name.to_owned(), ContenderId { host, client, slot }))
}

/// Whether a field names a row, of whatever kind.
pub(super) fn is_row(field: &str) -> bool {
    field.contains('/')
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn read_optional<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
    if text == NONE { Some(None) } else { text.parse().ok().map(Some) }
}

/// The content of a row. It begins with the round, so that of two writes with one stamp all rows
/// show the same one.
pub(super) fn row_content(row: &StoredRow) -> String {
    let StoredRow { round, mode, max_holders, ticket, owner, why, held_since, .. } = row;
    let round = optional(round.map(digits));
    let (mode, max_holders) = (optional(*mode), optional(*max_holders));
    let (ticket, held_since) = (optional(*ticket), optional(*held_since));
    let bytes = optional(owner.as_ref().map(String::len));
    let owner = owner.as_deref().unwrap_or_default();
    let why = why.as_ref().map(|why| format!("+{why}")).unwrap_or_default();
    format!("{round} {mode} {max_holders} {ticket} {held_since} {bytes} {owner}{why}")
}

/// Reads the content of a row.
pub(super) fn row(name: String, contender: ContenderId, content: &str) -> Option<StoredRow> {
    let mut parts = content.splitn(7, ' ');
    let round = match parts.next()? {
        NONE => None,
        round => Some(from_digits(round)?),
    };
    let (mode, max_holders) = (read_optional(parts.next()?)?, read_optional(parts.next()?)?);
    let (ticket, held_since) = (read_optional(parts.next()?)?, read_optional(parts.next()?)?);
    let bytes: Option<usize> = read_optional(parts.next()?)?;
    let (owner, rest) = parts.next()?.split_at_checked(bytes.unwrap_or_default())?;
    let why = match rest.strip_prefix('+') {
        Some(why) => Some(why.to_owned()),
        None if rest.is_empty() => None,
        None => return None,
    };
    let owner = bytes.map(|_| owner.to_owned());
    let row_name = name;
    Some(StoredRow {
        row_name,
        contender,
        round,
        mode,
        max_holders,
        ticket,
        owner,
        why,
        held_since,
    })
}

/// The content of the last release.
pub(super) fn release_content(last: LastRelease) -> String {
    format!("{:032x} {} {}", last.client, last.round, last.handoff.as_micros())
}

/// Reads the last release.
pub(super) fn last_release(cell: &Cell) -> Option<LastRelease> {
    let mut parts = cell.content.split(' ');
    let client = u128::from_str_radix(parts.next()?, 16).ok()?;
    let round = parts.next()?.parse().ok()?;
    let handoff = Duration::from_micros(parts.next()?.parse().ok()?);
    Some(LastRelease { client, round, handoff, stamp: cell.stamp })
}

/// Reads the content of a mark.
pub(super) fn mark_value(content: &str) -> Option<i64> {
    from_digits(content)
}

/// The fields of a host: its row, and when it was seen.
pub(super) fn host_fields(name: &str) -> [String; 2] {
    [format!("{HOST}{name}"), format!("{SEEN}{name}")]
}

/// The host whose row a field of the registry is.
pub(super) fn host_name(field: &str) -> Option<&str> {
    field.strip_prefix(HOST)
}

/// The content of a host's row, without when it was seen.
pub(super) fn host_content(host: &HostRow) -> String {
    format!("{} {} {}", host.number, host.added_at_millis, optional(host.removed_at_millis))
}

/// Reads a host: its row, and when it was seen.
pub(super) fn host(name: &str, row: &Cell, seen: Option<&Cell>) -> Option<HostRow> {
    let mut parts = row.content.split(' ');
    let number = parts.next()?.parse().ok()?;
    let added_at_millis = parts.next()?.parse().ok()?;
    let removed_at_millis = read_optional(parts.next()?)?;
    // The stamp says when, in µs.
    let seen_at_millis = seen.map(|seen| seen.stamp / 1000);
    let (name, stamp) = (name.to_owned(), row.stamp);
    Some(HostRow { name, number, added_at_millis, removed_at_millis, seen_at_millis, stamp })
}

/// The content of what a client publishes of itself.
pub(super) fn peer_content(peer: &PeerRow) -> String {
    let key: String = peer.key.iter().map(|byte| format!("{byte:02x}")).collect();
    let addresses: String = peer.addresses.iter().map(|address| format!("\n{address}")).collect();
    format!("{} {key}{addresses}", peer.version)
}

/// Reads what a client publishes of itself.
pub(super) fn peer(client: Uuid, cell: &Cell) -> Option<PeerRow> {
    let mut lines = cell.content.split('\n');
    let (version, hex) = lines.next()?.split_once(' ')?;
    let mut key = [0; 32];
    if hex.len() != 2 * key.len() || !hex.is_ascii() {
        return None;
    }
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    let addresses = lines.map(str::to_owned).collect();
    let version = version.parse().ok()?;
    Some(PeerRow { client, addresses, key, version, stamp: cell.stamp })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FOREVER: i64 = 1_000_000_000_000_000;

    fn rows() -> impl Strategy<Value = StoredRow> {
        let names = prop_oneof![
            Just(row_name::ENTERING.to_owned()),
            Just(row_name::REVOKED.to_owned()),
            "[a-z/:]{0,8}",
        ];
        let numbers = (any::<Option<i64>>(), any::<Option<i8>>(), any::<Option<i32>>());
        let more = (any::<Option<i64>>(), any::<Option<i64>>());
        let texts = (any::<Option<String>>(), any::<Option<String>>());
        let contender = (any::<i32>(), any::<u128>(), any::<i16>());
        (names, contender, numbers, more, texts).prop_map(|(row_name, id, numbers, more, texts)| {
            let (host, client, slot) = id;
            StoredRow {
                row_name,
                contender: ContenderId { host, client, slot },
                round: numbers.0,
                mode: numbers.1,
                max_holders: numbers.2,
                ticket: more.0,
                owner: texts.0,
                why: texts.1,
                held_since: more.1,
            }
        })
    }

    proptest! {
        #[test]
        fn rows_are_read_as_written(written in rows()) {
            let field = field(&written.row_name, written.contender);
            prop_assert!(is_row(&field));
            let (name, contender) = named(&field).expect("it names a row");
            prop_assert_eq!(row(name, contender, &row_content(&written)), Some(written));
        }

        #[test]
        fn digits_keep_the_order(one: i64, other: i64) {
            prop_assert_eq!(digits(one).cmp(&digits(other)), one.cmp(&other));
            prop_assert_eq!(from_digits(&digits(one)), Some(one));
        }

        #[test]
        fn arbitrary_text_is_read_or_refused(text in ".{0,80}") {
            let id = ContenderId { host: 1, client: 2, slot: 3 };
            let _ = (cell(&text), named(&text), row(String::new(), id, &text));
            let cell = Cell { stamp: 1, kind: Kind::Lives, ends_millis: 1, content: text };
            let _ = (last_release(&cell), host("a", &cell, None), peer(Uuid::nil(), &cell));
        }

        #[test]
        fn values_are_read_as_written(stamp: i64, ends in 0..FOREVER, text: String) {
            for (kind, letter) in [(Kind::Lives, 'L'), (Kind::Deleted, 'D')] {
                let value = format!("{}{letter}{ends:015}{text}", digits(stamp));
                let expected = Cell { stamp, kind, ends_millis: ends, content: text.clone() };
                prop_assert_eq!(cell(&value), Some(expected));
            }
        }
    }

    #[test]
    fn registry_and_releases_are_read_as_written() {
        let host_row = HostRow {
            name: "a/b: c".to_owned(),
            number: i32::MAX,
            added_at_millis: -1,
            removed_at_millis: Some(7),
            seen_at_millis: Some(9),
            stamp: 8,
        };
        let of =
            |stamp, content: String| Cell { stamp, kind: Kind::Lives, ends_millis: 1, content };
        let [field, _] = host_fields(&host_row.name);
        let name = host_name(&field).expect("it is that of a host");
        let seen = of(9_000, String::new());
        let read = host(name, &of(8, host_content(&host_row)), Some(&seen));
        assert_eq!(read, Some(host_row));
        let last = LastRelease { client: 5, round: 6, handoff: Duration::from_micros(7), stamp: 8 };
        assert_eq!(last_release(&of(8, release_content(last))), Some(last));
    }

    #[test]
    fn peers_are_read_as_written() {
        let peer_row = |addresses: &[&str]| PeerRow {
            client: Uuid::from_u128(1),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            key: std::array::from_fn(|byte| u8::try_from(byte * 8).expect("it is below 256")),
            version: i32::MIN,
            stamp: 3,
        };
        for written in [peer_row(&[]), peer_row(&["a:1"]), peer_row(&["a:1", "[::1]:2"])] {
            let content = peer_content(&written);
            let cell = Cell { stamp: 3, kind: Kind::Lives, ends_millis: 1, content };
            assert_eq!(peer(written.client, &cell), Some(written));
        }
    }
}
