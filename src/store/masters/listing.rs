//! The names of all objects, page by page.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use super::attendance::MemberState;
use super::link::{CallError, Connection};
use super::membership::majority;
use super::{MastersStore, NoQuorum, WAITS, reply};
use crate::store::{Cursor, DatabaseError, Page, at_the_same_time};

/// The number of objects on a page.
const OBJECTS_PER_PAGE: usize = 100;

/// How many keys a server looks at in one step.
const KEYS_PER_STEP: usize = 1_000;

/// The names of all objects, in their order. The pages of one listing are taken from it.
#[derive(Debug)]
pub(super) struct Listing {
    id: u64,
    names: Vec<Box<str>>,
}

impl MastersStore {
    /// Rows of the next objects. A cursor is the id of the listing and the last name.
    pub(super) async fn page(&self, from: Option<&Cursor>) -> Result<Page, DatabaseError> {
        let (id, last) = match from.and_then(|cursor| cursor.0.split_first_chunk::<8>()) {
            Some((id, last)) => (Some(u64::from_be_bytes(*id)), last),
            None => (None, &[][..]),
        };
        let known = self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let listing = match known.filter(|known| Some(known.id) == id) {
            Some(known) => known,
            None => self.list().await?,
        };
        let begin = match from {
            Some(_) => listing.names.partition_point(|name| name.as_bytes() <= last),
            None => 0,
        };
        let end = listing.names.len().min(begin + OBJECTS_PER_PAGE);
        let names = &listing.names[begin..end];
        if names.is_empty() {
            return Ok(Page::default());
        }
        let keys = names.iter().map(|name| self.keys.object(name)).collect();
        let mut rows = Vec::new();
        for (name, merged) in names.iter().zip(self.read_hashes(keys, &[]).await?) {
            rows.extend(merged.rows()?.into_iter().map(|row| (name.to_string(), row)));
        }
        let next = names
            .last()
            .filter(|_| end < listing.names.len())
            .map(|last| Cursor([&listing.id.to_be_bytes()[..], last.as_bytes()].concat().into()));
        Ok(Page { rows, next })
    }

    /// Lists all objects of which a majority of servers knows.
    async fn list(&self) -> Result<Arc<Listing>, DatabaseError> {
        let members = self.members();
        let scans = members.states.iter().map(|state| async move {
            match state {
                MemberState::Member { connection, usable_from, .. }
                    if connection.now_millis() >= *usable_from =>
                {
                    self.scan(connection).await
                }
                MemberState::Member { .. } => Err(CallError::refused(WAITS)),
                MemberState::Out(why) => Err(CallError::refused(why.as_str())),
            }
        });
        let answers = at_the_same_time(scans).await;
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        if answered < majority(answers.len()) {
            let failures = self
                .masters
                .addresses()
                .zip(answers)
                .filter_map(|(address, answer)| Some((address.to_owned(), answer.err()?)));
            return Err(NoQuorum::new(answered, failures.collect()).of_read());
        }
        let names: BTreeSet<_> = answers.into_iter().flatten().flatten().collect();
        let listing = Listing { id: rand::random(), names: names.into_iter().collect() };
        let listing = Arc::new(listing);
        let mut known = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::clone(&listing));
        Ok(listing)
    }

    /// The names that one server has. Those that are there all the time are found for certain.
    async fn scan(&self, connection: &Connection) -> Result<Vec<Box<str>>, CallError> {
        let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(self.keys.objects());
            scan.arg("COUNT").arg(KEYS_PER_STEP);
            let answer = reply::scanned(&connection.ask(&scan).await?);
            let (next, keys) = answer.ok_or_else(|| CallError::refused("it lists no keys"))?;
            names.extend(keys.iter().filter_map(|key| self.keys.object_of(key)).map(Box::from));
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }
}
