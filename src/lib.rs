//! wip
#[allow(dead_code)]
mod protocol;
#[allow(dead_code)]
mod clock;
#[allow(dead_code)]
mod error;
