//! What a client says of itself: where it runs, and what for.

use std::fmt;
use std::process;
use std::sync::Arc;

/// Between the host name and the process id.
const PID: &str = " pid ";

/// Between all this and the note, in rows: a control character, which neither part has.
const NOTE: char = '\u{1e}';

/// The process behind a lock, for people: host name, process id, label and note, as the client
/// wrote them. Its text has the first three: `db7.example.com pid 4711 nightly job`. Control
/// characters are replaced by U+FFFD.
///
/// The parts are taken from that text, so they are missing where another program wrote it in
/// another form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    text: Arc<str>,
    note: Option<Arc<str>>,
}

impl Owner {
    /// This process, on a host of this name.
    pub(crate) fn this_process(host_name: &str) -> Self {
        Owner::from(format!("{host_name}{PID}{}", process::id()))
    }

    /// The same process, with what one of its callers locks for.
    fn with_label(&self, label: &str) -> Self {
        Owner::from(format!("{} {label}", self.text))
    }

    /// The same process for one of its callers.
    pub(crate) fn of_caller(&self, label: Option<&str>, note: Option<&str>) -> Self {
        let owner = label.map_or_else(|| self.clone(), |label| self.with_label(label));
        match note {
            Some(note) => owner.with_note(note),
            None => owner,
        }
    }

    /// The same with what its holder says of its work.
    fn with_note(&self, note: &str) -> Self {
        Owner { note: Some(printable(note.to_owned()).into()), ..self.clone() }
    }

    /// The text, without the note.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of its host in the registry.
    #[must_use]
    pub fn host_name(&self) -> Option<&str> {
        self.parts().map(|(host_name, ..)| host_name)
    }

    /// The id of its process, as its host counts processes.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.parts().map(|(_, pid, _)| pid)
    }

    /// What the request said that it is for: see
    /// [`LockRequest::label`](crate::LockRequest::label).
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.parts().and_then(|(.., label)| label)
    }

    /// What the holder said last: see [`LockHandle::set_note`](crate::LockHandle::set_note).
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The parts of the text. Names of hosts have no blanks, so the first mark is the one.
    fn parts(&self) -> Option<(&str, u32, Option<&str>)> {
        let (host_name, rest) = self.text.split_once(PID)?;
        let (pid, label) = match rest.split_once(' ') {
            Some((pid, label)) => (pid, Some(label)),
            None => (rest, None),
        };
        Some((host_name, pid.parse().ok()?, label))
    }
}

impl From<String> for Owner {
    fn from(text: String) -> Self {
        match text.split_once(NOTE) {
            Some((text, note)) => Owner::from(text.to_owned()).with_note(note),
            None => Owner { text: printable(text).into(), note: None },
        }
    }
}

/// A text of another program or client, which writes what it likes: what would move a terminal's
/// cursor, or end a line of a log, is replaced.
pub(crate) fn printable(text: String) -> String {
    if text.contains(char::is_control) {
        let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        return text.chars().map(shown).collect();
    }
    text
}

impl From<Arc<str>> for Owner {
    fn from(text: Arc<str>) -> Self {
        if text.contains(char::is_control) {
            Owner::from(text.to_string())
        } else {
            Owner { text, note: None }
        }
    }
}

impl From<Owner> for Arc<str> {
    fn from(Owner { text, note }: Owner) -> Self {
        note.map_or(Arc::clone(&text), |note| format!("{text}{NOTE}{note}").into())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Option<String>, Option<u32>, Option<String>) {
        let owner = Owner::from(text.to_owned());
        assert_eq!(owner.to_string(), text, "nothing of the text is lost");
        let owned = |part: Option<&str>| part.map(str::to_owned);
        (owned(owner.host_name()), owner.pid(), owned(owner.label()))
    }

    #[test]
    fn owner_is_told_by_its_parts() {
        let own = Owner::this_process("web1.example.com");
        assert_eq!((own.host_name(), own.pid()), (Some("web1.example.com"), Some(process::id())));
        assert_eq!(own.label(), None);
        let labelled = own.with_label("job 7 pid 8");
        assert_eq!((labelled.host_name(), labelled.pid()), (own.host_name(), own.pid()));
        assert_eq!(labelled.label(), Some("job 7 pid 8"));
        assert_eq!(own.with_label("").label(), Some(""));
    }

    #[test]
    fn control_characters_are_replaced() {
        let owner = Owner::from("a pid 7 \u{1b}[2Jb\nc\u{9b}".to_owned());
        assert_eq!(owner.as_str(), "a pid 7 \u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(owner.label(), Some("\u{fffd}[2Jb\u{fffd}c\u{fffd}"));
    }

    #[test]
    fn note_is_no_part_of_the_text() {
        let owner = Owner::from("a pid 7 b".to_owned()).with_note("3 of 4\ndone");
        assert_eq!((owner.as_str(), owner.label()), ("a pid 7 b", Some("b")));
        assert_eq!(owner.note(), Some("3 of 4\u{fffd}done"));
        let row = Arc::<str>::from(owner.clone());
        assert_eq!(Owner::from(row), owner);
        assert_eq!(owner.with_note("").note(), Some(""));
        assert_eq!(Owner::from("a pid 7".to_owned()).note(), None);
    }

    #[test]
    fn text_of_another_form_has_no_parts() {
        for text in ["", "snap", "client 7", " pid ", "a pid", "a pid x", "a pid -1", "a pid 7x b"]
        {
            assert_eq!(parts(text), (None, None, None), "{text:?}");
        }
        let some = |part: &str| Some(part.to_owned());
        assert_eq!(parts("a pid 7"), (some("a"), Some(7), None));
        assert_eq!(parts("a pid 7 b c"), (some("a"), Some(7), some("b c")));
    }
}
