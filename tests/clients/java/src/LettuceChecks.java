import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;
import java.util.Map;
import java.util.UUID;

/** Lettuce without a lock library: SET with NX and PX, and the scripts that its users write. */
final class LettuceChecks {
    static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    static final String EXTEND =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2])"
                    + " else return 0 end";

    private LettuceChecks() {}

    private record Held(String name, String owner) {}

    private static final class Adapter implements Checks.Adapter {
        private final RedisClient client;
        private final RedisCommands<String, String> commands;

        Adapter(int port) {
            RedisURI address = RedisURI.create(Checks.HOST, port);
            address.setTimeout(Duration.ofSeconds(10));
            client = RedisClient.create(address);
            commands = client.connect().sync();
        }

        @Override
        public Object take(String name, long ttl) {
            Held held = new Held(name, UUID.randomUUID().toString());
            String reply = commands.set(name, held.owner, SetArgs.Builder.nx().px(ttl));
            return "OK".equals(reply) ? held : null;
        }

        private boolean run(String script, Object lock, String... more) {
            Held held = (Held) lock;
            String[] arguments = new String[more.length + 1];
            arguments[0] = held.owner;
            System.arraycopy(more, 0, arguments, 1, more.length);
            Long reply = commands.eval(script, ScriptOutputType.INTEGER, new String[] {held.name}, arguments);
            return reply == 1;
        }

        @Override
        public Boolean extend(Object lock, long ttl) {
            return run(EXTEND, lock, Long.toString(ttl));
        }

        @Override
        public boolean release(Object lock) {
            return run(RELEASE, lock);
        }

        @Override
        public Object forge(String name) {
            return new Held(name, "another");
        }

        @Override
        public void close() {
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    public static void main(String[] arguments) {
        System.exit(Checks.run("lettuce", Adapter::new, Map.of()) ? 1 : 0);
    }
}
