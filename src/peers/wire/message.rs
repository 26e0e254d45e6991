//! What is sent, and how it is encoded.
//!
//! The messages of keeper and guest know nothing of an encoding. The types at the end repeat them
//! field by field; the compiler refuses them when a field or a variant differs. What is written
//! here is the format: whatever changes it needs another [`VERSION`](super::handshake::VERSION).

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::WireError;
use super::key::ObjectHash;
use crate::admin::types::{HolderQueue, QUEUE_SHOWN_MAX, TurnUser};
use crate::core::bakery::ContenderId;
use crate::core::turns::{Extended, Granted, Request, Response, TimedRequest, TurnId};

/// The maximum length of an owner, in bytes; longer ones are cut.
const OWNER_MAX: usize = 100;

/// What a guest sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// A request for an object.
    Request {
        /// The object.
        object: ObjectHash,
        /// The request.
        #[serde(with = "TimedRequestFormat")]
        request: TimedRequest,
    },
    /// Who uses an object, and who waits for it?
    Who {
        /// The object.
        object: ObjectHash,
    },
}

/// What a keeper sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    /// An answer to a request, or what becomes of it.
    Response {
        /// The object.
        object: ObjectHash,
        /// The answer.
        #[serde(with = "ResponseFormat")]
        response: Response,
        /// Who has the turn, for a guest that must wait.
        user: Option<ClientName>,
    },
    /// The answer to [`ToKeeper::Who`].
    Is {
        /// The object.
        object: ObjectHash,
        /// Its line; `None` if the client has no place.
        line: Option<LineView>,
    },
}

/// A client, as people know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// What a peer says is cut too: it may become a part of another message.
#[serde(from = "(Uuid, String)")]
pub(crate) struct ClientName {
    client: Uuid,
    owner: String,
}

impl ClientName {
    /// The owner says host name, process id and label, for people; it is cut to 100 bytes.
    pub(crate) fn new(client: Uuid, owner: &str) -> Self {
        let fits = |(start, character): &(usize, char)| start + character.len_utf8() <= OWNER_MAX;
        let owner = owner.char_indices().take_while(fits).map(|(_, character)| character);
        ClientName { client, owner: owner.collect() }
    }

    /// The id of the client.
    pub(crate) fn client(&self) -> Uuid {
        self.client
    }

    /// Host name, process id and label.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }
}

impl From<(Uuid, String)> for ClientName {
    fn from((client, owner): (Uuid, String)) -> Self {
        ClientName::new(client, &owner)
    }
}

impl From<TurnUser> for ClientName {
    fn from(TurnUser { client, owner }: TurnUser) -> Self {
        ClientName::new(client, owner.as_str())
    }
}

impl From<ClientName> for TurnUser {
    fn from(ClientName { client, owner }: ClientName) -> Self {
        TurnUser { client, owner: owner.into() }
    }
}

/// The line of an object, as a keeper reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineView {
    keeper: ClientName,
    user: Option<ClientName>,
    is_kept: bool,
    waiting: u32,
    first: Vec<ClientName>,
}

impl From<HolderQueue> for LineView {
    fn from(HolderQueue { keeper, user, is_kept, waiting, first }: HolderQueue) -> Self {
        LineView {
            keeper: keeper.into(),
            user: user.map(ClientName::from),
            is_kept,
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            first: first.into_iter().take(QUEUE_SHOWN_MAX).map(ClientName::from).collect(),
        }
    }
}

impl From<LineView> for HolderQueue {
    fn from(LineView { keeper, user, is_kept, waiting, first }: LineView) -> Self {
        HolderQueue {
            keeper: keeper.into(),
            user: user.map(TurnUser::from),
            is_kept,
            waiting: usize::try_from(waiting).unwrap_or(usize::MAX),
            first: first.into_iter().map(TurnUser::from).collect(),
        }
    }
}

/// Encodes a message into a buffer.
pub(super) fn encode<'a>(
    message: &impl Serialize,
    buffer: &'a mut [u8],
) -> Result<&'a [u8], WireError> {
    postcard::to_slice(message, buffer).map(|encoded| &*encoded).map_err(|_| WireError::TooLong)
}

/// Decodes a message, which must be all that is there.
pub(super) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(WireError::Garbage),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TimedRequest")]
struct TimedRequestFormat {
    #[serde(with = "nanos")]
    sent: Duration,
    #[serde(with = "RequestFormat")]
    request: Request,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Request")]
enum RequestFormat {
    Ask {
        request: u64,
        #[serde(with = "nanos")]
        ttl: Duration,
        is_try: bool,
        #[serde(with = "nanos")]
        least: Duration,
    },
    Withdraw {
        request: u64,
    },
    Renew {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
        #[serde(with = "nanos")]
        least: Duration,
    },
    IssueToken {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
        number: u64,
    },
    Return {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
    },
    Confirm {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
        number: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Response")]
enum ResponseFormat {
    Queued {
        request: u64,
        ahead: u32,
    },
    Granted(#[serde(with = "GrantedFormat")] Granted),
    Extended(#[serde(with = "ExtendedFormat")] Extended),
    Returned {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
    },
    Token {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
        number: u64,
        value: i64,
    },
    Leave {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
    },
    Lost {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
    },
    Elsewhere {
        request: u64,
    },
    Check {
        #[serde(with = "TurnIdFormat")]
        turn: TurnId,
        number: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Granted")]
struct GrantedFormat {
    request: u64,
    #[serde(with = "TurnIdFormat")]
    turn: TurnId,
    #[serde(with = "nanos")]
    echo: Duration,
    #[serde(with = "nanos")]
    length: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Extended")]
struct ExtendedFormat {
    #[serde(with = "TurnIdFormat")]
    turn: TurnId,
    #[serde(with = "nanos")]
    echo: Duration,
    #[serde(with = "nanos")]
    length: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TurnId")]
struct TurnIdFormat {
    #[serde(with = "ContenderIdFormat")]
    place: ContenderId,
    round: i64,
    number: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ContenderId")]
struct ContenderIdFormat {
    host: i32,
    client: u128,
    slot: i16,
}

/// Durations up to 584 years, to the nanosecond. A longer one is refused: sums of what a peer sends
/// must not overflow.
mod nanos {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

    pub(super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let nanos = u64::try_from(duration.as_nanos()).map_err(ser::Error::custom)?;
        nanos.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D>(deserializer: D) -> Result<Duration, D::Error>
    where
        D: Deserializer<'de>,
    {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}
