//! Files of the journal. Each daemon has one, under a file lock while its process lives:
//! who gets the lock of another one knows that its process has ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// What stands behind the name of a file that is not complete yet.
const NEW: &str = ".new";

/// A file that this process writes.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: File,
    path: PathBuf,
    length: u64,
}

/// What becomes of the file of another process.
#[derive(Debug)]
pub(super) enum Found {
    /// Its process has ended.
    OfTheDead(DeadFile),
    /// Its process lives.
    OfTheLiving,
    /// There is none any more.
    Gone,
}

/// The file of a process that has ended. No other process gets it.
#[derive(Debug)]
pub(super) struct DeadFile {
    /// It holds the lock.
    _file: File,
    path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl JournalFile {
    /// A file with these bytes, which takes the place of what is at the path in one step: there is
    /// no moment without it or without its lock.
    pub(super) fn create(path: PathBuf, bytes: &[u8]) -> io::Result<Self> {
        let mut new = path.clone().into_os_string();
        new.push(NEW);
        // Of this process, which failed to complete it.
        let _ = fs::remove_file(&new);
        let mut file =
            OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(&new)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(bytes)?;
        fs::rename(&new, &path)?;
        Ok(JournalFile { file, path, length: bytes.len() as u64 })
    }

    /// Writes records behind the others.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Leaves nothing of what was written: it would be wrong from now on.
    pub(super) fn discard(&mut self) -> io::Result<()> {
        self.length = 0;
        self.file.set_len(0).or_else(|_| fs::remove_file(&self.path))
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        // To close it is not enough: a program that is being started has a copy until it runs.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The files whose names begin as this path, which is no file itself, and end with what each
/// process adds. Incomplete ones of processes that have ended are removed.
pub(super) fn others(path: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut begin = path.file_name().unwrap_or_default().to_owned();
    begin.push(".");
    let begin = begin.as_encoded_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(end) = name.as_encoded_bytes().strip_prefix(begin) else { continue };
        let is_id = |id: &[u8]| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit);
        if is_id(end) {
            found.push(entry.path());
        } else if let Some(id) = end.strip_suffix(NEW.as_bytes())
            && is_id(id)
            && let Ok(Found::OfTheDead(incomplete)) = look(&entry.path())
        {
            // Another one may be faster.
            let _ = incomplete.remove();
        }
    }
    Ok(found)
}

/// Looks whether the process of a file has ended.
pub(super) fn look(path: &Path) -> io::Result<Found> {
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Gone),
        Err(error) => Err(error),
        Ok(file) => look_into(file, path),
    }
}

fn look_into(mut file: File, path: &Path) -> io::Result<Found> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Found::OfTheLiving),
        locked => locked?,
    }
    // A process that lives may have replaced it, and then closed what was opened here.
    let is_same = |there: fs::Metadata| {
        file.metadata().map(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
    };
    match fs::metadata(path).and_then(is_same) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Gone),
        Ok(false) => return Ok(Found::OfTheLiving),
        same => same?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Found::OfTheDead(DeadFile { _file: file, path: path.to_owned(), bytes }))
}

impl DeadFile {
    /// Removes it: what it says was taken over, or counts no more.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn journal() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("lockd.journal");
        let own = directory.path().join(format!("lockd.journal.{ID}"));
        (directory, path, own)
    }

    fn dead(path: &Path) -> DeadFile {
        match look(path).expect("it can be read") {
            Found::OfTheDead(dead) => dead,
            found @ (Found::OfTheLiving | Found::Gone) => panic!("{found:?}"),
        }
    }

    #[test]
    fn file_is_had_once_its_process_has_ended() {
        let (_directory, path, own) = journal();
        let mut file = JournalFile::create(own.clone(), b"be").expect("there is room");
        assert_eq!(fs::metadata(&own).expect("it is there").mode() & 0o777, 0o600);
        file.append(b"gun").expect("there is room");
        assert_eq!(file.length(), 5);
        assert_eq!(others(&path).expect("it can be read"), [own.as_path()]);
        assert!(matches!(look(&own), Ok(Found::OfTheLiving)));
        let file = JournalFile::create(own.clone(), b"again").expect("there is room");
        assert!(matches!(look(&own), Ok(Found::OfTheLiving)), "it was replaced");
        // As at the end of its process.
        drop(file);
        let found = dead(&own);
        assert_eq!(found.bytes, b"again");
        assert!(matches!(look(&own), Ok(Found::OfTheLiving)), "one process has it");
        found.remove().expect("it is there");
        assert!(matches!(look(&own), Ok(Found::Gone)));
    }

    #[test]
    fn closed_file_is_unlocked_despite_a_copy() {
        let (_directory, _, own) = journal();
        let file = JournalFile::create(own.clone(), b"begun").expect("there is room");
        let _copy = file.file.try_clone().expect("it is open");
        drop(file);
        assert_eq!(dead(&own).bytes, b"begun");
    }

    #[test]
    fn replaced_file_does_not_count_as_that_of_the_dead() {
        let (_directory, _, own) = journal();
        let old = JournalFile::create(own.clone(), b"old").expect("there is room");
        let opened = File::open(&own).expect("it is there");
        let new = JournalFile::create(own.clone(), b"new").expect("there is room");
        drop(old);
        assert!(matches!(look_into(opened, &own), Ok(Found::OfTheLiving)));
        drop(new);
        assert_eq!(dead(&own).bytes, b"new");
    }

    #[test]
    fn incomplete_files_are_removed() {
        let (directory, path, own) = journal();
        let incomplete = directory.path().join(format!("lockd.journal.{ID}{NEW}"));
        fs::write(&incomplete, b"be").expect("there is room");
        for other in ["lockd.journal", "lockd.journal.old", "lockd.sock"] {
            fs::write(directory.path().join(other), b"").expect("there is room");
        }
        assert_eq!(others(&path).expect("it can be read"), Vec::<PathBuf>::new());
        assert!(!incomplete.exists());
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 3);
        assert!(!own.exists());
    }

    #[test]
    fn discarded_file_says_nothing() {
        let (_directory, _, own) = journal();
        let mut file = JournalFile::create(own.clone(), b"begun").expect("there is room");
        file.discard().expect("it can be cut");
        file.append(b"new").expect("there is room");
        drop(file);
        assert_eq!(dead(&own).bytes, b"new");
    }
}
