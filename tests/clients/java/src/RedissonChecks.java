import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** RLock and RFencedLock of Redisson. */
final class RedissonChecks {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final long WATCHDOG = 3_000;
    private static final AtomicLong OWNERS = new AtomicLong(1_000_000);

    private RedissonChecks() {}

    /** A lock is owned by a client and the number of a thread. */
    private record Held(RLock lock, long owner) {}

    private static final class Adapter implements Checks.Adapter {
        final RedissonClient client;

        Adapter(int port, Protocol protocol) {
            Config config = new Config();
            config.setLockWatchdogTimeout(WATCHDOG);
            config.setProtocol(protocol);
            config.useSingleServer()
                    .setAddress("redis://" + Checks.HOST + ":" + port)
                    .setConnectionMinimumIdleSize(2)
                    .setConnectionPoolSize(16);
            client = Redisson.create(config);
        }

        @Override
        public Object take(String name, long ttl) throws Exception {
            return await(name, ttl, 0);
        }

        @Override
        public Object await(String name, long ttl, long limit) throws Exception {
            Held held = new Held(client.getLock(name), OWNERS.incrementAndGet());
            return held.lock.tryLockAsync(limit, ttl, MS, held.owner).get() ? held : null;
        }

        @Override
        public Boolean extend(Object lock, long ttl) {
            return null;
        }

        @Override
        public boolean release(Object lock) throws Exception {
            Held held = (Held) lock;
            try {
                held.lock.unlockAsync(held.owner).get();
                return true;
            } catch (ExecutionException error) {
                if (error.getCause() instanceof IllegalMonitorStateException) {
                    return false;
                }
                throw error;
            }
        }

        @Override
        public Object forge(String name) {
            return new Held(client.getLock(name), OWNERS.incrementAndGet());
        }

        @Override
        public void close() {
            client.shutdown(0, 2, TimeUnit.SECONDS);
        }
    }

    private static RedissonClient mine(Checks.Context context) {
        return ((Adapter) context.mine()).client;
    }

    private static RedissonClient other(Checks.Context context) {
        return ((Adapter) context.other()).client;
    }

    private static void mustStayTaken(RLock other, long time) throws Exception {
        long end = Checks.now() + time;
        while (Checks.now() < end) {
            Checks.must(!other.tryLock(), "two hold it");
            Thread.sleep(200);
        }
    }

    private static Map<String, Checks.Check> more() {
        Map<String, Checks.Check> more = new LinkedHashMap<>();
        more.put("reentrant", c -> {
            String name = Checks.fresh("reentrant");
            RLock lock = mine(c).getLock(name);
            RLock other = other(c).getLock(name);
            lock.lock();
            lock.lock();
            Checks.must(lock.getHoldCount() == 2, "it is held " + lock.getHoldCount() + " times, not 2");
            Checks.must(lock.isLocked() && lock.isHeldByCurrentThread(), "its owner does not see it");
            Checks.must(other.isLocked() && !other.isHeldByCurrentThread(), "another sees it as its own");
            lock.unlock();
            Checks.must(!other.tryLock(), "it was free after the first of two unlocks");
            lock.unlock();
            Checks.must(!lock.isLocked(), "it is taken after its unlock");
            Checks.must(other.tryLock(), "a free lock was refused");
            other.unlock();
        });
        more.put("remaining_time", c -> {
            RLock lock = mine(c).getLock(Checks.fresh("left"));
            Checks.must(lock.remainTimeToLive() == -2, "a free lock has time left");
            lock.lock(20_000, MS);
            long left = lock.remainTimeToLive();
            Checks.must(left > 10_000 && left <= 20_000, left + " ms are left of 20000");
            lock.unlock();
        });
        more.put("watchdog_renews", c -> {
            String name = Checks.fresh("watchdog");
            RLock lock = mine(c).getLock(name);
            lock.lock();
            mustStayTaken(other(c).getLock(name), 3 * WATCHDOG);
            lock.unlock();
            Checks.must(other(c).getLock(name).tryLock(), "a free lock was refused");
            other(c).getLock(name).unlock();
        });
        // redisson#7272
        more.put("watchdog_ends_with_the_unlock", c -> {
            String name = Checks.fresh("watchdog-ends");
            RLock lock = mine(c).getLock(name);
            lock.lock();
            Thread.sleep(WATCHDOG / 3 + 200);
            lock.unlock();
            long since = Checks.now();
            RLock other = other(c).getLock(name);
            Checks.must(other.tryLock(0, 2_000, MS), "a free lock was refused");
            Checks.mustRelease(c.mine(), Checks.mustPassOn(c.mine(), name, since, 2_000));
        });
        // redisson#2515, #3194
        more.put("watchdog_outlasts_a_reconnect", c -> {
            if (Checks.RELAY_PORT == 0) {
                throw new Checks.Skipped("LOCKD_RELAY_PORT is not set");
            }
            String name = Checks.fresh("watchdog-cut");
            try (Checks.Adapter relayed = c.connect().at(Checks.RELAY_PORT)) {
                RLock lock = ((Adapter) relayed).client.getLock(name);
                lock.lock();
                Checks.control("cut");
                mustStayTaken(other(c).getLock(name), 3 * WATCHDOG);
                lock.unlock();
            }
            Checks.mustRelease(c.other(), Checks.taken(c.other(), name, 20_000));
        });
        // redisson#1763, #5761: the time to live is 20 s, so a hand-over that takes long missed its message.
        more.put("waiter_hears_of_the_unlock", c -> {
            String name = Checks.fresh("messages");
            Object held = Checks.taken(c.mine(), name, 20_000);
            Checks.Adapter next = c.other();
            Checks.Adapter holder = c.mine();
            long longest = 0;
            for (int i = 0; i < 20; i++) {
                Checks.Adapter waiter = next;
                CompletableFuture<Object> waits = CompletableFuture.supplyAsync(
                        () -> Checks.attempt(() -> waiter.await(name, 20_000, 19_000)));
                Thread.sleep(i % 4 * 50);
                long at = Checks.now();
                Checks.mustRelease(holder, held);
                held = waits.get();
                Checks.must(held instanceof Held, "the waiting client got " + held);
                longest = Math.max(longest, Checks.now() - at);
                next = holder;
                holder = waiter;
            }
            Checks.mustRelease(holder, held);
            Checks.must(longest < 5_000, "a hand-over took " + longest + " ms");
        });
        more.put("waiter_at_another_daemon", c -> {
            if (Checks.PORTS.length < 2) {
                throw new Checks.Skipped("there is no second daemon");
            }
            String name = Checks.fresh("two-daemons");
            try (Checks.Adapter elsewhere = c.connect().at(Checks.PORTS[1])) {
                Object held = Checks.taken(c.mine(), name, 20_000);
                CompletableFuture<Object> waits = CompletableFuture.supplyAsync(
                        () -> Checks.attempt(() -> elsewhere.await(name, 20_000, 19_000)));
                Thread.sleep(1_000);
                Checks.must(!waits.isDone(), "two hold it, or the wait failed");
                long at = Checks.now();
                Checks.mustRelease(c.mine(), held);
                Object second = waits.get();
                Checks.must(second instanceof Held, "the waiting client got " + second);
                long took = Checks.now() - at;
                Checks.must(took < 5_000, "the hand-over took " + took + " ms");
                Checks.mustRelease(elsewhere, second);
            }
        });
        more.put("threads_take_turns", c -> {
            String name = Checks.fresh("threads");
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger done = new AtomicInteger();
            AtomicInteger overlaps = new AtomicInteger();
            CountDownLatch end = new CountDownLatch(8);
            for (int i = 0; i < 8; i++) {
                RLock lock = (i % 2 == 0 ? mine(c) : other(c)).getLock(name);
                new Thread(() -> {
                    for (int turn = 0; turn < 5; turn++) {
                        lock.lock();
                        try {
                            overlaps.addAndGet(inside.getAndIncrement());
                            done.incrementAndGet();
                            inside.decrementAndGet();
                        } finally {
                            lock.unlock();
                        }
                    }
                    end.countDown();
                }).start();
            }
            Checks.must(end.await(60, TimeUnit.SECONDS), "only " + done + " of 40 turns in 60 s");
            Checks.must(overlaps.get() == 0, overlaps + " turns overlapped");
        });
        more.put("unlock_of_another_throws", c -> {
            String name = Checks.fresh("not-mine");
            RLock lock = mine(c).getLock(name);
            lock.lock();
            Object got = Checks.attempt(() -> {
                other(c).getLock(name).unlock();
                return "success";
            });
            Checks.must(got instanceof IllegalMonitorStateException, "the answer was " + got);
            lock.unlock();
        });
        more.put("adopted_lock_is_seen", c -> {
            RLock lock = mine(c).getLock(Checks.fresh("adopted"));
            lock.lock(20_000, MS);
            Checks.control("kill", "1");
            Checks.control("start", "1");
            boolean isHeld = (Boolean) Checks.retried(lock::isHeldByCurrentThread);
            Checks.must(isHeld, "its owner does not see that it still has it");
            RLock other = other(c).getLock(lock.getName());
            Checks.must(!(Boolean) Checks.retried(other::tryLock), "granted to another before its time was over");
            lock.unlock();
            Checks.must(!lock.isHeldByCurrentThread(), "its owner still sees it as its own");
        });
        more.put("force_unlock", c -> {
            String name = Checks.fresh("force");
            RLock lock = mine(c).getLock(name);
            lock.lock(20_000, MS);
            Checks.must(other(c).getLock(name).forceUnlock(), "it was refused");
            Checks.must(!other(c).getLock(name).forceUnlock(), "a free lock was released");
            Checks.mustRelease(c.other(), Checks.taken(c.other(), name, 5_000));
        });
        more.put("fencing_tokens_rise", c -> {
            String name = Checks.fresh("fenced");
            long before = 0;
            for (int i = 0; i < 6; i++) {
                RFencedLock lock = (i % 2 == 0 ? mine(c) : other(c)).getFencedLock(name);
                RFencedLock other = (i % 2 == 0 ? other(c) : mine(c)).getFencedLock(name);
                Long token = lock.lockAndGetToken();
                Checks.must(token > before, "token " + token + " after " + before);
                Checks.must(other.tryLockAndGetToken(200, MS) == null, "two hold it");
                before = token;
                lock.unlock();
            }
        });
        more.put("fenced_lock_without_its_token", c -> {
            String name = Checks.fresh("fenced-plain");
            RFencedLock lock = mine(c).getFencedLock(name);
            RFencedLock other = other(c).getFencedLock(name);
            lock.lock();
            Checks.must(!other.tryLock(), "two hold it");
            lock.unlock();
            Checks.must(other.tryLock(), "a free lock was refused");
            other.unlock();
        });
        more.put("fenced_token_is_seen", c -> {
            RFencedLock lock = mine(c).getFencedLock(Checks.fresh("fenced-get"));
            Long token = lock.lockAndGetToken();
            Checks.must(token.equals(lock.getToken()), "the token is " + lock.getToken() + ", not " + token);
            lock.unlock();
        });
        more.put("multi_lock", c -> {
            String first = Checks.fresh("multi-a");
            String second = Checks.fresh("multi-b");
            RLock both = mine(c).getMultiLock(mine(c).getLock(first), mine(c).getLock(second));
            Checks.must(both.tryLock(2_000, 20_000, MS), "free locks were refused");
            Checks.mustRefuse(c.other(), first, "two hold it");
            Checks.mustRefuse(c.other(), second, "two hold it");
            both.unlock();
            Checks.mustRelease(c.other(), Checks.taken(c.other(), first, 5_000));
            Checks.mustRelease(c.other(), Checks.taken(c.other(), second, 5_000));
        });
        return more;
    }

    public static void main(String[] arguments) {
        boolean isFailed = Checks.run("redisson", port -> new Adapter(port, Protocol.RESP2), more());
        isFailed |= Checks.run("redisson-resp3", port -> new Adapter(port, Protocol.RESP3), more());
        System.exit(isFailed ? 1 : 0);
    }
}
