// redlock 4.2.0 on ioredis, and on node-redis in its legacy mode.
"use strict";

const Redis = require("ioredis");
const Redlock = require("redlock4");
const nodeRedis = require("redis");

const { HOST, fresh, must, run, taken } = require("./checks");

class Adapter {
  constructor(clients, connect) {
    this.clients = clients;
    this.connect = connect;
    this.redlock = new Redlock(clients, { retryCount: 0 });
    this.redlock.on("clientError", () => {});
  }

  async over(ports) {
    return new Adapter(await Promise.all(ports.map(this.connect)), this.connect);
  }

  async take(name, ttl) {
    return this.refusedIsNull(this.redlock.lock(name, ttl));
  }

  async wait(name, ttl, ms) {
    const options = { retryCount: Math.ceil(ms / 100), retryDelay: 100 };
    return this.refusedIsNull(this.redlock.lockWithOptions(name, ttl, options));
  }

  async refusedIsNull(promise) {
    try {
      return await promise;
    } catch (error) {
      if (error instanceof Redlock.LockError) return null;
      throw error;
    }
  }

  async extend(lock, ttl) {
    // The client itself refuses an expired lock: let the daemon refuse it.
    lock.expiration = Infinity;
    return (await this.refusedIsNull(lock.extend(ttl))) !== null;
  }

  async release(lock) {
    return (await this.refusedIsNull(lock.unlock())) !== null;
  }

  forge(name) {
    return new Redlock.Lock(this.redlock, [name], "another", Infinity, 0, 0);
  }

  async close() {
    await Promise.all(this.clients.map((client) => client.quit()));
  }
}

async function ioredis(port) {
  const client = new Redis(port, HOST);
  client.on("error", () => {});
  return client;
}

async function legacy(port) {
  const socket = { host: HOST, port, reconnectStrategy: () => 100 };
  const client = nodeRedis.createClient({ socket, legacyMode: true });
  client.on("error", () => {});
  await client.connect();
  // What a callback returns, this client waits for; a rejected promise of redlock would end the program.
  const call = (name) => (...words) => {
    const callback = words.pop();
    client[name](...words, (error, reply) => void callback(error, reply));
  };
  return { evalsha: call("evalsha"), eval: call("eval"), quit: () => client.v4.quit() };
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

  // The client itself then releases the lock: it does so after each extension that fails.
  async extend_with_0_is_refused({ mine }) {
    const lock = await taken(mine, fresh("zero"), 20000);
    must(!(await mine.extend(lock, 0)), "an extension by nothing succeeded");
  },
};

async function main() {
  let failed = false;
  for (const [name, connect] of Object.entries({ ioredis, "node-redis": legacy })) {
    const adapter = async (port) => new Adapter([await connect(port)], connect);
    failed = (await run(`npm-redlock4-${name}`, adapter, more)) || failed;
  }
  process.exit(failed ? 1 : 0);
}

main();
