//! Registers the hosts that may take locks.

fn main() {}
