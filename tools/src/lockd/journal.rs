//! The journal: what clients were promised for a time, as the next daemon must know it if this one
//! is killed.
//!
//! Each process has a file of its own, which it locks while it runs. A promise is written
//! before the client learns of it; the end of a lock before its release begins, because others may
//! use its rows then. It is written to the system alone, not to a disk: a process that is killed
//! loses nothing of it, and what a machine loses ends with it.

mod file;
mod record;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bakery_lock::Uuid;
use bakery_lock::admin::HeldPlace;
use bytes::Bytes;

use self::file::{DeadFile, Found, JournalFile};
use self::record::{Contents, FORMAT, Granted, Place, Record, Scope};
use super::NAME;
use super::boot::Boot;
use super::locked::locked;
use super::locks::{Held, Locks, Noted, Promise};
use super::peer::Peer;
use super::users::LockName;
use crate::output;

/// A file is rewritten once it has twice the size that it needs, and at least this one.
const REWRITE_MIN: u64 = 1 << 20;

/// After a failure it is tried again to write a file.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often a file is begun if another process takes it for an incomplete one.
const TRIES: usize = 10;

/// The journal of this process, if it keeps one.
#[derive(Debug)]
pub(super) struct Journal(Option<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// What the names of all files of this daemon begin with.
    path: PathBuf,
    file: JournalFile,
    boot: String,
    table: String,
    buffer: Vec<u8>,
    /// The number of the lock that was noted last.
    last: u64,
    /// The size from which on the file is rewritten.
    rewrite_at: u64,
    /// When it could not be written: it says nothing since.
    failed: Option<Boot>,
    /// The process ends: what the file says stays.
    is_final: bool,
}

/// A lock that a daemon had promised which has died.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) name: LockName,
    pub(super) owner: Bytes,
    pub(super) promise: Promise,
    pub(super) peer: Peer,
    pub(super) place: Option<HeldPlace>,
}

/// What the journal of another daemon shows.
#[derive(Debug)]
pub(super) enum Other {
    /// That daemon lives.
    Lives,
    /// Nothing to adopt, now or later.
    Nothing,
    /// It has died: what it had promised.
    Died(Estate),
}

/// What a daemon that has died had promised. No other process has it.
#[derive(Debug)]
pub(super) struct Estate {
    file: DeadFile,
    pub(super) orphans: Vec<Orphan>,
}

impl Estate {
    /// All of it was adopted, and noted in the journal of this process.
    pub(super) fn finish(self) {
        // What is adopted twice is known by its name and owner.
        let _ = self.file.remove();
    }
}

impl Journal {
    /// No journal.
    pub(super) fn off() -> Self {
        Journal(None)
    }

    /// Begins the journal of a client of this lock table, in a file beside `path`.
    ///
    /// # Errors
    ///
    /// The directory is missing or can't be written.
    pub(super) fn begin(path: PathBuf, client: Uuid, table: &str) -> io::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Journal::of_boot(boot.trim(), path, client, table)
    }

    fn of_boot(boot: &str, path: PathBuf, client: Uuid, table: &str) -> io::Result<Self> {
        let (boot, table) = (boot.to_owned(), table.to_owned());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", client.simple()));
        let own = path.with_file_name(name);
        let mut bytes = Vec::new();
        begins(&boot, &table).write(&mut bytes);
        let file = begun(&own, &bytes)?;
        let (buffer, last, failed, is_final) = (Vec::new(), 0, None, false);
        let rewrite_at = REWRITE_MIN;
        let state = State { path, file, boot, table, buffer, last, rewrite_at, failed, is_final };
        Ok(Journal(Some(Mutex::new(state))))
    }

    /// Notes what is promised of a lock now, if that is not what was noted last; nothing of a lock
    /// that is about to be released, or has ended.
    pub(super) fn note(&self, held: &Held, locks: &Locks) {
        if let Some(state) = &self.0 {
            locked(state).note(held, locks);
        }
    }

    /// How many bytes it has.
    pub(super) fn size(&self) -> u64 {
        self.0.as_ref().map_or(0, |state| locked(state).file.length())
    }

    /// The process ends. What was noted until now stays, for the next one.
    pub(super) fn leave(&self) {
        if let Some(state) = &self.0 {
            locked(state).is_final = true;
        }
    }

    /// The process ends, and nothing is promised any more.
    pub(super) fn remove(&self) {
        if let Some(state) = &self.0 {
            let mut state = locked(state);
            state.is_final = true;
            // What is left says that nothing is promised.
            let _ = std::fs::remove_file(state.file.path());
        }
    }

    /// The journals of other daemons with the same path.
    ///
    /// # Errors
    ///
    /// The directory can't be read.
    pub(super) fn others(&self) -> io::Result<Vec<PathBuf>> {
        let Some(state) = &self.0 else { return Ok(Vec::new()) };
        let (path, own) = {
            let state = locked(state);
            (state.path.clone(), state.file.path().to_owned())
        };
        let mut others = file::others(&path)?;
        others.retain(|other| *other != own);
        Ok(others)
    }

    /// Looks what becomes of another daemon's journal.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub(super) fn look(&self, other: &Path) -> io::Result<Other> {
        let Some(state) = &self.0 else { return Ok(Other::Nothing) };
        let file = match file::look(other)? {
            Found::OfTheDead(file) => file,
            Found::OfTheLiving => return Ok(Other::Lives),
            Found::Gone => return Ok(Other::Nothing),
        };
        let state = locked(state);
        let scope = Scope { boot: &state.boot, table: &state.table };
        let orphans = match record::contents(&file.bytes, scope) {
            Contents::Locks(locks) => locks.into_iter().filter_map(orphan).collect(),
            Contents::Foreign => return Ok(Other::Nothing),
            Contents::Outdated => {
                file.remove()?;
                return Ok(Other::Nothing);
            }
        };
        Ok(Other::Died(Estate { file, orphans }))
    }
}

/// A new file. Another process may take it for an incomplete one of a process that has ended, in
/// the moment before it is locked.
fn begun(path: &Path, bytes: &[u8]) -> io::Result<JournalFile> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match JournalFile::create(path.to_owned(), bytes) {
            Err(error)
                if tries > 0
                    && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotFound) => {}
            created => return created,
        }
    }
}

fn begins<'a>(boot: &'a str, table: &'a str) -> Record<'a> {
    Record::Begins { format: FORMAT, scope: Scope { boot, table } }
}

fn orphan(granted: Granted<'_>) -> Option<Orphan> {
    let Granted { number: _, name, prefix, owner, until, uses, peer, place } = granted;
    Some(Orphan {
        name: LockName::of_table(name, prefix)?,
        owner: Bytes::copy_from_slice(owner),
        promise: Promise { until: Boot::at(until), uses },
        peer,
        place: place.map(HeldPlace::from),
    })
}

impl State {
    fn note(&mut self, held: &Held, locks: &Locks) {
        if self.is_final {
            return;
        }
        let promise = held.promise();
        let mut noted = held.noted();
        let before = *noted;
        if before.map(|noted| noted.promise) == promise {
            return;
        }
        *noted = promise.map(|promise| {
            let number = before.map_or(self.last + 1, |noted| noted.number);
            Noted { number, promise }
        });
        let now = *noted;
        drop(noted);
        self.last = self.last.max(now.map_or(0, |noted| noted.number));
        self.buffer.clear();
        match (before, now) {
            (None, Some(noted)) => granted(held, noted).write(&mut self.buffer),
            (Some(_), Some(Noted { number, promise: Promise { until, uses } })) => {
                let until = until.since_start();
                Record::Changed { number, until, uses }.write(&mut self.buffer);
            }
            (Some(Noted { number, .. }), None) => Record::Ended { number }.write(&mut self.buffer),
            (None, None) => {}
        }
        self.put(locks);
    }

    /// Writes what is in the buffer, or all that is noted.
    fn put(&mut self, locks: &Locks) {
        let written = match self.failed {
            Some(failed) if Boot::now().since(failed) < AGAIN_AFTER => return,
            Some(_) => self.rewrite(locks),
            None => self.append(locks),
        };
        match (written, self.failed) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => {
                self.failed = None;
                output::note(&format!("{NAME}: the journal is written again"));
            }
            (Err(error), _) => self.fails(&error),
        }
    }

    /// It could not be written.
    fn fails(&mut self, error: &io::Error) {
        // What it says could be wrong from now on.
        let discarded = self.file.discard();
        let path = self.file.path().display();
        if self.failed.replace(Boot::now()).is_none() {
            output::warn(&format!(
                "the journal {path} can't be written, so that the next daemon will not know of \
                 the locks of this one: {error}"
            ));
        }
        if let Err(error) = discarded {
            output::warn(&format!("the journal {path} is wrong, and can't be removed: {error}"));
        }
    }

    fn append(&mut self, locks: &Locks) -> io::Result<()> {
        self.file.append(&self.buffer)?;
        if self.file.length() >= self.rewrite_at && self.rewrite(locks).is_err() {
            // What is there is right, only long.
            self.rewrite_at = 2 * self.file.length();
        }
        Ok(())
    }

    /// Writes a file of all that is noted, which takes the place of the one before.
    fn rewrite(&mut self, locks: &Locks) -> io::Result<()> {
        self.buffer.clear();
        begins(&self.boot, &self.table).write(&mut self.buffer);
        for held in locks.all() {
            let noted = *held.noted();
            if let Some(noted) = noted {
                granted(&held, noted).write(&mut self.buffer);
            }
        }
        self.file = begun(self.file.path(), &self.buffer)?;
        self.rewrite_at = REWRITE_MIN.max(2 * self.file.length());
        self.buffer.clear();
        self.buffer.shrink_to(REWRITE_BUFFER_MAX);
        Ok(())
    }
}

/// The buffer keeps room for this much: records are short, and a whole file is not.
const REWRITE_BUFFER_MAX: usize = 1 << 16;

fn granted(held: &Held, Noted { number, promise }: Noted) -> Record<'_> {
    Record::Granted(Granted {
        number,
        name: held.name.in_table(),
        prefix: held.name.prefix().len(),
        owner: &held.owner,
        until: promise.until.since_start(),
        uses: promise.uses,
        peer: held.peer,
        place: held.place.map(Place::from),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lockd::users::Users;

    const TABLE: &str = "locks.locks";

    fn journal(directory: &tempfile::TempDir, boot: &str, table: &str) -> Journal {
        let path = directory.path().join("lockd.journal");
        Journal::of_boot(boot, path, Uuid::new_v4(), table).expect("there is room")
    }

    fn held(name: &str, owner: &str, time: Duration) -> Arc<Held> {
        let user = Users::everyone().anyone().expect("no one has a password");
        let name = user.lock(name.as_bytes()).expect("it is one");
        let promise = Promise { until: Boot::now().after(time), uses: 1 };
        let owner = Bytes::copy_from_slice(owner.as_bytes());
        Held::adopted(name, owner, promise, Peer::Process(7), None)
    }

    const LONG: Duration = Duration::from_secs(1_000);

    /// Owners of what a daemon that has died had promised.
    fn died(journal: &Journal, other: &Path) -> Vec<Bytes> {
        match journal.look(other).expect("it can be read") {
            Other::Died(estate) => estate.orphans.iter().map(|it| it.owner.clone()).collect(),
            other @ (Other::Lives | Other::Nothing) => panic!("{other:?}"),
        }
    }

    #[test]
    fn next_daemon_finds_what_had_not_ended() {
        let directory = tempfile::tempdir().expect("there is room");
        let (one, locks) = (journal(&directory, "this", TABLE), Locks::default());
        let next = journal(&directory, "this", TABLE);
        let (kept, ended) = (held("a", "kept", LONG), held("b", "ended", LONG));
        for held in [&kept, &ended] {
            locks.insert(held);
            one.note(held, &locks);
        }
        let size = one.size();
        one.note(&kept, &locks);
        assert_eq!(one.size(), size, "nothing has changed");
        kept.use_again();
        one.note(&kept, &locks);
        let _hold = locks.remove(&ended).expect("it is held");
        one.note(&ended, &locks);
        one.leave();
        let _hold = locks.remove(&kept).expect("it is held");
        one.note(&kept, &locks);

        let others = next.others().expect("it can be read");
        let [other] = &others[..] else { panic!("{others:?}") };
        assert!(matches!(next.look(other), Ok(Other::Lives)));
        drop(one);
        let Ok(Other::Died(mut estate)) = next.look(other) else { panic!("it has died") };
        let orphan = estate.orphans.pop().expect("one is held");
        assert_eq!((orphan.name.in_table(), &*orphan.owner), ("a", b"kept".as_slice()));
        assert_eq!((orphan.promise.uses, orphan.peer), (2, Peer::Process(7)));
        assert!(orphan.promise.until.left() > LONG / 2 && estate.orphans.is_empty());
        estate.finish();
        assert!(matches!(next.look(other), Ok(Other::Nothing)));
        next.remove();
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn journals_of_other_boots_and_tables_are_passed_over() {
        let directory = tempfile::tempdir().expect("there is room");
        let next = journal(&directory, "this", TABLE);
        for (boot, table, stays) in [("earlier", TABLE, false), ("this", "others.locks", true)] {
            let (one, locks) = (journal(&directory, boot, table), Locks::default());
            let held = held("a", "one", LONG);
            locks.insert(&held);
            one.note(&held, &locks);
            drop(one);
            let others = next.others().expect("it can be read");
            let [other] = &others[..] else { panic!("{others:?}") };
            assert!(matches!(next.look(other), Ok(Other::Nothing)), "{boot} {table}");
            assert_eq!(other.exists(), stays, "{boot} {table}");
        }
    }

    #[test]
    fn journal_is_bounded_by_what_is_held() {
        const KEPT: usize = 1_000;
        const GRANTS: usize = 100_000;
        let directory = tempfile::tempdir().expect("there is room");
        let (one, locks) = (journal(&directory, "this", TABLE), Locks::default());
        let mut most = 0;
        for number in 0..GRANTS {
            let (name, owner) = (format!("name{}", number % 7), format!("owner{number}"));
            let held = held(&name, &owner, LONG);
            locks.insert(&held);
            one.note(&held, &locks);
            if number >= KEPT {
                let _hold = locks.remove(&held).expect("it is held");
                one.note(&held, &locks);
            }
            most = most.max(one.size());
        }
        assert!(most <= REWRITE_MIN, "{most}");
        let next = journal(&directory, "this", TABLE);
        let others = next.others().expect("it can be read");
        drop(one);
        let found = died(&next, &others[0]);
        assert_eq!(found.len(), KEPT);
        assert!((0..KEPT).all(|number| found[number] == format!("owner{number}")));
    }

    #[test]
    fn unwritable_journal_is_empty_until_it_can_be_written() {
        let directory = tempfile::tempdir().expect("there is room");
        let (one, locks) = (journal(&directory, "this", TABLE), Locks::default());
        let next = journal(&directory, "this", TABLE);
        let (before, after) = (held("a", "before", LONG), held("b", "after", LONG));
        let note = |held| {
            locks.insert(held);
            one.note(held, &locks);
        };
        note(&before);
        let state = one.0.as_ref().expect("it is kept");
        locked(state).fails(&io::Error::other("no room"));
        note(&after);
        assert_eq!(one.size(), 0, "it is not tried again at once");
        locked(state).failed = Some(Boot::at(Duration::ZERO));
        after.use_again();
        one.note(&after, &locks);
        let others = next.others().expect("it can be read");
        drop(one);
        let mut found = died(&next, &others[0]);
        found.sort();
        assert_eq!(found, ["after", "before"]);
    }
}
