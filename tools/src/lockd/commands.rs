//! The commands: those of the daemon, those of Redis that lock clients send, and their scripts.

pub(super) mod connection;
pub(super) mod native;
pub(super) mod redis;
mod redisson;
pub(super) mod scripted;
