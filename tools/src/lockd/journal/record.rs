//! Records of the journal.
//!
//! A record is its length, its checksum and what it says, so that a last one that was not written
//! whole is noticed: the process was killed meanwhile, before it answered its client.

use std::collections::BTreeMap;
use std::time::Duration;

use bakery_lock::Uuid;
use bakery_lock::admin::HeldPlace;
use serde::{Deserialize, Serialize};

use crate::lockd::peer::Peer;

/// Changes with what records mean.
pub(super) const FORMAT: u8 = 1;

/// The bytes before what a record says: its length and its checksum.
const HEAD: usize = 8;

/// What a journal says, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record<'a> {
    /// The first record.
    Begins {
        format: u8,
        #[serde(borrow)]
        scope: Scope<'a>,
    },
    Granted(#[serde(borrow)] Granted<'a>),
    /// A lock ends at another time, or its owner has it more or less often.
    Changed {
        number: u64,
        until: Duration,
        uses: u32,
    },
    /// A lock is about to be released, or has ended.
    Ended {
        number: u64,
    },
}

/// Where a journal is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Scope<'a> {
    /// The start of the machine, to which its times refer.
    pub(super) boot: &'a str,
    /// The lock table, and what its names begin with.
    pub(super) table: &'a str,
}

/// A lock that a client was promised for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Granted<'a> {
    /// Of the lock, in this journal.
    pub(super) number: u64,
    /// Its name in the table.
    pub(super) name: &'a str,
    /// How many bytes of it are not its user's.
    pub(super) prefix: usize,
    pub(super) owner: &'a [u8],
    /// Until when it is certainly held, since the machine started.
    pub(super) until: Duration,
    /// How often its owner has it.
    pub(super) uses: u32,
    pub(super) peer: Peer,
    /// The rows with which it ends, if they are its own alone.
    pub(super) place: Option<Place>,
}

/// A [`HeldPlace`]: host, client, slot and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place(i32, u128, i16, i64);

impl From<HeldPlace> for Place {
    fn from(place: HeldPlace) -> Self {
        Place(place.host, place.client.as_u128(), place.slot, place.round)
    }
}

impl From<Place> for HeldPlace {
    fn from(Place(host, client, slot, round): Place) -> Self {
        HeldPlace { host, client: Uuid::from_u128(client), slot, round }
    }
}

impl Record<'_> {
    /// Writes the record behind what is there.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let begin = to.len();
        to.extend([0; HEAD]);
        let written = postcard::to_extend(self, std::mem::take(to));
        *to = written.expect("memory takes all that a record may hold");
        let said = &to[begin + HEAD..];
        let length = u32::try_from(said.len()).expect("requests are shorter");
        let sum = checksum(said);
        to[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        to[begin + 4..begin + HEAD].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The records, up to the first one that is not whole.
pub(super) fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (sum, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (said, rest) = rest.split_at_checked(length)?;
        let is_whole = checksum(said) == u32::from_le_bytes(*sum);
        bytes = rest;
        is_whole.then(|| postcard::from_bytes(said).ok())?
    })
}

/// What a journal says in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents<'a> {
    /// The locks that were promised and had not ended.
    Locks(Vec<Granted<'a>>),
    /// Of an earlier start of the machine, or without a record: nothing in it counts.
    Outdated,
    /// Of other locks, or of another version of this program.
    Foreign,
}

/// What a journal says, if it is of this scope.
pub(super) fn contents<'a>(bytes: &'a [u8], scope: Scope<'_>) -> Contents<'a> {
    let mut records = records(bytes);
    match records.next() {
        Some(Record::Begins { format: FORMAT, scope: its }) if its == scope => {}
        Some(Record::Begins { scope: its, .. }) if its.boot == scope.boot => {
            return Contents::Foreign;
        }
        _ => return Contents::Outdated,
    }
    let mut locks = BTreeMap::new();
    for record in records {
        match record {
            Record::Begins { .. } => {}
            Record::Granted(granted) => {
                locks.insert(granted.number, granted);
            }
            Record::Changed { number, until, uses } => {
                if let Some(granted) = locks.get_mut(&number) {
                    (granted.until, granted.uses) = (until, uses);
                }
            }
            Record::Ended { number } => {
                locks.remove(&number);
            }
        }
    }
    Contents::Locks(locks.into_values().collect())
}

/// CRC-32, as of IEEE 802.3.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte: u32 = 0;
        while byte < 256 {
            let (mut sum, mut bit) = (byte, 0);
            while bit < 8 {
                sum = if sum & 1 == 1 { 0xEDB8_8320 ^ (sum >> 1) } else { sum >> 1 };
                bit += 1;
            }
            table[byte as usize] = sum;
            byte += 1;
        }
        table
    };
    let update = |sum: u32, byte: &u8| {
        let [low, ..] = sum.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (sum >> 8)
    };
    !bytes.iter().fold(u32::MAX, update)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    const SCOPE: Scope<'_> = Scope { boot: "this", table: "locks.locks" };

    fn granted(number: u64, owner: &[u8]) -> Granted<'_> {
        Granted {
            number,
            name: "shop::cart",
            prefix: 6,
            owner,
            until: Duration::from_millis(5_000 + number),
            uses: 1,
            peer: Peer::Process(7),
            place: Some(Place(1, u128::MAX, 0, i64::MAX)),
        }
    }

    fn written(records: &[Record<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in records {
            record.write(&mut bytes);
        }
        bytes
    }

    fn begins() -> Record<'static> {
        Record::Begins { format: FORMAT, scope: SCOPE }
    }

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn locks_are_those_that_had_not_ended() {
        let address = Peer::Address(IpAddr::from([127, 0, 0, 1]));
        let other = Granted { peer: address, place: None, ..granted(3, b"\xff\0") };
        let (until, uses) = (Duration::from_secs(9), 2);
        let bytes = written(&[
            begins(),
            Record::Granted(granted(1, b"one")),
            Record::Granted(granted(2, b"two")),
            Record::Granted(other),
            Record::Ended { number: 1 },
            Record::Changed { number: 2, until, uses },
            Record::Changed { number: 1, until, uses },
            Record::Ended { number: 8 },
        ]);
        let two = Granted { until, uses, ..granted(2, b"two") };
        assert_eq!(contents(&bytes, SCOPE), Contents::Locks(vec![two, other]));
    }

    #[test]
    fn torn_record_ends_the_journal() {
        let begin = written(&[begins(), Record::Granted(granted(1, b"one"))]);
        let all = written(&[
            begins(),
            Record::Granted(granted(1, b"one")),
            Record::Granted(granted(2, b"two")),
        ]);
        let one = Contents::Locks(vec![granted(1, b"one")]);
        for length in begin.len()..all.len() {
            assert_eq!(contents(&all[..length], SCOPE), one, "{length}");
            let mut spoilt = all.clone();
            spoilt[length] ^= 1;
            assert_eq!(contents(&spoilt, SCOPE), one, "{length}");
        }
    }

    #[test]
    fn other_scopes_are_told_apart() {
        let of = |format, boot, table| {
            let scope = Scope { boot, table };
            written(&[Record::Begins { format, scope }, Record::Granted(granted(1, b"one"))])
        };
        for (bytes, expected) in [
            (of(FORMAT, "earlier", "locks.locks"), Contents::Outdated),
            (of(FORMAT + 1, "earlier", "locks.locks"), Contents::Outdated),
            (of(FORMAT, "this", "others.locks"), Contents::Foreign),
            (of(FORMAT + 1, "this", "locks.locks"), Contents::Foreign),
            (Vec::new(), Contents::Outdated),
            (written(&[Record::Ended { number: 1 }]), Contents::Outdated),
        ] {
            assert_eq!(contents(&bytes, SCOPE), expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let whole = records(&bytes).count();
            prop_assert!(whole * HEAD <= bytes.len());
        }

        #[test]
        fn spoilt_journals_are_read(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = written(&[begins(), Record::Granted(granted(1, b"one"))]);
            let at = at.index(bytes.len());
            let is_same = bytes[at] == byte;
            bytes[at] = byte;
            let found = contents(&bytes, SCOPE);
            prop_assert!(is_same || found != Contents::Locks(vec![granted(1, b"one")]));
        }

        #[test]
        fn records_are_read_as_written(
            number: u64, name in ".*", owner in proptest::collection::vec(any::<u8>(), 0..300),
            until: u64, uses: u32, id: i32,
        ) {
            let granted = Granted {
                number,
                name: &name,
                prefix: 0,
                owner: &owner,
                until: Duration::from_nanos(until),
                uses,
                peer: Peer::Process(id),
                place: None,
            };
            let record = Record::Granted(granted);
            let bytes = written(&[record, Record::Ended { number }]);
            let expected = [record, Record::Ended { number }];
            prop_assert!(records(&bytes).eq(expected));
        }
    }
}
