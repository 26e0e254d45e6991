//! Makes servers the masters of a lock table, and says how they are.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::attendance::{Attendance, MemberState, Restore, Sight};
use super::keys::Keys;
use super::membership::majority;
use super::probe::clock;
use super::record::{MastersSettings, PROTOCOL, Record, View};
use super::{Masters, MastersStore, MastersTrouble};
use crate::store::{ClockReading, Identifier, Node, NodeProbe};

/// How often a call is repeated that another client interrupts.
const TRIES: u32 = 5;

/// What a lock table is to be created with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) settings: MastersSettings,
    /// Whether no client has used these servers for the lock table in the last minutes.
    pub(crate) is_fresh: bool,
}

/// What was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Initialised {
    /// Whether the lock table is new.
    pub(crate) is_new: bool,
    /// The servers that were made members.
    pub(crate) joined: Vec<String>,
    /// After what time they take part.
    pub(crate) wait: Duration,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MasterStatus {
    /// It takes part. Members are numbered from 1.
    TakesPart { number: usize, keeps_data: bool },
    /// It takes part after this time.
    Waits(Duration),
    /// It does not answer.
    Silent,
    /// It takes no part; and why.
    Out(String),
}

impl Masters {
    /// Creates a lock table, or gives those servers a place again that lost it.
    pub(crate) async fn initialise(
        &self,
        lock_table: &str,
        wanted: Wanted,
    ) -> Result<Initialised, MastersTrouble> {
        let keys = Keys::new(Identifier::table(lock_table)?);
        let attendance = self.attendance(&keys);
        for _ in 1..TRIES {
            match self.initialise_once(&attendance, wanted).await {
                Err(MastersTrouble::Interrupted) => {}
                result => return result,
            }
        }
        self.initialise_once(&attendance, wanted).await
    }

    async fn initialise_once(
        &self,
        attendance: &Attendance<'_>,
        wanted: Wanted,
    ) -> Result<Initialised, MastersTrouble> {
        let sights = attendance.look().await;
        if sights.iter().any(|sight| matches!(sight, Sight::Out(_))) {
            return Err(self.unfit(&sights));
        }
        let over_after = wanted.settings.over_after();
        let wait = if wanted.is_fresh { Duration::ZERO } else { over_after };
        let plan = match attendance.judged(&sights, &vec![None; sights.len()]) {
            Err(MastersTrouble::NoRecord { .. }) => {
                return self.create(attendance, &sights, wanted.settings, wait).await;
            }
            plan => plan?,
        };
        if plan.settings != wanted.settings {
            let MastersSettings { max_ttl, max_clock_skew } = plan.settings;
            return Err(MastersTrouble::Differs {
                lock_table: attendance.keys.lock_table.to_string(),
                recorded: format!("max_ttl {max_ttl:?}, max_clock_skew {max_clock_skew:?}"),
                key: attendance.keys.record.clone(),
            });
        }
        let lost = plan.lost();
        let members = attendance.carry_out(plan, &sights, Restore::Always { wait }).await?;
        let mut initialised = Initialised::default();
        for (address, state) in self.addresses().zip(&members.states) {
            match state {
                MemberState::Member { index, .. } if lost.contains(index) => {
                    initialised.joined.push(address.to_owned());
                    initialised.wait = wait;
                }
                MemberState::Member { .. } => {}
                MemberState::Out(_) => return Err(self.out(&members.states)),
            }
        }
        Ok(initialised)
    }

    async fn create(
        &self,
        attendance: &Attendance<'_>,
        sights: &[Sight],
        settings: MastersSettings,
        wait: Duration,
    ) -> Result<Initialised, MastersTrouble> {
        let same = sights
            .iter()
            .enumerate()
            .any(|(at, sight)| sights[..at].iter().any(|other| process(other) == process(sight)));
        if same {
            let why = "another address leads to the same server: name each server once";
            let servers = self.addresses().map(|address| (address.to_owned(), why.to_owned()));
            return Err(MastersTrouble::Unfit { servers: servers.collect() });
        }
        let members: Vec<_> = sights.iter().map(|_| Uuid::new_v4()).collect();
        let (cluster, view) = (Uuid::new_v4(), View::first(Uuid::new_v4()));
        for (index, sight) in sights.iter().enumerate() {
            let Sight::Here { connection, .. } = sight else { continue };
            let record = Record {
                cluster,
                settings,
                protocol: PROTOCOL,
                index,
                epoch: members[index],
                run_id: connection.facts.run_id.clone(),
                is_durable: connection.facts.keeps_data(),
                view,
                members: members.clone(),
                usable_from: 0,
            };
            attendance.join(connection, None, &record, wait, &BTreeMap::new()).await?;
        }
        let joined = self.addresses().map(str::to_owned).collect();
        Ok(Initialised { is_new: true, joined, wait })
    }

    /// Whether a majority of servers has answered.
    pub(super) fn has_answers(&self, sights: &[Sight]) -> bool {
        let here = sights.iter().filter(|sight| matches!(sight, Sight::Here { .. })).count();
        here >= majority(sights.len())
    }

    /// The error if servers can't be used as they are.
    pub(super) fn unfit(&self, sights: &[Sight]) -> MastersTrouble {
        let why = |sight: &Sight| match sight {
            Sight::Out(why) => Some(why.clone()),
            Sight::Here { .. } => None,
        };
        let servers = self.addresses().zip(sights);
        let servers = servers.filter_map(|(address, it)| Some((address.to_owned(), why(it)?)));
        MastersTrouble::Unfit { servers: servers.collect() }
    }

    fn out(&self, states: &[MemberState]) -> MastersTrouble {
        let why = |state: &MemberState| match state {
            MemberState::Out(why) => Some(why.clone()),
            MemberState::Member { .. } => None,
        };
        let servers = self.addresses().zip(states);
        let servers = servers.filter_map(|(address, it)| Some((address.to_owned(), why(it)?)));
        MastersTrouble::Unfit { servers: servers.collect() }
    }
}

fn process(sight: &Sight) -> Option<&str> {
    match sight {
        Sight::Here { run_id, .. } => Some(run_id),
        Sight::Out(_) => None,
    }
}

impl MastersStore {
    /// The clocks of the servers that take part.
    pub(crate) async fn clocks(&self) -> Vec<(Node, ClockReading)> {
        let reports = self.probe_nodes().await.into_iter();
        reports.filter_map(|(node, report)| Some((node, report?.clock))).collect()
    }

    /// How each server is.
    pub(crate) async fn statuses(&self) -> Vec<(String, MasterStatus)> {
        let members = self.members();
        let mut statuses = Vec::new();
        for (address, state) in self.masters.addresses().zip(&members.states) {
            let status = match state {
                MemberState::Out(why) => MasterStatus::Out(why.clone()),
                MemberState::Member { connection, index, usable_from, .. } => {
                    let is_here = clock(connection).await.is_ok();
                    let left = usable_from.saturating_sub(connection.now_millis()).max(0);
                    if !is_here {
                        MasterStatus::Silent
                    } else if left > 0 {
                        MasterStatus::Waits(Duration::from_millis(left.unsigned_abs()))
                    } else {
                        let keeps_data = connection.facts.keeps_data();
                        MasterStatus::TakesPart { number: index + 1, keeps_data }
                    }
                }
            };
            statuses.push((address.to_owned(), status));
        }
        statuses
    }
}
