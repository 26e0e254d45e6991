//! What contenders get when a holder or a server dies, and while a server is frozen.

use std::time::Duration;

use anyhow::{Context, Result};
use common::contest::{Served, gaps_after};
use common::record::Record;
use serde::Serialize;
use support::monotonic::now;
use tokio::time::sleep;

use crate::measures::hot_name::fill;
use crate::measures::orders::{Answer, Contend, Names, Order};
use crate::measures::pool::Pool;
use crate::servers::Servers;
use crate::sides::{Kind, Setup};

/// The names of the measures.
pub(crate) const HOLDER_KILLED: &str = "holder killed";
pub(crate) const SERVER_KILLED: &str = "server killed";
pub(crate) const SERVER_FROZEN: &str = "server frozen";

/// How many wait for the lock of a dead holder, and contend when a server fails.
pub(crate) const CONTENDERS: usize = 8;

/// How long they hold it: long enough that another holder would be seen.
const HOLD: Duration = Duration::from_millis(5);

/// How long servers fail, and how long contenders are watched before and afterwards.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Length {
    pub(crate) before: Duration,
    pub(crate) failing: Duration,
    pub(crate) after: Duration,
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Failure {
    Killed,
    Frozen,
}

/// Kills a holder right after its grant, while others wait: how long until the next grant?
pub(crate) async fn holder(setup: &Setup, name: &str) -> Result<Record> {
    let mut pool = Pool::new(setup.clone());
    pool.ready(1 + CONTENDERS, setup.tuning).await?;
    pool.order(1, &Order::Keep { name: name.to_owned() }).await?;
    pool.kill(0)?;
    let killed = now();
    let answers = pool.order(CONTENDERS, &Order::Once { name: name.to_owned() }).await?;
    let mut record = Record::new(0, "", HOLDER_KILLED, None);
    fill_after(&mut record, setup.kind, name, &answers, killed, killed)?;
    pool.end().await?;
    Ok(record)
}

/// Lets a server fail for a while among contenders. Where there is a leader, it is the one.
pub(crate) async fn server(
    setup: &Setup,
    servers: &mut Servers,
    failure: Failure,
    name: &str,
    length: Length,
) -> Result<Record> {
    let mut pool = Pool::new(setup.clone());
    pool.ready(CONTENDERS, setup.tuning).await?;
    let system = setup.kind.system();
    let victim = servers.victim(system).await?;
    let whole = length.before + length.failing + length.after;
    let ends = now() + u64::try_from(whole.as_nanos())?;
    let names = Names::Same(name.to_owned());
    let order = Contend { names, callers: 1, hold: HOLD, ends };
    pool.tell(0..CONTENDERS, &Order::Contend(order)).await?;
    sleep(length.before).await;
    let failed = now();
    match failure {
        Failure::Killed => servers.member(system, victim)?.kill()?,
        Failure::Frozen => servers.member(system, victim)?.pause()?,
    }
    sleep(length.failing).await;
    let ended = now();
    match failure {
        Failure::Killed => servers.member(system, victim)?.start_again()?,
        Failure::Frozen => servers.member(system, victim)?.resume()?,
    }
    let answers = pool.answers(0..CONTENDERS).await?;
    servers.heal(system).await?;
    let measure = match failure {
        Failure::Killed => SERVER_KILLED,
        Failure::Frozen => SERVER_FROZEN,
    };
    let mut record = Record::new(0, "", measure, None);
    fill_after(&mut record, setup.kind, name, &answers, failed, ends)?;
    let within = |from: u64, until: u64| {
        let all = answers.iter().flat_map(|answer| &answer.callers).flat_map(|it| &it.holds);
        let grants = all.filter(|[_, granted, _]| (from..until).contains(granted)).count();
        grants as f64 / Duration::from_nanos(until - from).as_secs_f64()
    };
    let began = failed.saturating_sub(u64::try_from(length.before.as_nanos())?);
    record.number("grants_per_second_before", within(began, failed));
    record.number("grants_per_second_meanwhile", within(failed, ended));
    pool.end().await.context("after a server failed")?;
    Ok(record)
}

fn fill_after(
    record: &mut Record,
    kind: Kind,
    name: &str,
    answers: &[Answer],
    moment: u64,
    ends: u64,
) -> Result<()> {
    let last = answers.iter().map(|answer| answer.time).max().unwrap_or_default();
    fill(record, kind, name, answers, last)?;
    let served: Vec<Served> = answers.iter().flat_map(|answer| answer.callers.clone()).collect();
    let (first, longest) = gaps_after(&served, moment, ends);
    if let Some(first) = first {
        record.number("next_grant_s", Duration::from_nanos(first).as_secs_f64());
    }
    record.number("longest_without_grant_s", Duration::from_nanos(longest).as_secs_f64());
    Ok(())
}
