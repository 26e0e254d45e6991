//! How far a long storm is, for the terminal or the log it runs in.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::nemesis::Record;

/// How often a line tells how far it is, where a bar can't be drawn.
const LINE_PAUSE: Duration = Duration::from_secs(60);

/// A bar on a terminal, and a line now and then elsewhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    last_line: Instant,
}

impl Progress {
    pub(crate) fn begin(grants: u64) -> Self {
        let bar = ProgressBar::new(grants);
        let style = "{elapsed_precise} {wide_bar} {pos}/{len} grants, {eta} left; {msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is a constant"));
        Progress { bar, last_line: Instant::now() }
    }

    pub(crate) fn show(&mut self, grants: u64, subleases: u64, record: &Record) {
        let present = record.present.iter().map(|(kind, target)| format!("{kind}: {target}"));
        let present = present.collect::<Vec<_>>().join(", ");
        if self.bar.is_hidden() && self.last_line.elapsed() >= LINE_PAUSE {
            let faults: u64 = record.faults.values().sum();
            println!("{grants} grants, {subleases} of guests, {faults} faults; now {present}");
            self.last_line = Instant::now();
        }
        self.bar.set_position(grants);
        self.bar.set_message(present);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
