//! The arguments of a command, read one after the other.

use std::time::Duration;

use bytes::Bytes;

use super::refusal::Refusal;

/// The arguments that are left.
#[derive(Debug)]
pub(super) struct Words<'a> {
    command: &'a str,
    rest: std::slice::Iter<'a, Bytes>,
}

impl<'a> Words<'a> {
    /// The arguments of a command, which errors name.
    pub(super) fn new(command: &'a str, arguments: &'a [Bytes]) -> Self {
        Words { command, rest: arguments.iter() }
    }

    /// How many are left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// The next one, if there is one.
    pub(super) fn next(&mut self) -> Option<&'a Bytes> {
        self.rest.next()
    }

    /// The next one.
    pub(super) fn word(&mut self) -> Result<&'a Bytes, Refusal> {
        self.rest.next().ok_or_else(|| self.wrong_number())
    }

    /// The next one as text.
    pub(super) fn text(&mut self) -> Result<&'a str, Refusal> {
        let word = self.word()?;
        str::from_utf8(word).map_err(|_| Refusal::error("this must be UTF-8 text"))
    }

    /// The next one as a number.
    pub(super) fn number(&mut self) -> Result<i64, Refusal> {
        number(self.word()?)
    }

    /// The next one as a time in milliseconds, which is not zero.
    pub(super) fn milliseconds(&mut self) -> Result<Duration, Refusal> {
        let number = self.number()?;
        match u64::try_from(number) {
            Ok(number) if number > 0 => Ok(Duration::from_millis(number)),
            Ok(_) | Err(_) => Err(self.invalid_expire()),
        }
    }

    /// The error for a time that is zero or less, in the words of Redis.
    pub(super) fn invalid_expire(&self) -> Refusal {
        Refusal::error(&format!("invalid expire time in '{}' command", self.command))
    }

    /// Nothing must be left.
    pub(super) fn end(&self) -> Result<(), Refusal> {
        if self.rest.len() == 0 { Ok(()) } else { Err(self.wrong_number()) }
    }

    fn wrong_number(&self) -> Refusal {
        Refusal::error(&format!("wrong number of arguments for '{}' command", self.command))
    }
}

/// A number in decimal digits.
pub(super) fn number(word: &[u8]) -> Result<i64, Refusal> {
    let digits = str::from_utf8(word).ok().and_then(|digits| digits.parse().ok());
    digits.ok_or_else(|| Refusal::error("value is not an integer or out of range"))
}
