// What the Node programs share: named checks, and the daemons they talk to.
//
// A program gives an adapter of its client to `run`. Its methods are asynchronous:
//   take(name, ttl)      a held lock, or null if it is refused
//   wait(name, ttl, ms)  a held lock, or null after some milliseconds
//   extend(lock, ttl)    whether the lock was extended; undefined if the client can't
//   release(lock)        whether it was released
//   forge(name)          a lock of another owner, which holds nothing
//   over(ports)          an adapter of a majority; may be missing
//   close()
// Times are in milliseconds.
//
// With LOCKD_TURNS, `run` makes no checks but takes the locks LOCKD_NAMES in turn with others for so
// many seconds, and writes to LOCKD_LOG from when to when it held which.
"use strict";

const { execFile } = require("child_process");
const { randomBytes } = require("crypto");
const { closeSync, openSync, writeSync } = require("fs");
const { promisify } = require("util");

const number = (text) => Number(process.env[text] || 0);
const HOST = "127.0.0.1";
const PORT = number("LOCKD_PORT") || 6380;
const PORTS = (process.env.LOCKD_PORTS || "").split(" ").filter(Boolean).map(Number);
const RELAY_PORT = number("LOCKD_RELAY_PORT");

// How late a lock may pass on: the machine may be busy.
const SLACK = 8000;
// Rows of a daemon that was killed live for at most this long.
const ROWS_MAX = 45000;

class Failed extends Error {}
class Skipped extends Error {}

const must = (condition, why) => {
  if (!condition) throw new Failed(why);
};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.now();
const fresh = (what) => `clients::${what}::${randomBytes(6).toString("hex")}`;
const attempt = (work) => work().catch((error) => error);

async function control(...words) {
  if (!process.env.LOCKD_CONTROL) throw new Skipped("LOCKD_CONTROL is not set");
  await promisify(execFile)(process.env.LOCKD_CONTROL, words);
}

async function taken(adapter, name, ttl) {
  const lock = await adapter.take(name, ttl);
  must(lock, "a free lock was refused");
  return lock;
}

// Tries until the lock is granted: the lock, and the time since `since`.
async function grantedAfter(adapter, name, ttl, since, limit) {
  for (;;) {
    const lock = await adapter.take(name, ttl);
    const passed = now() - since;
    if (lock) return [lock, passed];
    must(passed < limit, `still refused after ${Math.round(passed)} ms`);
    await sleep(50);
  }
}

// The next owner gets the lock after the promised time, not before.
async function mustPassOn(adapter, name, since, promised, limit = promised + SLACK) {
  const [lock, passed] = await grantedAfter(adapter, name, 5000, since, limit);
  must(passed >= promised, `granted to another after ${passed} ms of ${promised} ms`);
  return lock;
}

// What it comes to once the client has connected again.
async function retried(work) {
  let result;
  for (let tries = 0; tries < 20; tries++) {
    result = await attempt(work);
    if (!(result instanceof Error)) return result;
    await sleep(250);
  }
  throw result;
}

async function extended(adapter, lock, ttl) {
  const result = await adapter.extend(lock, ttl);
  if (result === undefined) throw new Skipped("the client can't extend");
  return result;
}

const checks = {
  async lock({ mine }) {
    const name = fresh("lock");
    for (let i = 0; i < 3; i++) {
      must(await mine.release(await taken(mine, name, 5000)), "its release was refused");
    }
  },

  async contended_is_refused({ mine, other }) {
    const name = fresh("refused");
    const lock = await taken(mine, name, 20000);
    for (let i = 0; i < 3; i++) must(!(await other.take(name, 5000)), "two hold it");
    must(await mine.release(lock), "its release was refused");
    must(await other.release(await taken(other, name, 5000)), "its release was refused");
  },

  async contended_waits({ mine, other }) {
    const name = fresh("waits");
    const lock = await taken(mine, name, 20000);
    let released;
    const release = sleep(1000).then(() => {
      released = now();
      return mine.release(lock);
    });
    const second = await other.wait(name, 5000, 15000);
    const at = now();
    must(second, "the waiting client got nothing");
    must(released && at >= released, "granted before the release");
    must(await release, "its release was refused");
    must(await other.release(second), "its release was refused");
  },

  async wait_ends({ mine, other }) {
    const name = fresh("wait-ends");
    const lock = await taken(mine, name, 20000);
    must(!(await other.wait(name, 5000, 1000)), "two hold it");
    must(await mine.release(lock), "its release was refused");
  },

  async extend({ mine, other }) {
    const name = fresh("extend");
    const lock = await taken(mine, name, 3000);
    await sleep(1000);
    const since = now();
    must(await extended(mine, lock, 4000), "the extension was refused");
    await mustPassOn(other, name, since, 4000);
  },

  async expiry({ mine, other }) {
    const name = fresh("expiry");
    const since = now();
    await taken(mine, name, 2000);
    await mustPassOn(other, name, since, 2000);
  },

  async stranger_releases_nothing({ mine, other }) {
    const name = fresh("stranger");
    const lock = await taken(mine, name, 20000);
    must(!(await other.release(other.forge(name))), "a stranger released it");
    must(!(await other.take(name, 5000)), "a stranger's release set it free");
    must(await mine.release(lock), "its owner could not release it any more");
  },

  async expired_release_is_harmless({ mine, other }) {
    const name = fresh("late-release");
    const since = now();
    const lock = await taken(mine, name, 1000);
    const [second, passed] = await grantedAfter(other, name, 20000, since, 1000 + SLACK);
    must(passed >= 1000, `granted to another after ${passed} ms of 1000 ms`);
    must(!(await mine.release(lock)), "the release of an expired lock succeeded");
    must(!(await mine.take(name, 5000)), "a late release set another's lock free");
    must(await other.release(second), "the second owner could not release it");
  },

  async expired_is_not_revived({ mine, other }) {
    const name = fresh("revive");
    const lock = await taken(mine, name, 1000);
    await sleep(1500);
    must(!(await extended(mine, lock, 5000)), "an expired lock was extended");
    const [second] = await grantedAfter(other, name, 20000, now(), SLACK);
    must(!(await extended(mine, lock, 5000)), "an expired lock of another was extended");
    must(await other.release(second), "the second owner could not release it");
  },

  async extends_do_not_add_up({ mine, other }) {
    const name = fresh("add-up");
    let lock = await taken(mine, name, 5000);
    let since;
    for (let i = 0; i < 5; i++) {
      since = now();
      must(await extended(mine, lock, 5000), "the extension was refused");
    }
    await mustPassOn(other, name, since, 5000);
  },

  async never_granted_expired({ mine, other }) {
    const name = fresh("fresh");
    for (let i = 0; i < 5; i++) {
      await taken(mine, name, 1000);
      const second = await other.wait(name, 5000, 15000);
      must(second, "the waiting client got nothing");
      must(!(await mine.take(name, 1000)), "a lock was granted that had expired already");
      must(await other.release(second), "a lock was granted that had expired already");
    }
  },

  async reconnect({ other, connect }) {
    if (!RELAY_PORT) throw new Skipped("LOCKD_RELAY_PORT is not set");
    const name = fresh("reconnect");
    const mine = await connect(RELAY_PORT);
    const lock = await taken(mine, name, 20000);
    await control("cut");
    must(!(await other.take(name, 5000)), "the lock ended with its connection");
    must(await retried(() => mine.release(lock)), "its release over a new connection was refused");
    must(await other.release(await taken(other, name, 5000)), "its release was refused");
    await mine.close();
  },

  async killed_daemon_keeps_promises({ mine, other }) {
    const name = fresh("killed");
    const since = now();
    await taken(mine, name, 4000);
    await control("kill", "1");
    await control("start", "1");
    await retried(async () => other.release(await taken(other, fresh("warm"), 5000)));
    const [second, passed] = await grantedAfter(other, name, 20000, since, ROWS_MAX);
    must(passed >= 4000, `granted to another after ${passed} ms of 4000 ms`);
    must(await other.release(second), "its release was refused");
  },

  async next_daemon_releases({ mine, other }) {
    const name = fresh("adopted");
    const lock = await taken(mine, name, 20000);
    await control("kill", "1");
    await control("start", "1");
    await retried(() => mine.take(fresh("warm"), 5000));
    const got = await retried(() => other.take(name, 5000));
    must(!got, "the next daemon granted it to another");
    must(await mine.release(lock), "the next daemon did not release it");
    const [second] = await grantedAfter(other, name, 5000, now(), SLACK);
    must(await other.release(second), "its release was refused");
  },

  // A client that waits while the daemon is killed gets an error, or the lock later.
  async wait_outlasts_a_restart({ mine, other }) {
    const name = fresh("waits-killed");
    const since = now();
    await taken(mine, name, 4000);
    const asked = attempt(() => other.wait(name, 5000, 12000));
    await sleep(500);
    await control("kill", "1");
    await control("start", "1");
    const got = await asked;
    const passed = now() - since;
    if (got && !(got instanceof Error)) {
      must(passed >= 4000, `granted to another after ${passed} ms of 4000 ms`);
    }
    await retried(async () => other.release(await taken(other, fresh("warm"), 5000)));
  },

  // Redlock over three daemons of one cluster: at most one holds it, and never a majority.
  async three_daemons_as_masters({ mine }) {
    if (!mine.over) throw new Skipped("the client has no majority");
    if (PORTS.length < 3) throw new Skipped("there are no three daemons");
    const one = await mine.over(PORTS.slice(0, 3));
    const two = await mine.over(PORTS.slice(0, 3));
    let name;
    for (let i = 0; i < 5; i++) {
      name = fresh("masters");
      const locks = await Promise.all([one, two].map((it) => attempt(() => it.take(name, 5000))));
      const held = locks.filter((lock) => lock && !(lock instanceof Error));
      must(held.length < 2, "two hold it");
      must(held.length === 0, "a majority of three daemons granted one lock");
    }
    // What was granted by one of them was given back.
    const [lock] = await grantedAfter(mine, name, 5000, now(), 5000 + SLACK);
    must(await mine.release(lock), "its release was refused");
    await one.close();
    await two.close();
  },
};

async function takeTurns(client, adapter, seconds) {
  const ttl = 2000;
  const names = process.env.LOCKD_NAMES.split(" ");
  const log = openSync(process.env.LOCKD_LOG, "w");
  const clock = () => process.hrtime.bigint();
  const end = now() + seconds * 1000;
  while (now() < end) {
    const name = names[Math.floor(Math.random() * names.length)];
    const until = clock() + BigInt(ttl) * 1000000n;
    const lock = await attempt(() => adapter.take(name, ttl));
    const begun = clock();
    if (!lock || lock instanceof Error) {
      await sleep(1 + Math.random() * 19);
      continue;
    }
    // Some use all of their time, until whose end no other owner may have the lock.
    if (Math.random() < 1 / 300) await sleep(Math.max(0, Number(until - begun) / 1e6));
    const at = clock();
    const ended = at < until ? at : until;
    if (begun < ended) writeSync(log, `${begun} ${ended} ${client} ${name}\n`);
    await attempt(() => adapter.release(lock));
    await sleep(Math.random() * 5);
  }
  closeSync(log);
}

// Runs all checks with a client, and those of `more`. `connect` makes an adapter for a port.
// Returns whether one failed.
async function run(client, connect, more = {}) {
  if (number("LOCKD_TURNS")) {
    await takeTurns(client, await connect(PORT), number("LOCKD_TURNS"));
    process.exit();
  }
  const context = { mine: await connect(PORT), other: await connect(PORT), connect };
  const only = (process.env.LOCKD_CHECKS || "").split(" ").filter(Boolean);
  let failed = false;
  for (const [name, check] of Object.entries({ ...checks, ...more })) {
    if (only.length > 0 && !only.includes(name)) continue;
    try {
      await check(context);
      console.log(`ok ${client} ${name}`);
    } catch (error) {
      if (error instanceof Skipped) {
        console.log(`skip ${client} ${name}: ${error.message}`);
        continue;
      }
      failed = true;
      if (!(error instanceof Failed)) console.error(error);
      console.log(`not ok ${client} ${name}: ${error.message}`.replaceAll("\n", " "));
    }
  }
  await context.mine.close();
  await context.other.close();
  return failed;
}

module.exports = { HOST, attempt, control, fresh, must, run, sleep, taken };
