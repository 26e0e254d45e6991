import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.logging.LogManager;

/** What the Java programs share: named checks, and the daemons they talk to. */
final class Checks {
    /** What the checks need of a client. Times are in milliseconds. */
    interface Adapter extends AutoCloseable {
        /** A held lock, or null if it is refused. */
        Object take(String name, long ttl) throws Exception;

        /** A held lock, or null after some time. */
        default Object await(String name, long ttl, long limit) throws Exception {
            long end = now() + limit;
            while (now() < end) {
                Object lock = take(name, ttl);
                if (lock != null) {
                    return lock;
                }
                Thread.sleep(100);
            }
            return null;
        }

        /** Whether the lock was extended; null if the client can't. */
        Boolean extend(Object lock, long ttl) throws Exception;

        /** Whether it was released. */
        boolean release(Object lock) throws Exception;

        /** A lock of another owner, which holds nothing. */
        Object forge(String name);

        @Override
        void close();
    }

    interface Check {
        void run(Context context) throws Exception;
    }

    interface Connect {
        Adapter at(int port);
    }

    record Context(Adapter mine, Adapter other, Connect connect) {}

    static final class Failed extends RuntimeException {
        Failed(String why) {
            super(why);
        }
    }

    static final class Skipped extends RuntimeException {
        Skipped(String why) {
            super(why);
        }
    }

    static final String HOST = "127.0.0.1";
    static final int PORT = number("LOCKD_PORT", 6380);
    static final int RELAY_PORT = number("LOCKD_RELAY_PORT", 0);
    static final int[] PORTS = Arrays.stream(words("LOCKD_PORTS")).mapToInt(Integer::parseInt).toArray();

    /** How late a lock may pass on: the machine may be busy. */
    static final long SLACK = 8_000;
    /** Rows of a daemon that was killed live for at most this long. */
    static final long ROWS_MAX = 45_000;

    private static final Map<String, Check> ALL = new LinkedHashMap<>();

    private Checks() {}

    static int number(String name, int otherwise) {
        String text = System.getenv(name);
        return text == null || text.isEmpty() ? otherwise : Integer.parseInt(text);
    }

    static String[] words(String name) {
        String text = System.getenv(name);
        return text == null || text.isBlank() ? new String[0] : text.trim().split(" +");
    }

    static void must(boolean condition, String why) {
        if (!condition) {
            throw new Failed(why);
        }
    }

    static long now() {
        return System.nanoTime() / 1_000_000;
    }

    static String fresh(String what) {
        return "clients::" + what + "::" + UUID.randomUUID().toString().substring(24);
    }

    static void control(String... command) throws IOException, InterruptedException {
        String path = System.getenv("LOCKD_CONTROL");
        if (path == null) {
            throw new Skipped("LOCKD_CONTROL is not set");
        }
        String[] all = new String[command.length + 1];
        all[0] = path;
        System.arraycopy(command, 0, all, 1, command.length);
        int status = new ProcessBuilder(all).inheritIO().start().waitFor();
        must(status == 0, "the daemon could not be controlled: " + String.join(" ", command));
    }

    /** What work comes to, or its exception. */
    static Object attempt(Callable<?> work) {
        try {
            return work.call();
        } catch (Failed failed) {
            throw failed;
        } catch (Exception error) {
            return error;
        }
    }

    /** What work comes to once the client has connected again. */
    static Object retried(Callable<?> work) throws Exception {
        Exception last = null;
        for (int tries = 0; tries < 20; tries++) {
            try {
                return work.call();
            } catch (Failed failed) {
                throw failed;
            } catch (Exception error) {
                last = error;
                Thread.sleep(250);
            }
        }
        throw last;
    }

    static Object taken(Adapter by, String name, long ttl) throws Exception {
        Object lock = by.take(name, ttl);
        must(lock != null, "a free lock was refused");
        return lock;
    }

    static void mustRelease(Adapter by, Object lock) throws Exception {
        must(by.release(lock), "its release was refused");
    }

    static void mustRefuse(Adapter by, String name, String why) throws Exception {
        must(by.take(name, 5_000) == null, why);
    }

    static boolean extended(Adapter by, Object lock, long ttl) throws Exception {
        Boolean extended = by.extend(lock, ttl);
        if (extended == null) {
            throw new Skipped("the client can't extend");
        }
        return extended;
    }

    /** The next owner gets the lock after the promised time, not before. */
    static Object mustPassOn(Adapter by, String name, long since, long promised, long limit)
            throws Exception {
        while (true) {
            Object lock = by.take(name, 20_000);
            long passed = now() - since;
            if (lock != null) {
                // Both clocks were cut to milliseconds.
                must(passed + 1 >= promised, "granted to another after " + passed + " ms of " + promised);
                return lock;
            }
            must(passed < limit, "still refused after " + passed + " ms");
            Thread.sleep(50);
        }
    }

    static Object mustPassOn(Adapter by, String name, long since, long promised) throws Exception {
        return mustPassOn(by, name, since, promised, promised + SLACK);
    }

    static {
        ALL.put("lock", c -> {
            String name = fresh("lock");
            for (int i = 0; i < 3; i++) {
                mustRelease(c.mine, taken(c.mine, name, 20_000));
            }
        });
        ALL.put("contended_is_refused", c -> {
            String name = fresh("refused");
            Object lock = taken(c.mine, name, 20_000);
            for (int i = 0; i < 3; i++) {
                mustRefuse(c.other, name, "two hold it");
            }
            mustRelease(c.mine, lock);
            mustRelease(c.other, taken(c.other, name, 20_000));
        });
        ALL.put("contended_waits", c -> {
            String name = fresh("waits");
            Object lock = taken(c.mine, name, 20_000);
            CompletableFuture<Long> released = CompletableFuture.supplyAsync(() -> {
                attempt(() -> {
                    Thread.sleep(1_000);
                    return null;
                });
                long at = now();
                attempt(() -> c.mine.release(lock));
                return at;
            });
            Object second = c.other.await(name, 20_000, 15_000);
            long at = now();
            must(second != null, "the waiting client got nothing");
            must(at >= released.get(), "granted before the release");
            mustRelease(c.other, second);
        });
        ALL.put("wait_ends", c -> {
            String name = fresh("wait-ends");
            Object lock = taken(c.mine, name, 20_000);
            long begun = now();
            must(c.other.await(name, 5_000, 1_000) == null, "two hold it");
            must(now() < begun + SLACK, "it waited too long");
            mustRelease(c.mine, lock);
        });
        ALL.put("extend", c -> {
            String name = fresh("extend");
            Object lock = taken(c.mine, name, 3_000);
            Thread.sleep(1_000);
            long since = now();
            must(extended(c.mine, lock, 4_000), "the extension was refused");
            mustPassOn(c.other, name, since, 4_000);
        });
        ALL.put("expiry", c -> {
            String name = fresh("expiry");
            long since = now();
            taken(c.mine, name, 2_000);
            mustPassOn(c.other, name, since, 2_000);
        });
        ALL.put("stranger_releases_nothing", c -> {
            String name = fresh("stranger");
            Object lock = taken(c.mine, name, 20_000);
            must(!c.other.release(c.other.forge(name)), "a stranger released it");
            mustRefuse(c.other, name, "a stranger's release set it free");
            mustRelease(c.mine, lock);
        });
        ALL.put("expired_release_is_harmless", c -> {
            String name = fresh("late-release");
            long since = now();
            Object lock = taken(c.mine, name, 1_000);
            Object second = mustPassOn(c.other, name, since, 1_000);
            must(!c.mine.release(lock), "the release of an expired lock succeeded");
            mustRefuse(c.mine, name, "a late release set another's lock free");
            mustRelease(c.other, second);
        });
        ALL.put("expired_is_not_revived", c -> {
            String name = fresh("revive");
            Object lock = taken(c.mine, name, 1_000);
            Thread.sleep(1_500);
            must(!extended(c.mine, lock, 5_000), "an expired lock was extended");
            Object second = mustPassOn(c.other, name, now(), 0);
            must(!extended(c.mine, lock, 5_000), "an expired lock of another was extended");
            mustRelease(c.other, second);
        });
        ALL.put("extends_do_not_add_up", c -> {
            String name = fresh("add-up");
            Object lock = taken(c.mine, name, 5_000);
            long since = now();
            for (int i = 0; i < 5; i++) {
                since = now();
                must(extended(c.mine, lock, 5_000), "the extension was refused");
            }
            mustPassOn(c.other, name, since, 5_000);
        });
        ALL.put("never_granted_expired", c -> {
            String name = fresh("fresh");
            for (int i = 0; i < 5; i++) {
                taken(c.mine, name, 1_000);
                Object second = c.other.await(name, 20_000, 15_000);
                must(second != null, "the waiting client got nothing");
                mustRefuse(c.mine, name, "a lock was granted that had expired already");
                mustRelease(c.other, second);
            }
        });
        ALL.put("reconnect", c -> {
            if (RELAY_PORT == 0) {
                throw new Skipped("LOCKD_RELAY_PORT is not set");
            }
            String name = fresh("reconnect");
            try (Adapter mine = c.connect.at(RELAY_PORT)) {
                Object lock = taken(mine, name, 30_000);
                control("cut");
                mustRefuse(c.other, name, "the lock ended with its connection");
                must((Boolean) retried(() -> mine.release(lock)), "its release was refused");
                mustRelease(c.other, taken(c.other, name, 20_000));
            }
        });
        ALL.put("killed_daemon_keeps_promises", c -> {
            String name = fresh("killed");
            long since = now();
            taken(c.mine, name, 4_000);
            control("kill", "1");
            control("start", "1");
            String warm = fresh("warm");
            retried(() -> c.other.release(taken(c.other, warm, 20_000)));
            mustRelease(c.other, mustPassOn(c.other, name, since, 4_000, ROWS_MAX));
        });
        ALL.put("next_daemon_releases", c -> {
            String name = fresh("adopted");
            // The check before this one has killed the daemon at the other end of its connection.
            Object lock = retried(() -> taken(c.mine, name, 20_000));
            control("kill", "1");
            control("start", "1");
            String warm = fresh("warm");
            retried(() -> c.mine.release(taken(c.mine, warm, 20_000)));
            must(retried(() -> c.other.take(name, 20_000)) == null, "the next daemon granted it to another");
            must(c.mine.release(lock), "the next daemon did not release it");
            mustRelease(c.other, mustPassOn(c.other, name, now(), 0));
        });
        // A client that waits while the daemon is killed gets an error, or the lock later.
        ALL.put("wait_outlasts_a_restart", c -> {
            String name = fresh("waits-killed");
            long since = now();
            taken(c.mine, name, 4_000);
            CompletableFuture<Object> asked = CompletableFuture.supplyAsync(() -> {
                Object got = attempt(() -> c.other.await(name, 20_000, 12_000));
                return got == null || got instanceof Exception ? Long.MAX_VALUE : (Object) (now() - since);
            });
            Thread.sleep(500);
            control("kill", "1");
            control("start", "1");
            must((Long) asked.get() >= 4_000, "granted to another before 4 s were over");
            String warm = fresh("warm");
            retried(() -> c.other.release(taken(c.other, warm, 20_000)));
        });
    }

    /**
     * Takes the locks LOCKD_NAMES in turn with others, and writes to LOCKD_LOG from when to when it
     * held which.
     */
    private static void takeTurns(String client, Adapter adapter, int seconds) throws Exception {
        long ttl = 2_000;
        String[] names = words("LOCKD_NAMES");
        ThreadLocalRandom random = ThreadLocalRandom.current();
        long end = now() + seconds * 1_000L;
        try (PrintWriter log = new PrintWriter(new FileWriter(System.getenv("LOCKD_LOG")), true)) {
            while (now() < end) {
                String name = names[random.nextInt(names.length)];
                long until = System.nanoTime() + ttl * 1_000_000;
                Object lock = attempt(() -> adapter.take(name, ttl));
                long begun = System.nanoTime();
                if (lock == null || lock instanceof Exception) {
                    Thread.sleep(random.nextInt(1, 20));
                    continue;
                }
                // Some use all of their time, until whose end no other owner may have the lock.
                if (random.nextInt(300) == 0) {
                    Thread.sleep(Math.max(0, (until - begun) / 1_000_000));
                }
                long ended = Math.min(System.nanoTime(), until);
                if (begun < ended) {
                    log.println(begun + " " + ended + " " + client + " " + name);
                }
                attempt(() -> adapter.release(lock));
                Thread.sleep(random.nextInt(5));
            }
        }
    }

    /** Makes all checks with a client, and those of `more`. Returns whether one failed. */
    static boolean run(String client, Connect connect, Map<String, Check> more) {
        Map<String, Check> todo = new LinkedHashMap<>(ALL);
        todo.putAll(more);
        List<String> only = List.of(words("LOCKD_CHECKS"));
        boolean isFailed = false;
        // Clients log each connection that breaks.
        LogManager.getLogManager().reset();
        if (number("LOCKD_TURNS", 0) > 0) {
            try (Adapter adapter = connect.at(PORT)) {
                takeTurns(client, adapter, number("LOCKD_TURNS", 0));
                System.exit(0);
            } catch (Exception error) {
                error.printStackTrace();
                return true;
            }
        }
        try (Adapter mine = connect.at(PORT); Adapter other = connect.at(PORT)) {
            Context context = new Context(mine, other, connect);
            for (Map.Entry<String, Check> check : todo.entrySet()) {
                String what = client + " " + check.getKey();
                if (!only.isEmpty() && !only.contains(check.getKey())) {
                    continue;
                }
                try {
                    check.getValue().run(context);
                    System.out.println("ok " + what);
                } catch (Skipped why) {
                    System.out.println("skip " + what + ": " + why.getMessage());
                } catch (Exception error) {
                    isFailed = true;
                    if (!(error instanceof Failed)) {
                        error.printStackTrace();
                    }
                    System.out.println(("not ok " + what + ": " + error).replace('\n', ' '));
                }
            }
        }
        return isFailed;
    }
}
