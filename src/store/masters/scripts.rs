//! The scripts that servers run. Each is applied as a unit.

/// One of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Reads cells.
    Read,
    /// Writes cells.
    Write,
    /// Writes cells, then reads some.
    Exchange,
    /// Hides what was written up to a horizon.
    Sweep,
    /// Replaces the view of a member.
    Install,
    /// Makes a server a member.
    Join,
    /// Notes that a member was started again with all of its data.
    Adopt,
}

macro_rules! lua {
    ($($file:literal),+) => { concat!($(include_str!(concat!("scripts/", $file)), "\n"),+) };
}

impl Script {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Script; 7] = [
        Script::Read,
        Script::Write,
        Script::Exchange,
        Script::Sweep,
        Script::Install,
        Script::Join,
        Script::Adopt,
    ];

    pub(super) fn text(self) -> &'static str {
        match self {
            Script::Read => lua!("common.lua", "show.lua", "read.lua"),
            Script::Write => lua!("common.lua", "change.lua", "cells.lua", "write.lua"),
            Script::Exchange => {
                lua!("common.lua", "change.lua", "cells.lua", "show.lua", "exchange.lua")
            }
            Script::Sweep => lua!("common.lua", "change.lua", "sweep.lua"),
            Script::Install => lua!("install.lua"),
            Script::Join => lua!("join.lua"),
            Script::Adopt => lua!("adopt.lua"),
        }
    }
}
