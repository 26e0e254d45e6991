//! RESP, the protocol of Redis: requests as bytes, replies as bytes, and nothing about locks.

mod reply;
mod request;

pub(super) use self::reply::{Reply, Version, encode};
pub(super) use self::request::{Limits, Request, next_request};
