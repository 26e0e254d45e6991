// node-redis without a lock library: SET with NX and PX, and the scripts that its users write.
"use strict";

const { randomUUID } = require("crypto");
const { createClient } = require("redis");

const { HOST, fresh, must, run } = require("./checks");

const RELEASE = `
  if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
  else
    return 0
  end
`;
const EXTEND = `
  if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("pexpire", KEYS[1], ARGV[2])
  else
    return 0
  end
`;

class Adapter {
  static async connect(port) {
    const adapter = new Adapter();
    const socket = { host: HOST, port, reconnectStrategy: () => 100 };
    adapter.client = createClient({ socket });
    adapter.client.on("error", () => {});
    await adapter.client.connect();
    return adapter;
  }

  async take(name, ttl) {
    const owner = randomUUID();
    const reply = await this.client.set(name, owner, { NX: true, PX: ttl });
    return reply === "OK" ? { name, owner } : null;
  }

  async wait(name, ttl, ms) {
    const end = Date.now() + ms;
    while (Date.now() < end) {
      const lock = await this.take(name, ttl);
      if (lock) return lock;
      await new Promise((done) => setTimeout(done, 100));
    }
    return null;
  }

  async extend({ name, owner }, ttl) {
    return (await this.client.eval(EXTEND, { keys: [name], arguments: [owner, `${ttl}`] })) === 1;
  }

  async release({ name, owner }) {
    return (await this.client.eval(RELEASE, { keys: [name], arguments: [owner] })) === 1;
  }

  forge(name) {
    return { name, owner: "another" };
  }

  async close() {
    await this.client.quit();
  }
}

const more = {
  // The client sends them without waiting for answers.
  async commands_keep_their_order({ mine }) {
    const name = fresh("order");
    const lock = { name, owner: "me" };
    const got = await Promise.all([
      mine.client.set(name, "me", { NX: true, PX: 20000 }),
      mine.client.get(name),
      mine.release(lock),
      mine.client.set(name, "you", { NX: true, PX: 20000 }),
      mine.client.get(name),
      mine.release({ name, owner: "you" }),
      mine.client.get(name),
    ]);
    must(JSON.stringify(got) === '["OK","me",true,"OK","you",true,null]', `the answers were ${got}`);
  },
};

run("node-redis", Adapter.connect, more).then((failed) => process.exit(failed ? 1 : 0));
