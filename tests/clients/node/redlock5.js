// redlock 5.0.0-beta.2 on ioredis.
"use strict";

const Redis = require("ioredis");
const { default: Redlock, ExecutionError, Lock } = require("redlock");

const { HOST, attempt, control, fresh, must, run, sleep, taken } = require("./checks");

class Adapter {
  constructor(ports) {
    this.clients = ports.map((port) => new Redis(port, HOST));
    for (const client of this.clients) client.on("error", () => {});
    this.redlock = new Redlock(this.clients, { retryCount: 0 });
    this.redlock.on("error", () => {});
  }

  async over(ports) {
    return new Adapter(ports);
  }

  async take(name, ttl) {
    return this.refusedIsNull(this.redlock.acquire([name].flat(), ttl));
  }

  async wait(name, ttl, ms) {
    const settings = { retryCount: Math.ceil(ms / 100), retryDelay: 100 };
    return this.refusedIsNull(this.redlock.acquire([name], ttl, settings));
  }

  async refusedIsNull(promise) {
    try {
      return await promise;
    } catch (error) {
      if (error instanceof ExecutionError) return null;
      throw error;
    }
  }

  async extend(lock, ttl) {
    // The client itself refuses an expired lock: let the daemon refuse it.
    lock.expiration = Infinity;
    return (await this.refusedIsNull(lock.extend(ttl))) !== null;
  }

  async release(lock) {
    return (await this.refusedIsNull(lock.release())) !== null;
  }

  forge(name) {
    return new Lock(this.redlock, [name], "another", [], Infinity);
  }

  async close() {
    await this.redlock.quit();
  }
}

const more = {
  async several_at_once({ mine, other }) {
    const [a, b, c] = ["a", "b", "c"].map(fresh);
    const both = await taken(mine, [a, b], 20000);
    must(!(await other.take([b, c], 5000)), "two hold it");
    must(await other.release(await taken(other, c, 5000)), "one of a refused pair stayed taken");
    must(await mine.extend(both, 20000), "the extension was refused");
    must(await mine.release(both), "its release was refused");
    must(await other.release(await taken(other, [a, b], 5000)), "its release was refused");
  },

  async using_extends({ mine, other }) {
    const name = fresh("using");
    await mine.redlock.using([name], 2000, async (signal) => {
      const end = Date.now() + 5000;
      while (Date.now() < end) {
        must(!signal.aborted, "the lock was not extended");
        must(!(await other.take(name, 5000)), "two hold it");
        await sleep(200);
      }
    });
    must(await other.release(await taken(other, name, 5000)), "its release was refused");
  },

  // An extension after the release must not go on (redisson#7272).
  async using_stops_when_it_ends({ mine, other }) {
    const name = fresh("stops");
    await mine.redlock.using([name], 1000, async () => sleep(700));
    const lock = await taken(other, name, 20000);
    await sleep(1500);
    must(await other.release(lock), "it was released or extended by another");
  },

  // A lock that can't be extended is lost, and its user hears of it (RedLock.net#48).
  async using_reports_a_lost_lock({ mine, other }) {
    const name = fresh("lost");
    let isReported = false;
    await attempt(() =>
      mine.redlock.using([name], 4000, async (signal) => {
        await control("kill", "1");
        await control("start", "1");
        const end = Date.now() + 8000;
        while (!signal.aborted && Date.now() < end) await sleep(50);
        isReported = signal.aborted;
      }),
    );
    must(isReported, "the client does not report that its lock is lost");
    const lock = await other.wait(name, 5000, 45000);
    must(lock && (await other.release(lock)), "it is still taken");
  },

  async extend_with_0_keeps_the_lock({ mine, other }) {
    const name = fresh("zero");
    const lock = await taken(mine, name, 20000);
    const got = await attempt(() => mine.extend(lock, 0));
    must(got !== true, "an extension by nothing succeeded");
    must(!(await other.take(name, 5000)), "an extension by nothing set it free");
    must(await mine.release(lock), "its release was refused");
  },
};

async function main() {
  const failed = await run("npm-redlock5-ioredis", async (port) => new Adapter([port]), more);
  process.exit(failed ? 1 : 0);
}

main();
