//! The processor time that processes have used.

use std::fs;
use std::io::{self, Error, ErrorKind};
use std::time::Duration;

/// The processor time that a process has used, in user space and in the kernel: fields 14 and 15 of
/// `proc_pid_stat(5)`, in hundredths of a second.
pub fn time_of(pid: u32) -> io::Result<Duration> {
    const AFTER_NAME: usize = 11;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program is in brackets, and may hold any character.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
    let times = fields.into_iter().flatten().skip(AFTER_NAME).take(2).map(str::parse::<u64>);
    let hundredths = times.sum::<Result<u64, _>>();
    let hundredths = hundredths.map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    Ok(Duration::from_millis(hundredths * 10))
}
