//! What is sent, byte by byte.

use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::super::channel::MESSAGE_MAX;
use super::super::error::WireError;
use super::super::key::ObjectHash;
use super::super::key::{KeyPair, PublicKey};
use super::super::message::{ClientName, LineView, ToGuest, ToKeeper, decode, encode};
use crate::admin::types::{HolderQueue, QUEUE_SHOWN_MAX, TurnUser};
use crate::core::bakery::ContenderId;
use crate::core::turns::{Extended, Granted, Request, Response, TimedRequest, TurnId};

fn encoded(message: &impl Serialize) -> Vec<u8> {
    encode(message, &mut [0; MESSAGE_MAX]).expect("it fits").to_vec()
}

fn survives<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &M) {
    assert_eq!(&decode::<M>(&encoded(message)).expect("it was encoded"), message);
}

fn durations() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn turns() -> impl Strategy<Value = TurnId> {
    let place = any::<(i32, u128, i16)>();
    (place, any::<i64>(), any::<u64>()).prop_map(|((host, client, slot), round, number)| TurnId {
        place: ContenderId { host, client, slot },
        round,
        number,
    })
}

fn objects() -> impl Strategy<Value = ObjectHash> {
    any::<String>().prop_map(|name| ObjectHash::of("app", "locks", &name))
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<u64>(), durations(), any::<bool>(), durations())
            .prop_map(|(request, ttl, is_try, least)| Request::Ask { request, ttl, is_try, least }),
        any::<u64>().prop_map(|request| Request::Withdraw { request }),
        (turns(), durations()).prop_map(|(turn, least)| Request::Renew { turn, least }),
        (turns(), any::<u64>()).prop_map(|(turn, number)| Request::IssueToken { turn, number }),
        turns().prop_map(|turn| Request::Return { turn }),
        (turns(), any::<u64>()).prop_map(|(turn, number)| Request::Confirm { turn, number }),
    ]
}

fn responses() -> impl Strategy<Value = Response> {
    prop_oneof![
        any::<(u64, u32)>().prop_map(|(request, ahead)| Response::Queued { request, ahead }),
        (any::<u64>(), turns(), durations(), durations()).prop_map(
            |(request, turn, echo, length)| {
                Response::Granted(Granted { request, turn, echo, length })
            }
        ),
        (turns(), durations(), durations())
            .prop_map(|(turn, echo, length)| Response::Extended(Extended { turn, echo, length })),
        turns().prop_map(|turn| Response::Returned { turn }),
        (turns(), any::<(u64, i64)>()).prop_map(|(turn, (number, value))| Response::Token {
            turn,
            number,
            value
        }),
        turns().prop_map(|turn| Response::Leave { turn }),
        turns().prop_map(|turn| Response::Lost { turn }),
        any::<u64>().prop_map(|request| Response::Elsewhere { request }),
        (turns(), any::<u64>()).prop_map(|(turn, number)| Response::Check { turn, number }),
    ]
}

fn users() -> impl Strategy<Value = TurnUser> {
    any::<(u128, String)>().prop_map(|(client, owner)| TurnUser::new(client, owner))
}

fn lines() -> impl Strategy<Value = HolderQueue> {
    let first = prop::collection::vec(users(), 0..20);
    (users(), prop::option::of(users()), any::<bool>(), any::<u32>(), first).prop_map(
        |(keeper, user, is_kept, waiting, first)| HolderQueue {
            keeper,
            user,
            is_kept,
            waiting: usize::try_from(waiting).expect("it has 32 bits"),
            first,
        },
    )
}

proptest! {
    #[test]
    fn requests_survive(object in objects(), sent in durations(), request in requests()) {
        survives(&ToKeeper::Request { object, request: TimedRequest { sent, request } });
        survives(&ToKeeper::Who { object });
    }

    #[test]
    fn responses_survive(
        object in objects(),
        response in responses(),
        user in prop::option::of(users()),
    ) {
        survives(&ToGuest::Response { object, response, user: user.map(ClientName::from) });
    }

    #[test]
    fn lines_survive(object in objects(), line in prop::option::of(lines())) {
        survives(&ToGuest::Is { object, line: line.map(LineView::from) });
    }

    #[test]
    fn malformed_message_is_garbage(bytes in prop::collection::vec(any::<u8>(), 0..MESSAGE_MAX)) {
        // Whatever it is, it neither panics nor is more than a message.
        if let Ok(message) = decode::<ToKeeper>(&bytes) {
            survives(&message);
        }
        if let Ok(message) = decode::<ToGuest>(&bytes) {
            prop_assert!(encoded(&message).len() <= bytes.len());
        }
    }
}

/// The encoding needs most bytes for what is large.
fn largest_turn() -> TurnId {
    let place = ContenderId { host: i32::MIN, client: u128::MAX, slot: i16::MIN };
    TurnId { place, round: i64::MIN, number: u64::MAX }
}

#[test]
fn largest_messages_fit_into_a_frame() {
    let object = ObjectHash::of("app", "locks", "a");
    let (turn, longest) = (largest_turn(), Duration::from_nanos(u64::MAX));
    let request = Request::IssueToken { turn, number: u64::MAX };
    let request =
        encoded(&ToKeeper::Request { object, request: TimedRequest { sent: longest, request } });
    let granted = Granted { request: u64::MAX, turn, echo: longest, length: longest };
    let response = Response::Granted(granted);
    let granted = encoded(&ToGuest::Response { object, response, user: None });
    assert!(request.len().max(granted.len()) <= 150, "they have room to grow");

    // Characters of any width.
    for owner in ["a", "é", "€", "🔒"] {
        let user = || TurnUser::new(u128::MAX, owner.repeat(1000));
        let first = (0..1000).map(|_| user()).collect();
        let line = HolderQueue {
            keeper: user(),
            user: Some(user()),
            is_kept: false,
            waiting: usize::MAX,
            first,
        };
        let line = LineView::from(line);
        let is = encoded(&ToGuest::Is { object, line: Some(line.clone()) });
        assert!(is.len() <= MESSAGE_MAX, "{}", is.len());
        let told = HolderQueue::from(line);
        assert_eq!(told.first.len(), QUEUE_SHOWN_MAX);
        assert_eq!(told.waiting, usize::try_from(u32::MAX).expect("it has 32 bits"));
    }
}

#[test]
fn owner_is_cut_between_characters() {
    let cut = |owner: &str| ClientName::new(Uuid::max(), owner).owner().to_owned();
    assert_eq!(cut("host[17] nightly job"), "host[17] nightly job");
    assert_eq!(cut(&"a".repeat(100)), "a".repeat(100));
    assert_eq!(cut(&"a".repeat(101)), "a".repeat(100));
    assert_eq!(cut(&"€".repeat(100)), "€".repeat(33));
}

#[test]
fn owner_of_a_peer_is_cut_too() {
    let longer = (Uuid::max(), "a".repeat(500));
    let name: ClientName = decode(&encoded(&longer)).expect("it is one");
    assert_eq!(name, ClientName::new(Uuid::max(), &"a".repeat(100)));
    assert_eq!(name.client(), Uuid::max());
}

#[test]
fn duration_that_could_overflow_a_sum_is_not_sent() {
    let request =
        Request::Ask { request: 1, ttl: Duration::MAX, is_try: false, least: Duration::ZERO };
    let object = ObjectHash::of("app", "locks", "a");
    let request = TimedRequest { sent: Duration::ZERO, request };
    let refused = encode(&ToKeeper::Request { object, request }, &mut [0; MESSAGE_MAX]).err();
    assert!(matches!(refused, Some(WireError::TooLong)));
}

/// Both ends of a connection read these bytes. If they change, so must the version.
#[test]
fn format_is_this() {
    let place = ContenderId { host: 3, client: 9, slot: -1 };
    let turn = TurnId { place, round: 5, number: 6 };
    let turn_bytes = [6, 9, 1, 10, 6];
    let (echo, length) = (Duration::from_nanos(7), Duration::from_nanos(300));
    let object = ObjectHash::of("app", "locks", "a");
    let object_bytes = encoded(&object);
    assert_eq!(object_bytes.len(), 32, "nothing is added");

    let sends = |request, bytes: &[&[u8]]| {
        let request = TimedRequest { sent: Duration::from_nanos(8), request };
        let expected = [&[0], object_bytes.as_slice(), &[8], &bytes.concat()].concat();
        assert_eq!(encoded(&ToKeeper::Request { object, request }), expected);
    };
    let ask = Request::Ask { request: 1, ttl: length, is_try: true, least: echo };
    sends(ask, &[&[0, 1, 0xac, 2, 1, 7]]);
    sends(Request::Withdraw { request: 1 }, &[&[1, 1]]);
    sends(Request::Renew { turn, least: echo }, &[&[2], &turn_bytes, &[7]]);
    sends(Request::IssueToken { turn, number: 4 }, &[&[3], &turn_bytes, &[4]]);
    sends(Request::Return { turn }, &[&[4], &turn_bytes]);
    sends(Request::Confirm { turn, number: 4 }, &[&[5], &turn_bytes, &[4]]);
    assert_eq!(encoded(&ToKeeper::Who { object }), [&[1], object_bytes.as_slice()].concat());

    let answers = |response, bytes: &[&[u8]]| {
        let expected = [&[0], object_bytes.as_slice(), &bytes.concat(), &[0]].concat();
        assert_eq!(encoded(&ToGuest::Response { object, response, user: None }), expected);
    };
    answers(Response::Queued { request: 1, ahead: 2 }, &[&[0, 1, 2]]);
    let granted = Granted { request: 1, turn, echo, length };
    answers(Response::Granted(granted), &[&[1, 1], &turn_bytes, &[7, 0xac, 2]]);
    let extended = Extended { turn, echo, length };
    answers(Response::Extended(extended), &[&[2], &turn_bytes, &[7, 0xac, 2]]);
    answers(Response::Returned { turn }, &[&[3], &turn_bytes]);
    answers(Response::Token { turn, number: 4, value: -1 }, &[&[4], &turn_bytes, &[4, 1]]);
    answers(Response::Leave { turn }, &[&[5], &turn_bytes]);
    answers(Response::Lost { turn }, &[&[6], &turn_bytes]);
    answers(Response::Elsewhere { request: 1 }, &[&[7, 1]]);
    answers(Response::Check { turn, number: 4 }, &[&[8], &turn_bytes, &[4]]);

    let client = Uuid::from_u128(9);
    let name = [&[16], client.as_bytes().as_slice(), &[2], b"me"].concat();
    assert_eq!(encoded(&ClientName::new(client, "me")), name);
    let user = Some(ClientName::new(client, "me"));
    let response = Response::Queued { request: 1, ahead: 2 };
    let expected = [&[0], object_bytes.as_slice(), &[0, 1, 2, 1], &name].concat();
    assert_eq!(encoded(&ToGuest::Response { object, response, user }), expected);
    let me = || TurnUser::new(9, "me".to_owned());
    let line = HolderQueue {
        keeper: me(),
        user: Some(me()),
        is_kept: false,
        waiting: 300,
        first: vec![me()],
    };
    let line = Some(LineView::from(line));
    let expected =
        [&[1], object_bytes.as_slice(), &[1], &name, &[1], &name, &[0, 0xac, 2, 1], &name].concat();
    assert_eq!(encoded(&ToGuest::Is { object, line }), expected);
    let expected = [&[1], object_bytes.as_slice(), &[0]].concat();
    assert_eq!(encoded(&ToGuest::Is { object, line: None }), expected);
}

#[test]
fn unknown_or_trailing_bytes_are_garbage() {
    let garbage = |bytes: &[u8]| {
        assert!(matches!(decode::<ToKeeper>(bytes), Err(WireError::Garbage)), "{bytes:?}");
    };
    let who = encoded(&ToKeeper::Who { object: ObjectHash::of("app", "locks", "a") });
    garbage(&[]);
    garbage(&[2]);
    garbage(&who[..who.len() - 1]);
    garbage(&[who.as_slice(), &[0]].concat());
    // A line of four thousand millions, of which nothing follows.
    let name = encoded(&ClientName::new(Uuid::max(), "me"));
    let line = [&[1], &who[1..], &[1], &name, &[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    assert!(matches!(decode::<ToGuest>(&line), Err(WireError::Garbage)));
}

#[test]
fn objects_are_told_apart() {
    let triples = [
        ("app", "locks", "a"),
        ("app", "locks", "b"),
        ("app", "lock", "sa"),
        ("appl", "ocks", "a"),
        ("app", "locksa", ""),
        ("", "applocks", "a"),
        ("locks", "app", "a"),
        ("", "", "applocksa"),
        ("", "", ""),
    ];
    for (index, (keyspace, table, name)) in triples.into_iter().enumerate() {
        let hash = ObjectHash::of(keyspace, table, name);
        for (keyspace, table, name) in &triples[..index] {
            assert_ne!(hash, ObjectHash::of(keyspace, table, name));
        }
    }
}

/// Clients of different programs must compute the same.
#[test]
fn hash_of_an_object_is_this() {
    let hash: String = encoded(&ObjectHash::of("app", "locks", "users::snap"))
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hash, "d9e8ac80c0a7204ed04d21a4033ee12ba15723c0659314d03a97babbb336a4e8");
}

#[test]
fn private_key_is_shown_to_none() {
    let [one, other] = [(); 2].map(|()| KeyPair::generate().expect("the system has randomness"));
    assert_ne!(one.private(), other.private());
    assert_ne!(one.public(), other.public());
    let public = PublicKey::from_bytes(*one.public().as_bytes());
    assert_eq!(format!("{one:?}"), format!("KeyPair {{ public: {public:?}, .. }}"));
}
