//! Carries out what [`judge`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use uuid::Uuid;

use super::keys::Keys;
use super::link::{CallError, Connection, Link, LinkState};
use super::membership::{self, MemberTask, Place, Plan, Unplanned, judge, majority};
use super::record::{MastersSettings, PROTOCOL, Record, View, members_text};
use super::scripts::Script;
use super::{MastersTrouble, codec, reply};
use crate::store::at_the_same_time;

/// What is known of a server, with the connection to it.
pub(super) type Sight = membership::Sight<Arc<Connection>>;

/// The servers as a client uses them until it looks again.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) cluster: Uuid,
    pub(super) settings: MastersSettings,
    /// Each server, in the order of the addresses.
    pub(super) states: Vec<MemberState>,
}

/// What a client knows of a server.
#[derive(Clone, Debug)]
pub(super) enum MemberState {
    /// It takes part, from a time on. Requests carry the view and its epoch, its gate.
    Member { connection: Arc<Connection>, index: usize, usable_from: i64, gate: String },
    /// It takes no part now; and why.
    Out(String),
}

/// How servers that lost data come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restore {
    /// They don't: it is the first look at them.
    Never,
    /// If a majority of servers has its data.
    WithMajority,
    /// In any case, after a wait; an operator asks for it, who knows that the addresses are right.
    Always { wait: Duration },
}

/// Looks at the servers of one lock table.
#[derive(Debug)]
pub(super) struct Attendance<'a> {
    pub(super) links: &'a [Link],
    pub(super) keys: &'a Keys,
    pub(super) allow_replicas: bool,
}

impl Attendance<'_> {
    /// Looks at all servers at the same time.
    pub(super) async fn look(&self) -> Vec<Sight> {
        at_the_same_time(self.links.iter().map(|link| self.sight(link))).await
    }

    async fn sight(&self, link: &Link) -> Sight {
        let connection = match link.state() {
            LinkState::Up(connection) => connection,
            LinkState::Opening => return Sight::Out("it is being connected".to_owned()),
            LinkState::Down(why) => return Sight::Out(format!("it is not connected: {why}")),
        };
        if let Some(refusal) = connection.facts.refusal(self.allow_replicas) {
            return Sight::Out(refusal);
        }
        let mut read = redis::cmd("HGETALL");
        read.arg(&self.keys.record);
        let now_millis = match connection.time().await {
            Ok(micros) => micros / 1000,
            Err(error) => return Sight::Out(error.why),
        };
        let fields = match connection.ask(&read).await {
            Ok(value) => reply::pairs(&value).unwrap_or_default(),
            Err(error) => return Sight::Out(error.why),
        };
        match Record::read(&fields) {
            Ok(record) => Sight::Here {
                run_id: connection.facts.run_id.clone(),
                keeps_data: connection.facts.keeps_data(),
                connection,
                now_millis,
                record,
            },
            Err(why) => Sight::Out(why),
        }
    }

    /// Decides what the servers come to.
    pub(super) fn judged(
        &self,
        sights: &[Sight],
        known: &[Option<usize>],
    ) -> Result<Plan, MastersTrouble> {
        let lock_table = self.keys.lock_table.to_string();
        judge(sights, known).map_err(|unplanned| match unplanned {
            Unplanned::NoRecord => MastersTrouble::NoRecord { lock_table },
            Unplanned::OtherCount { recorded } => {
                MastersTrouble::OtherCount { lock_table, recorded, given: sights.len() }
            }
        })
    }

    /// Carries out a plan.
    ///
    /// # Errors
    ///
    /// [`MastersTrouble::Interrupted`] when a server is not as it was seen.
    pub(super) async fn carry_out(
        &self,
        mut plan: Plan,
        sights: &[Sight],
        restore: Restore,
    ) -> Result<Members, MastersTrouble> {
        self.tell_members(&plan, sights).await?;
        let lost = plan.lost();
        let (needed, wait) = match restore {
            Restore::Never => (usize::MAX, Duration::ZERO),
            Restore::WithMajority => (majority(sights.len()), plan.settings.over_after()),
            Restore::Always { wait } => (0, wait),
        };
        let mut why_out = String::new();
        if !lost.is_empty() {
            if plan.present() >= needed {
                plan = self.restore(plan, sights, &lost, wait).await?;
            } else {
                why_out = format!("it has lost its data; {}", self.how_to_restore(&plan));
            }
        }
        Ok(self.members(&plan, sights, &why_out))
    }

    fn how_to_restore(&self, plan: &Plan) -> String {
        if plan.can_restore() {
            return "its record is being restored".to_owned();
        }
        format!(
            "it comes back once {} others answer that have theirs; if fewer have, run \
             `lock-hosts init`",
            majority(plan.places.len())
        )
    }

    fn members(&self, plan: &Plan, sights: &[Sight], why_lost: &str) -> Members {
        let state = |(place, sight): (&Place, &Sight)| match (place, sight) {
            (&Place::Member { index, usable_from, .. }, Sight::Here { connection, .. }) => {
                let connection = Arc::clone(connection);
                let gate = format!("{} {}", plan.view, plan.members[index]);
                MemberState::Member { connection, index, usable_from, gate }
            }
            (Place::Out(why), _) => MemberState::Out(why.clone()),
            (Place::Lost { .. } | Place::Member { .. }, _) => MemberState::Out(why_lost.to_owned()),
        };
        Members {
            cluster: plan.cluster,
            settings: plan.settings,
            states: plan.places.iter().zip(sights).map(state).collect(),
        }
    }

    /// Brings members up to date.
    async fn tell_members(&self, plan: &Plan, sights: &[Sight]) -> Result<(), MastersTrouble> {
        let tasks = plan.places.iter().zip(sights).map(|(place, sight)| async move {
            let (
                &Place::Member { index, task, .. },
                Sight::Here { connection, record: Some(record), .. },
            ) = (place, sight)
            else {
                return Ok(());
            };
            let keeps_data = connection.facts.keeps_data();
            if task == MemberTask::Adopt || record.is_durable != keeps_data {
                let now = [connection.facts.run_id.clone(), u8::from(keeps_data).to_string()];
                self.adopt(connection, record, now).await?;
            }
            if record.view == plan.view {
                return Ok(());
            }
            let epoch = plan.members[index];
            self.install(connection, epoch, record.view, plan.view, &plan.members).await
        });
        at_the_same_time(tasks).await.into_iter().collect()
    }

    /// Notes the process of a member, and whether it keeps its data in a restart.
    async fn adopt(
        &self,
        connection: &Connection,
        record: &Record,
        [run_id, durable]: [String; 2],
    ) -> Result<(), MastersTrouble> {
        let arguments = [record.epoch.to_string(), record.run_id.clone(), run_id, durable];
        let keys = std::slice::from_ref(&self.keys.record);
        self.instruct(connection, Script::Adopt, keys, &arguments).await
    }

    async fn install(
        &self,
        connection: &Connection,
        epoch: Uuid,
        has: View,
        view: View,
        members: &[Uuid],
    ) -> Result<(), MastersTrouble> {
        let (has, view) = (has.to_string(), view.to_string());
        let arguments = [epoch.to_string(), has, view, members_text(members)];
        let keys = std::slice::from_ref(&self.keys.record);
        self.instruct(connection, Script::Install, keys, &arguments).await
    }

    /// Runs a script that does something only if a record is as it was seen.
    async fn instruct(
        &self,
        connection: &Connection,
        script: Script,
        keys: &[String],
        arguments: &[String],
    ) -> Result<(), MastersTrouble> {
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument.clone().into_bytes()).collect();
        match connection.run(script, keys, &arguments).await {
            Ok(reply) if reply.status == "ok" => Ok(()),
            Ok(_) | Err(CallError { .. }) => Err(MastersTrouble::Interrupted),
        }
    }

    /// Gives servers that lost data new epochs: first in a view that the others go over to.
    async fn restore(
        &self,
        mut plan: Plan,
        sights: &[Sight],
        lost: &BTreeSet<usize>,
        wait: Duration,
    ) -> Result<Plan, MastersTrouble> {
        warn!(
            lock_table = %self.keys.lock_table, servers = ?lost, ?wait,
            "masters have lost their data, and take no part until all locks from before are over",
        );
        let had = plan.view;
        let epochs = plan.members.clone();
        plan.view = had.next(Uuid::new_v4());
        for &index in lost {
            plan.members[index] = Uuid::new_v4();
        }
        let members: Vec<_> = plan
            .places
            .iter()
            .zip(sights)
            .filter_map(|(place, sight)| match (place, sight) {
                (Place::Member { index, .. }, Sight::Here { connection, .. }) => {
                    Some((*index, Arc::clone(connection)))
                }
                (Place::Out(_) | Place::Lost { .. } | Place::Member { .. }, _) => None,
            })
            .collect();
        let installs = members.iter().map(|(index, connection)| {
            self.install(connection, epochs[*index], had, plan.view, &plan.members)
        });
        at_the_same_time(installs).await.into_iter().collect::<Result<(), _>>()?;
        let registry = self.registry(&members).await?;
        let (view, epochs) = (plan.view, plan.members.clone());
        for (place, sight) in plan.places.iter_mut().zip(sights) {
            let (Place::Lost { index, view: had }, Sight::Here { connection, now_millis, .. }) =
                (&*place, sight)
            else {
                continue;
            };
            let (index, had) = (*index, *had);
            let record = Record {
                cluster: plan.cluster,
                settings: plan.settings,
                protocol: PROTOCOL,
                index,
                epoch: epochs[index],
                run_id: connection.facts.run_id.clone(),
                is_durable: connection.facts.keeps_data(),
                view,
                members: epochs.clone(),
                usable_from: 0,
            };
            self.join(connection, had, &record, wait, &registry).await?;
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            let usable_from = now_millis.saturating_add(wait);
            *place = Place::Member { index, usable_from, task: MemberTask::Nothing };
        }
        Ok(plan)
    }

    /// Makes a server a member.
    pub(super) async fn join(
        &self,
        connection: &Connection,
        had: Option<View>,
        record: &Record,
        wait: Duration,
        registry: &BTreeMap<String, String>,
    ) -> Result<(), MastersTrouble> {
        let fields = record.fields();
        let mut arguments = vec![
            had.map(|view| view.to_string()).unwrap_or_default(),
            wait.as_millis().to_string(),
            (2 * fields.len()).to_string(),
        ];
        for (name, value) in fields {
            arguments.extend([name.to_owned(), value]);
        }
        for (field, value) in registry {
            arguments.extend([field.clone(), value.clone()]);
        }
        let keys = [self.keys.record.clone(), self.keys.registry.clone()];
        self.instruct(connection, Script::Join, &keys, &arguments).await
    }

    /// The newest of the registry that any of these servers has. It has no TTL, so a server that
    /// lost it gets it from the others.
    async fn registry(
        &self,
        members: &[(usize, Arc<Connection>)],
    ) -> Result<BTreeMap<String, String>, MastersTrouble> {
        let mut read = redis::cmd("HGETALL");
        read.arg(&self.keys.registry);
        let reads = members.iter().map(|(_, connection)| connection.ask(&read));
        let mut newest = BTreeMap::<String, String>::new();
        for answer in at_the_same_time(reads).await {
            let fields =
                answer.ok().as_ref().and_then(reply::pairs).ok_or(MastersTrouble::Interrupted)?;
            for (field, value) in fields {
                let stamp = |value: &str| codec::cell(value).map(|cell| cell.stamp);
                let is_newer =
                    newest.get(&field).is_none_or(|newest| stamp(&value) > stamp(newest));
                if is_newer && stamp(&value).is_some() {
                    newest.insert(field, value);
                }
            }
        }
        Ok(newest)
    }
}

impl Members {
    /// The places of the servers, in the order of the addresses, as far as they are known.
    pub(super) fn places(&self) -> Vec<Option<usize>> {
        let place = |state: &MemberState| match state {
            MemberState::Member { index, .. } => Some(*index),
            MemberState::Out(_) => None,
        };
        self.states.iter().map(place).collect()
    }
}
