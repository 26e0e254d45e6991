//! The terminal that a lock is watched on.

use std::thread;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::frame::Picture;
use crate::failure::Failure;

/// The terminal, which is as it was once this is dropped. It is restored before a panic, too.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    events: mpsc::UnboundedReceiver<Event>,
    colours: bool,
}

/// What the user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Quit,
    Resized,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init()
            .inspect_err(|_| ratatui::restore())
            .map_err(Failure::system("the terminal can't be used"))?;
        let (sender, events) = mpsc::unbounded_channel();
        // A thread, because reading keys blocks. It ends with the process.
        thread::spawn(move || {
            while let Ok(event) = event::read() {
                if meaning(&event).is_some_and(|event| sender.send(event).is_err()) {
                    break;
                }
            }
        });
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Screen { terminal, events, colours })
    }

    pub(super) fn draw(&mut self, picture: &Picture) -> Result<(), Failure> {
        let colours = self.colours;
        let drawn = self.terminal.draw(|frame| picture.draw(frame, colours));
        drawn.map_err(Failure::Output)?;
        Ok(())
    }

    /// The next event. Without a keyboard any more, that is the end.
    pub(super) async fn event(&mut self) -> Event {
        self.events.recv().await.unwrap_or(Event::Quit)
    }

    pub(super) async fn quit(&mut self) {
        while self.event().await != Event::Quit {}
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn meaning(event: &event::Event) -> Option<Event> {
    match event {
        event::Event::Resize(..) => Some(Event::Resized),
        event::Event::Key(key) if key.kind == KeyEventKind::Press => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            let quits = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
                || (control && key.code == KeyCode::Char('c'));
            quits.then_some(Event::Quit)
        }
        event::Event::Key(_)
        | event::Event::Mouse(_)
        | event::Event::Paste(_)
        | event::Event::FocusGained
        | event::Event::FocusLost => None,
    }
}
