//! How far long work is.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar at the terminal, without colours; without a terminal nothing is drawn.
pub(super) fn progress_bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(0);
    bar.set_style(style.expect("the template is valid"));
    bar
}
