//! What the tasks of a process do with locks.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bakery_lock::{
    EnsureError, GuardState, LockClient, LockError, LockGuard, LockMode, LockRequest, LostReason,
    UnlockError,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{sleep, timeout};

use super::log::{Hold, HoldEnd, Token, Uncollected};
use super::machine::Site;
use super::plan::{MAX_CLOCK_SKEW, MORE_TTL, MachinePlan, Mix};

/// Longer than anything takes after healing: leases of dead clients, and late writes.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// How often each task takes a lock once nothing that went wrong matters any more.
const CALM_VISITS: usize = 2;

/// A task that takes locks.
pub(crate) struct Worker {
    pub(crate) client: LockClient,
    pub(crate) site: Site,
    pub(crate) objects: Vec<String>,
    /// How it may want to hold each of these.
    pub(crate) mixes: Vec<Mix>,
    pub(crate) plan: MachinePlan,
    pub(crate) healed: Arc<AtomicBool>,
    /// From when on nothing that went wrong matters any more.
    pub(crate) settled: Duration,
    pub(crate) rng: StdRng,
}

impl Worker {
    pub(crate) fn rng(seed: u64) -> StdRng {
        StdRng::seed_from_u64(seed)
    }

    /// Takes locks while there are faults, waits until they end, and takes each lock once more.
    pub(crate) async fn run(mut self) {
        for _ in 0..self.plan.visits {
            self.idle(self.plan.idle).await;
            if self.is_healed() {
                break;
            }
            self.visit().await;
        }
        while !self.is_healed() {
            sleep(Duration::from_millis(250)).await;
        }
        for object in 0..self.objects.len() {
            self.be_served(object).await;
        }
        sleep(self.settled.saturating_sub(self.site.now())).await;
        for _ in 0..CALM_VISITS {
            self.idle(500).await;
            self.visit_calmly().await;
        }
        self.site.log().workers_done += 1;
    }

    /// Nothing has gone wrong for a while. Some give up all the same, and some hold for longer.
    async fn visit_calmly(&mut self) {
        let number = self.rng.random_range(0..self.objects.len());
        let object = self.objects[number].clone();
        let (asked, ttl, mode) = (Some(self.site.now()), self.plan.ttl, self.mode(number));
        let terms = Terms { asked, ttl, renews: true, mode, min_hold: Duration::ZERO };
        let patience = if self.rng.random_bool(0.3) { self.ms(1..3_000) } else { SERVED_WITHIN };
        match terms.request(&self.client, &object).timeout(patience).acquire().await {
            Ok(guard) => {
                let (hold, guard) = self.begin(&object, guard, terms);
                let stays = if self.rng.random_bool(0.1) { 3_000 } else { 30 };
                sleep(self.ms(0..stays)).await;
                // What became of it is in the log.
                let _ = self.end(hold, guard, HoldEnd::Released).unlock().await;
            }
            Err(error) if patience == SERVED_WITHIN => self.note_unserved(&object, &error),
            Err(error) => self.site.failure(&object, kind(&error)),
        }
    }

    async fn visit(&mut self) {
        let number = self.rng.random_range(0..self.objects.len());
        let object = self.objects[number].clone();
        let patience = self.ms(200..8_000);
        let mut terms = self.terms(number);
        let request = terms.request(&self.client, &object).timeout(patience);
        let mut request = request.ttl(terms.ttl).auto_renew(terms.renews);
        if terms.mode == LockMode::Exclusive
            && self.mixes[number].shared
            && self.rng.random_bool(0.3)
        {
            terms.asked = None;
            request = request.yield_to_shared(self.ms(1..2_000));
        }
        if self.mixes[number].min_hold
            && terms.mode == LockMode::Exclusive
            && terms.renews
            && self.rng.random_bool(0.5)
        {
            terms.min_hold = self.ms(200..4_000);
            request = request.min_hold(terms.min_hold);
        }
        let at_least =
            if self.rng.random_bool(0.2) { self.lease_at_least(terms.ttl) } else { Duration::ZERO };
        request = request.at_least(at_least);
        if !at_least.is_zero() && terms.mode != LockMode::Exclusive {
            // Others that share it have it while its rows are written on longer terms.
            terms.asked = None;
        }
        if self.rng.random_bool(0.1) {
            request = request.max_hold(self.ms(1..2_000)).max_hold_grace(self.ms(0..500));
        }
        let answer = match self.rng.random_range(0..10) {
            0 | 1 => request.try_acquire().await,
            2 => {
                let regret = self.ms(1..400);
                match timeout(regret, request.acquire()).await {
                    Ok(answer) => answer.map(Some),
                    Err(_) => return self.not_obtained(&object, "left".to_owned(), terms),
                }
            }
            _ => request.acquire().await.map(Some),
        };
        match answer {
            Ok(Some(guard)) => {
                if guard.remaining() < at_least {
                    let short = (guard.remaining(), at_least);
                    self.note_unserved(&object, &short);
                }
                self.hold(&object, guard, terms).await;
            }
            Ok(None) => self.not_obtained(&object, "taken".to_owned(), terms),
            Err(error) => self.not_obtained(&object, kind(&error), terms),
        }
    }

    /// What a caller may need of a lease with this TTL, which it need not raise.
    fn lease_at_least(&mut self, ttl: Duration) -> Duration {
        let longest = ttl - Duration::from_millis(1_501) - MAX_CLOCK_SKEW;
        longest.mul_f64(self.rng.random())
    }

    fn not_obtained(&self, object: &str, why: String, terms: Terms) {
        if !terms.min_hold.is_zero() {
            let (client, until) = (self.site.number, self.site.now() + terms.min_hold);
            let uncollected = Uncollected { client, object: object.to_owned(), until };
            self.site.log().uncollected.push(uncollected);
        }
        self.site.failure(object, why);
    }

    /// Holds for a while; mostly shortly, sometimes for longer than a lease.
    async fn hold(&mut self, object: &str, guard: LockGuard, terms: Terms) {
        let (hold, guard) = self.begin(object, guard, terms);
        let work = match self.rng.random_range(0..10) {
            0 => self.ms(1_000..9_000),
            1 => self.ms(100..1_000),
            _ => self.ms(0..30),
        };
        let mut lost = guard.lost();
        let mut steps: Vec<_> = (0..self.rng.random_range(0..3)).map(|_| self.step()).collect();
        if self.plan.lingers && self.rng.random_bool(0.4) {
            steps.extend(self.lingering());
        }
        let steps = self.take(object, &guard, hold, &steps);
        let reason = tokio::select! {
            biased;
            reason = &mut lost => Some(reason),
            () = steps => None,
        };
        let is_alone = terms.mode == LockMode::Exclusive && terms.min_hold.is_zero();
        let downgrades = reason.is_none() && is_alone && self.rng.random_bool(0.1);
        if downgrades {
            self.downgrade(&guard, hold).await;
        }
        let reason = match reason {
            Some(reason) => Some(reason),
            None => timeout(work, lost).await.ok(),
        };
        let end = match reason.flatten() {
            Some(reason) => HoldEnd::Lost(kind(&reason)),
            None => HoldEnd::Released,
        };
        let guard = self.end(hold, guard, end);
        if self.rng.random_bool(0.7) {
            // What became of it is in the log.
            let _ = guard.unlock().await;
        }
    }

    /// Takes steps while it holds. A guest whose keeper's clock is behind the fence gets no token
    /// before the timeout of a draw, so it gives up after two of them: others wait for the lock.
    async fn take(&self, object: &str, guard: &LockGuard, hold: usize, steps: &[Step]) {
        let mut timeouts = 0;
        for step in steps {
            let trouble = match step {
                Step::Draw => self.draw(object, guard, hold).await.err(),
                Step::Check => guard.check().await.err().map(|error| kind(&error)),
                Step::Look => self.look(object, guard).await.err(),
                Step::Ensure(min) => guard.ensure(*min).await.err().map(|error| kind(&error)),
                Step::Note => guard.set_note("half").await.err().map(|error| kind(&error)),
                Step::Raise => self.raise(guard, hold).await.err(),
                Step::Stay(time) => {
                    sleep(*time).await;
                    None
                }
            };
            if let Some(why) = trouble {
                timeouts += usize::from(why == "TimedOut");
                self.site.failure(object, format!("{step:?}: {why}"));
            }
            if timeouts == 2 {
                break;
            }
        }
    }

    /// From the call on it shares, whatever that comes to.
    async fn downgrade(&self, guard: &LockGuard, hold: usize) {
        let now = self.site.now();
        self.site.log().holds[hold].shared_from = Some(now);
        if let Err(error) = guard.downgrade().await {
            if matches!(error, EnsureError::Unchangeable { .. }) {
                self.site.log().holds[hold].shared_from = None;
            }
            self.site.failure(guard.name(), format!("downgrade: {}", kind(&error)));
        }
    }

    /// What its rows are worth counts from the request on.
    async fn raise(&self, guard: &LockGuard, hold: usize) -> Result<(), String> {
        let ttl = self.plan.ttl + MORE_TTL;
        self.site.log().holds[hold].ttl = ttl;
        guard.raise_ttl(ttl).await.map(drop).map_err(|error| kind(&error))
    }

    async fn draw(&self, object: &str, guard: &LockGuard, hold: usize) -> Result<(), String> {
        let asked = self.site.now();
        let value = guard.fencing_token().await.map_err(|error| kind(&error))?.value();
        let (client, object, given) = (self.site.number, object.to_owned(), self.site.now());
        self.site.log().tokens.push(Token { hold, client, object, asked, given, value });
        Ok(())
    }

    /// A holder is shown to all by the rows of its place, and so to itself.
    async fn look(&self, object: &str, guard: &LockGuard) -> Result<(), String> {
        let all = self.client.contenders(object).await.map_err(|error| kind(&error))?;
        let keeper = guard.keeper();
        let is_shown = all.iter().any(|contender| contender.client == keeper);
        let is_held = !matches!(guard.state(), GuardState::Lost(_));
        if is_held && !is_shown { Err("not shown".to_owned()) } else { Ok(()) }
    }

    /// What takes long, and asks for tokens again and again.
    fn lingering(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.rng.random_range(2..8) {
            steps.extend([Step::Stay(self.ms(200..4_000)), Step::Draw]);
        }
        steps
    }

    fn step(&mut self) -> Step {
        match self.rng.random_range(0..9) {
            0 => Step::Check,
            1 => Step::Look,
            2 => Step::Ensure(self.ms(1_000..6_000)),
            3 => Step::Note,
            4 => Step::Raise,
            _ => Step::Draw,
        }
    }

    /// Nothing is wrong any more, so the lock must come, unless a request asks this client to
    /// leave: then it tries once more.
    async fn be_served(&mut self, number: usize) {
        let object = self.objects[number].clone();
        loop {
            let (asked, ttl, mode) = (Some(self.site.now()), self.plan.ttl, self.mode(number));
            let min_hold = Duration::ZERO;
            let terms = Terms { asked, ttl, renews: true, mode, min_hold };
            let request = terms.request(&self.client, &object).timeout(SERVED_WITHIN);
            match request.acquire().await {
                Ok(guard) => return self.hold_shortly(&object, guard, terms).await,
                // Rows may have been lost before, and only be found missing now.
                Err(error @ (LockError::Revoked { .. } | LockError::RowMissing { .. })) => {
                    self.site.failure(&object, kind(&error));
                }
                Err(error) => return self.note_unserved(&object, &error),
            }
        }
    }

    async fn hold_shortly(&mut self, object: &str, guard: LockGuard, terms: Terms) {
        let (hold, guard) = self.begin(object, guard, terms);
        sleep(self.ms(0..5)).await;
        match self.end(hold, guard, HoldEnd::Released).unlock().await {
            Ok(()) => {}
            // It found so just then, in the read that verifies a renewal: a request, or that its
            // rows were lost before all was healed, and another client has held since.
            Err(
                error @ UnlockError::Lost {
                    reason:
                        LostReason::Revoked { .. }
                        | LostReason::RowMissing
                        | LostReason::Conflict { .. },
                    ..
                },
            ) => {
                self.site.failure(object, kind(&error));
            }
            Err(error) => self.note_unserved(object, &error),
        }
    }

    fn note_unserved(&self, object: &str, error: &impl Debug) {
        let unserved = format!("client {} {object}: {error:?}", self.site.number);
        self.site.log().unserved.push(unserved);
    }

    fn begin(&self, object: &str, guard: LockGuard, terms: Terms) -> (usize, Arc<LockGuard>) {
        let (keeper, slot) = self.site.place(&guard);
        let guard = Arc::new(guard);
        let mut log = self.site.log();
        let hold = log.holds.len();
        self.site.held().insert(hold, Arc::downgrade(&guard));
        let (client, object, from) = (self.site.number, object.to_owned(), self.site.now());
        let Terms { asked, ttl, renews, mode, min_hold } = terms;
        let until = None;
        log.holds.push(Hold {
            client,
            keeper,
            slot,
            object,
            mode,
            ttl,
            renews,
            min_hold,
            asked,
            from,
            shared_from: None,
            until,
        });
        (hold, guard)
    }

    fn end(&self, hold: usize, guard: Arc<LockGuard>, end: HoldEnd) -> LockGuard {
        self.site.held().remove(&hold);
        self.site.log().end(hold, self.site.now(), end);
        Arc::into_inner(guard).expect("the others have weak ones only")
    }

    /// Mostly those of the client, so that turns follow each other without a renewal.
    fn terms(&mut self, object: usize) -> Terms {
        let more = if self.rng.random_bool(0.2) { MORE_TTL } else { Duration::ZERO };
        let ttl = self.plan.ttl + more;
        let renews = !self.rng.random_bool(0.1);
        let (asked, mode) = (Some(self.site.now()), self.mode(object));
        Terms { asked, ttl, renews, mode, min_hold: Duration::ZERO }
    }

    /// One of the ways in which an object may be wanted.
    fn mode(&mut self, object: usize) -> LockMode {
        let Mix { shared, max_holders, other_limit, .. } = self.mixes[object];
        let more = u32::from(other_limit && self.site.number % 2 == 1);
        let shared = shared.then_some(LockMode::Shared);
        let limited = max_holders.map(|most| LockMode::Limited { max_holders: most + more });
        let others: Vec<_> = shared.into_iter().chain(limited).collect();
        if others.is_empty() {
            return LockMode::Exclusive;
        }
        let chosen = self.rng.random_range(0..=others.len());
        others.get(chosen).copied().unwrap_or(LockMode::Exclusive)
    }

    async fn idle(&mut self, most: u64) {
        sleep(self.ms(0..most)).await;
    }

    fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    fn ms(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.random_range(range))
    }
}

/// The terms of a hold.
#[derive(Clone, Copy)]
struct Terms {
    /// When it was asked for; `None` if it lets others go first.
    asked: Option<Duration>,
    ttl: Duration,
    renews: bool,
    mode: LockMode,
    min_hold: Duration,
}

impl Terms {
    /// A request to hold like this.
    fn request(&self, client: &LockClient, object: &str) -> LockRequest {
        let request = client.request(object);
        match self.mode {
            LockMode::Shared => request.shared(),
            LockMode::Limited { max_holders } => request.max_holders(max_holders),
            LockMode::Exclusive => request,
            _ => unreachable!("there are no other modes"),
        }
    }
}

/// What a holder does with its guard.
#[derive(Debug)]
enum Step {
    /// It draws a token.
    Draw,
    /// It lists the contenders.
    Look,
    /// It makes sure of its rows.
    Check,
    /// It makes sure of its lease.
    Ensure(Duration),
    /// It says how far it is.
    Note,
    /// It lets its rows live as long as those of any task.
    Raise,
    /// It does nothing for a while.
    Stay(Duration),
}

/// The name of an error without what it says: process ids differ from run to run.
pub(crate) fn kind(error: &impl Debug) -> String {
    let error = format!("{error:?}");
    error.split([' ', '{']).next().unwrap_or_default().to_owned()
}
