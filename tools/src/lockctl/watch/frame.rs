//! One picture of a lock: what is seen, drawn on any terminal.

use std::time::{Duration, SystemTime};

use bakery_lock::ContenderState;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::widgets::{Paragraph, Row, Table, Wrap};

use super::Seen;
use crate::lockctl::contender::warning;
use crate::lockctl::show::{COLUMNS, cells, is_number, line_as_text};
use crate::output::{self, visible};

/// What is drawn.
pub(super) struct Picture {
    title: String,
    rows: Vec<Contestant>,
    /// The line of the holder, or what went wrong.
    below: Vec<Note>,
}

/// One row of the table.
struct Contestant {
    cells: [String; COLUMNS.len()],
    holds: bool,
    overdue: bool,
}

struct Note {
    text: String,
    is_warning: bool,
}

/// How many warnings are shown; the rows of the others are marked too.
const WARNINGS_MAX: usize = 2;

impl Picture {
    pub(super) fn of(name: &str, seen: &Seen, now: SystemTime) -> Self {
        let rows: Vec<_> = seen
            .contenders
            .iter()
            .map(|contender| Contestant {
                cells: cells(contender, now),
                holds: contender.state == Some(ContenderState::Holding),
                overdue: contender.overdue.is_some(),
            })
            .collect();
        let holders = rows.iter().filter(|row| row.holds).count();
        let state = match rows.len() {
            0 => "is free".to_owned(),
            all => format!("holders: {holders}, waiting in the table: {}", all - holders),
        };
        let title = format!("{}  {state}  {}", visible(name), output::time(now));
        let line = seen.line.as_ref().map(line_as_text);
        let line = line.map(|text| Note { text: text.trim_end().to_owned(), is_warning: false });
        let warnings = seen.contenders.iter().filter_map(warning).take(WARNINGS_MAX);
        let warnings = warnings.map(|text| Note { text, is_warning: true });
        Picture { title, rows, below: line.into_iter().chain(warnings).collect() }
    }

    /// A picture of a look that failed.
    pub(super) fn trouble(name: &str, text: &str) -> Self {
        let note = Note { text: visible(text), is_warning: true };
        Picture { title: visible(name), rows: Vec::new(), below: vec![note] }
    }

    /// Warns that it is old: the next look has not been answered yet.
    pub(super) fn note_silence(&mut self, since: Duration) {
        let text = format!("no answer from the database for {} s", since.as_secs());
        self.below.push(Note { text, is_warning: true });
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, colours: bool) {
        let width = usize::from(frame.area().width.max(1));
        let lines = |note: &Note| note.text.chars().count().div_ceil(width).max(1) + 1;
        let below = self.below.iter().map(lines).sum::<usize>();
        let below = u16::try_from(below).unwrap_or(u16::MAX);
        let heights = [1, 1, u16::MAX, below, 1].map(|height| match height {
            u16::MAX => Constraint::Min(0),
            height => Constraint::Length(height),
        });
        let [title, _, table, notes, keys] = Layout::vertical(heights).areas(frame.area());
        frame.render_widget(Paragraph::new(self.title.as_str()).bold(), title);
        let shown = usize::from(table.height.saturating_sub(1));
        frame.render_widget(self.table(shown, colours), table);
        let mut rest = notes;
        for note in &self.below {
            let height = u16::try_from(lines(note)).unwrap_or(u16::MAX);
            let [area, after] =
                Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(rest);
            rest = after;
            let style = if note.is_warning { coloured(Color::Red, colours) } else { Style::new() };
            let text = Paragraph::new(note.text.as_str()).style(style).wrap(Wrap { trim: true });
            frame.render_widget(text, area);
        }
        let hidden = self.rows.len().saturating_sub(shown);
        let more = if hidden > 0 { format!("{hidden} more do not fit. ") } else { String::new() };
        frame.render_widget(
            Paragraph::new(format!("{more}q: quit")).alignment(Alignment::Right).dim(),
            keys,
        );
    }

    fn table(&self, shown: usize, colours: bool) -> Table<'_> {
        let longest = |index: usize| {
            let cells = self.rows.iter().map(|row| row.cells[index].chars().count());
            cells.max().unwrap_or(0).max(COLUMNS[index].len())
        };
        let widths: [usize; COLUMNS.len()] = std::array::from_fn(longest);
        let aligned = |index: usize, cell: &str| match is_number(COLUMNS[index]) {
            true => format!("{cell:>width$}", width = widths[index]),
            false => cell.to_owned(),
        };
        let header = COLUMNS.iter().enumerate().map(|(index, name)| aligned(index, name));
        let header = Row::new(header.collect::<Vec<_>>()).bold();
        let rows = self.rows.iter().take(shown).map(|row| {
            let cells = row.cells.iter().enumerate().map(|(index, cell)| aligned(index, cell));
            let style = match (row.overdue, row.holds) {
                (true, _) => coloured(Color::Red, colours).reversed(),
                (false, true) => coloured(Color::Green, colours).bold(),
                (false, false) => Style::new(),
            };
            Row::new(cells.collect::<Vec<_>>()).style(style)
        });
        let widths = widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(99)));
        Table::new(rows, widths).header(header).column_spacing(2)
    }
}

fn coloured(colour: Color, colours: bool) -> Style {
    if colours { Style::new().fg(colour) } else { Style::new() }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::*;

    fn drawn(picture: &Picture, height: u16, colours: bool) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(80, height)).expect("it has a size");
        terminal.draw(|frame| picture.draw(frame, colours)).expect("nothing fails in memory");
        terminal.backend().buffer().clone()
    }

    fn lines(buffer: &Buffer) -> Vec<String> {
        let cells: Vec<_> = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        cells.chunks(80).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    fn row(state: &str, host: &str, overdue: bool) -> Contestant {
        let cells = [state, host, "4711", "job", "exclusive", "7", "31s", "11s", "49s"];
        let holds = state == "holds";
        Contestant { cells: cells.map(str::to_owned), holds, overdue }
    }

    fn queue(waiting: usize) -> Picture {
        let mut rows = vec![row("holds", "web1", true)];
        rows.extend((0..waiting).map(|number| row("waits", &format!("host{number}"), false)));
        let below = vec![Note { text: "web1 should have renewed".to_owned(), is_warning: true }];
        Picture { title: "users::snap".to_owned(), rows, below }
    }

    #[test]
    fn holder_queue_and_warning_are_drawn() {
        let lines = lines(&drawn(&queue(1), 10, true));
        let expected = [
            "users::snap",
            "",
            "STATE  HOST    PID  LABEL  MODE       TICKET  SINCE  RENEWED  EXPIRES",
            "holds  web1   4711  job    exclusive       7    31s      11s      49s",
            "waits  host0  4711  job    exclusive       7    31s      11s      49s",
        ];
        assert_eq!(lines[..5], expected, "{lines:#?}");
        assert_eq!(lines[7], "web1 should have renewed", "{lines:#?}");
        assert!(lines[9].ends_with("q: quit"), "{lines:#?}");
    }

    #[test]
    fn picture_says_that_it_is_old() {
        let mut picture = queue(1);
        picture.note_silence(Duration::from_secs(3));
        let lines = lines(&drawn(&picture, 12, true));
        assert!(lines[3].starts_with("holds"), "{lines:#?}");
        let note = "no answer from the database for 3 s";
        assert!(lines.iter().any(|line| line == note), "{lines:#?}");
    }

    #[test]
    fn waiters_that_do_not_fit_are_counted() {
        for height in [1, 2, 3, 10, 24] {
            let lines = lines(&drawn(&queue(31), height, true));
            let shown = lines.iter().filter(|line| line.contains("exclusive")).count();
            if height >= 10 {
                let more = format!("{} more do not fit. q: quit", 32 - shown);
                assert!(lines.last().is_some_and(|line| line.ends_with(&more)), "{lines:#?}");
            }
        }
    }

    #[test]
    fn without_colours_there_are_none() {
        let colours = |colours| {
            let buffer = drawn(&queue(1), 10, colours);
            buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert_eq!(colours(false), 0);
        assert!(colours(true) > 0);
    }
}
