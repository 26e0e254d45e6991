//! The processes that descend from this one.
//!
//! Those whose parent has ended become children of this process, also if they left its group and
//! session, so all of them can be found, be ended and be waited for.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use procfs::process::{Process, all_processes};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Becomes the parent of descendants whose parent ends: their subreaper, in the words of Linux.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Removes all children that have ended, and reports how. Returns whether some are left.
pub(super) fn reap(mut ended: impl FnMut(Pid, ExitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, ExitStatus::from_raw(status.as_raw())),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// All descendants but `others` and those of them.
///
/// Only they are looked at, not all processes: a busy machine with many of them must not take long
/// to end these.
pub(super) fn descendants(others: &[Pid]) -> Vec<Pid> {
    let mut found: Vec<Pid> = Vec::new();
    let mut parent = getpid();
    let mut next = 0;
    loop {
        let new = children(parent).into_iter().filter_map(Pid::from_raw);
        found.extend(new.filter(|child| !others.contains(child)));
        let Some(descendant) = found.get(next) else { return found };
        parent = *descendant;
        next += 1;
    }
}

/// The children of all threads of a process; none if it has ended.
fn children(parent: Pid) -> Vec<i32> {
    let parent = parent.as_raw_nonzero().get();
    let Ok(tasks) = Process::new(parent).and_then(|process| process.tasks()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.filter_map(Result::ok) {
        match task.children() {
            Ok(children) => found.extend(children.into_iter().map(u32::cast_signed)),
            // It has ended, or the kernel was built without these files.
            Err(_) => return children_among_all(parent),
        }
    }
    found
}

fn children_among_all(parent: i32) -> Vec<i32> {
    let Ok(processes) = all_processes() else { return Vec::new() };
    let stats = processes.filter_map(|process| process.ok()?.stat().ok());
    stats.filter(|stat| stat.ppid == parent).map(|stat| stat.pid).collect()
}

/// Kills all descendants but `others` and those of them, if they have not started others meanwhile.
pub(super) fn kill(others: &[Pid]) {
    for pid in descendants(others) {
        // It may have ended, or belong to another user.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Sends a signal to all descendants, and returns those to which this process may not.
///
/// They are stopped until all have it: so none is missed that is being started meanwhile, and what
/// they start to end does not get it. A process that has a stop signal starts no other. Those that
/// were stopped before continue only if the signal asks them to end.
///
/// A descendant that ended was not replaced by another process in the moment since it was found:
/// Linux counts pids up to the largest one before it uses one again.
pub(super) fn signal(signal: Signal) -> Vec<Pid> {
    // Those of another user can't be stopped, and may start others for ever.
    const ROUNDS_MAX: usize = 100;
    let mut found: Vec<(Pid, bool)> = Vec::new();
    let mut is_settled = false;
    for _ in 0..ROUNDS_MAX {
        let mut new = descendants(&[]);
        new.retain(|new| found.iter().all(|(old, _)| old != new));
        // A list of children may lack one while another one ends: it is read twice.
        if new.is_empty() && is_settled {
            break;
        }
        is_settled = new.is_empty();
        for pid in new {
            found.push((pid, is_stopped(pid)));
            let _ = kill_process(pid, Signal::STOP);
        }
    }
    let sent = found.iter().map(|&(pid, _)| (pid, kill_process(pid, signal)));
    let not_permitted = sent.filter(|(_, sent)| *sent == Err(Errno::PERM)).map(|(pid, _)| pid);
    let not_permitted = not_permitted.collect();
    let asks_to_end = [Signal::TERM, Signal::HUP].contains(&signal);
    // Children before their parents: no shell sees that its job was stopped.
    for (pid, _) in found.iter().rev().filter(|(_, was_stopped)| asks_to_end || !was_stopped) {
        let _ = kill_process(*pid, Signal::CONT);
    }
    not_permitted
}

fn is_stopped(pid: Pid) -> bool {
    let process = Process::new(pid.as_raw_nonzero().get());
    process.and_then(|process| process.stat()).is_ok_and(|stat| stat.state == 'T')
}
