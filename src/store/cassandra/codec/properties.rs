//! Decoding of any bytes, and rows that read as they were written.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use scylla::deserialize::FrameSlice;
use scylla::deserialize::row::{ColumnIterator, DeserializeRow};
use scylla::frame::response::result::{ColumnSpec, ColumnType, NativeType, TableSpec};
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;

use super::*;
use crate::core::bakery::{Mode, RevokeKind};
use crate::tests::properties::for_all;

/// A value bound to an insert, or read: its name, and its type or the types in its tuple.
type Typed = (&'static str, &'static [NativeType]);

/// The values bound to an insert, in the order of its markers.
const BOUND: [Typed; 9] = [
    ("object_name", &[NativeType::Text]),
    ("row_name", &[NativeType::Text]),
    ("host", &[NativeType::Int]),
    ("client", &[NativeType::Uuid]),
    ("slot", &[NativeType::SmallInt]),
    (
        "state",
        &[
            NativeType::BigInt,
            NativeType::TinyInt,
            NativeType::Int,
            NativeType::BigInt,
            NativeType::Timestamp,
        ],
    ),
    ("about", &[NativeType::Text, NativeType::Text, NativeType::Timestamp]),
    ("[timestamp]", &[NativeType::BigInt]),
    ("[ttl]", &[NativeType::Int]),
];

/// The columns among these that are read.
const READ: std::ops::Range<usize> = 1..7;

/// The static columns that are read as well, with the stamp of one.
const STATIC: [Typed; 3] = [
    ("last_release", &[NativeType::Uuid, NativeType::BigInt, NativeType::BigInt]),
    ("released_stamp", &[NativeType::BigInt]),
    ("mark", &[NativeType::BigInt]),
];

/// The number of bytes of each type; text has any number.
const LENGTHS: [(NativeType, usize); 6] = [
    (NativeType::TinyInt, 1),
    (NativeType::SmallInt, 2),
    (NativeType::Int, 4),
    (NativeType::BigInt, 8),
    (NativeType::Timestamp, 8),
    (NativeType::Uuid, 16),
];

/// The bytes of any value of a type.
fn bytes_of(native: &NativeType) -> BoxedStrategy<Vec<u8>> {
    match LENGTHS.iter().find(|(other, _)| other == native) {
        Some((_, length)) => vec(any::<u8>(), *length).boxed(),
        None => "\\PC{0,8}".prop_map(String::into_bytes).boxed(),
    }
}

/// The bytes of any value of a type, or of a tuple, in which each value may be null.
fn bytes_of_column((_, natives): &Typed) -> BoxedStrategy<Vec<u8>> {
    match natives {
        [native] => bytes_of(native),
        natives => {
            let parts: Vec<_> = natives.iter().map(|native| of(bytes_of(native))).collect();
            let joined = |parts: Vec<Option<Vec<u8>>>| {
                parts.iter().flat_map(|part| cell_of(part.as_deref())).collect()
            };
            parts.prop_map(joined).boxed()
        }
    }
}

// Goal: decoding never panics, whatever a result holds; if every value is null or of its type, it
// succeeds, and the result is no row only if a part of the key is null.
// Method: each column null, of the right length, or any bytes.
#[test]
fn any_bytes_are_a_row_or_an_error() {
    let cell = |column: &Typed| {
        let right = bytes_of_column(column);
        prop_oneof![
            6 => right.prop_map(|bytes| (Some(bytes), true)),
            2 => Just((None, true)),
            1 => vec(any::<u8>(), 0..20).prop_map(|bytes| (Some(bytes), false)),
        ]
    };
    let row: Vec<_> = BOUND[READ].iter().chain(&STATIC).map(cell).collect();
    for_all(&row, |cells| {
        let bytes: Vec<_> = cells.iter().flat_map(|(value, _)| cell_of(value.as_deref())).collect();
        let decoded = decode_row(&bytes);
        if cells.iter().all(|(_, right)| *right) {
            let row = decoded.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let has_key = cells[..4].iter().all(|(value, _)| value.is_some());
            prop_assert_eq!(row.stored().is_some(), has_key);
        }
        Ok(())
    });
}

// Goal: a row reads as it was written; a value that it lacks is not written, and reads as null.
// Method: any claim and any revocation, serialized by the driver and decoded again.
#[test]
fn rows_read_as_they_were_written() {
    let contender = (any::<i32>(), any::<u128>(), any::<i16>())
        .prop_map(|(host, client, slot)| ContenderId { host, client, slot });
    let mode = prop_oneof![
        Just(Mode::Exclusive),
        Just(Mode::Shared),
        (1..=i32::MAX).prop_map(Mode::Limited)
    ];
    let numbers = (any::<i64>(), of(any::<i64>()), of(any::<i64>()), any::<i64>());
    let cases = (contender, mode, numbers, "\\PC{0,8}");
    for_all(&cases, |(contender, mode, (round, ticket, held_since, stamp), text)| {
        let owner = text.clone();
        let claim = Claim { contender, round, mode, ticket, owner: owner.into(), held_since };
        let read = read_back(&claim_values("object", &claim, stamp, 60))?;
        prop_assert_eq!(read, StoredRow::entering(&claim));

        for kind in [RevokeKind::Request, RevokeKind::Force] {
            let (by, why) = (text.clone(), text.clone());
            let revocation = Revocation { contender, round, by, why, kind };
            let read = read_back(&revocation_values("object", &revocation, stamp, 60))?;
            prop_assert_eq!(read, StoredRow::revoked(&revocation));
        }
        Ok(())
    });
}

// Goal: a registry of any content is read without a panic, and no host goes without its number,
// which could then be given to another host.
// Method: any column null or not.
#[test]
fn host_has_a_number_or_is_refused() {
    let columns = (of(".{0,4}"), of(any::<i32>()), of(any::<i64>()), of(any::<i64>()));
    let cases = (columns, of(any::<i64>()), of(any::<i64>()));
    for_all(&cases, |((host_name, number, added, removed), stamp, seen)| {
        let [added_at, removed_at, seen_at] = [added, removed, seen].map(|it| it.map(CqlTimestamp));
        let empty = number.is_none() && added_at.is_none() && removed_at.is_none();
        let row = RegistryRow { host_name, number, added_at, removed_at, stamp, seen_at };
        let (named, numbered) = (row.host_name.is_some(), number.is_some() && stamp.is_some());
        match row.host() {
            Ok(Some(host)) => prop_assert!(named && Some(host.number) == number),
            Ok(None) => prop_assert!(!named || empty),
            Err(_) => prop_assert!(named && !numbered),
        }
        Ok(())
    });
}

/// The answer of a node that was sent this row.
fn read_back(values: &impl SerializeRow) -> Result<StoredRow, TestCaseError> {
    let specs: Vec<_> = BOUND.iter().map(spec).collect();
    let mut bound = Vec::new();
    let context = RowSerializationContext::from_specs(&specs);
    let fail = |error: &dyn std::fmt::Display| TestCaseError::fail(error.to_string());
    values.serialize(&context, &mut RowWriter::new(&mut bound)).map_err(|e| fail(&e))?;
    let cells = ColumnIterator::new(&specs, FrameSlice::new_borrowed(&bound));
    let cells = cells.collect::<Result<Vec<_>, _>>().map_err(|e| fail(&e))?;
    let read = cells[READ].iter().map(|cell| cell.slice.as_ref().map(FrameSlice::as_slice));
    let read = read.chain(STATIC.iter().map(|_| None));
    let row = decode_row(&read.flat_map(cell_of).collect::<Vec<_>>()).map_err(|e| fail(&e))?;
    row.stored().ok_or_else(|| TestCaseError::fail("a row without a key"))
}

fn decode_row(bytes: &[u8]) -> Result<LockRow, scylla::deserialize::DeserializationError> {
    let specs: Vec<_> = BOUND[READ].iter().chain(&STATIC).map(spec).collect();
    LockRow::type_check(&specs).expect("the types are those of the table");
    LockRow::deserialize(ColumnIterator::new(&specs, FrameSlice::new_borrowed(bytes)))
}

/// A value as encoded in a result: its length, negative for null, and its bytes.
fn cell_of(value: Option<&[u8]>) -> Vec<u8> {
    let length = value.map_or(-1, |value| i32::try_from(value.len()).expect("values are short"));
    [&length.to_be_bytes(), value.unwrap_or_default()].concat()
}

fn spec((name, natives): &Typed) -> ColumnSpec<'static> {
    let table = TableSpec::borrowed("bakery_lock", "lock_table");
    let types = natives.iter().cloned().map(ColumnType::Native);
    let column = match natives {
        [native] => ColumnType::Native(native.clone()),
        _ => ColumnType::Tuple(types.collect()),
    };
    ColumnSpec::borrowed(name, column, table)
}
