//! Connections between keepers and guests (design section 7, R9).
//!
//! A guest connects to a keeper, never the reverse. Both prove that they have the private key to
//! the public one that they have published, and then exchange messages in encrypted frames of at
//! most 1 KiB. A frame that is too long, or that can't be decoded, ends the connection.
//!
//! A connection says nothing about a lease. `keeper` and `guest` expect messages to be lost, and
//! repeat what is not answered.
//!
//! # Where to look
//!
//! [`channel`] is a connection and what becomes of its messages, [`handshake`] how both sides get
//! to one. [`message`] says what is sent and how it is encoded. [`frames`] finds messages in a
//! stream of bytes, and [`cipher`] encrypts them. [`key`] is what both sides must know beforehand:
//! keys of clients, and hashes of objects.

mod channel;
mod cipher;
mod error;
mod frames;
mod handshake;
mod key;
mod message;
#[cfg(test)]
mod tests;

pub(super) use self::key::ObjectHash;
pub(crate) use self::key::{KeyPair, PublicKey};
pub(super) use self::{
    channel::{Channel, Receiver, Sender},
    error::WireError,
    frames::Stream,
    handshake::{HANDSHAKE_MAX, VERSION},
    message::{ClientName, LineView, ToGuest, ToKeeper},
};
