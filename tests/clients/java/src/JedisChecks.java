import java.util.List;
import java.util.Map;
import java.util.UUID;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.params.SetParams;

/** Jedis without a lock library: SET with NX and PX, and the scripts that its users write. */
final class JedisChecks {
    private JedisChecks() {}

    private record Held(String name, String owner) {}

    private static final class Adapter implements Checks.Adapter {
        private final JedisPooled client;

        Adapter(int port) {
            client = new JedisPooled(Checks.HOST, port);
        }

        @Override
        public Object take(String name, long ttl) {
            Held held = new Held(name, UUID.randomUUID().toString());
            String reply = client.set(name, held.owner, SetParams.setParams().nx().px(ttl));
            return "OK".equals(reply) ? held : null;
        }

        @Override
        public Boolean extend(Object lock, long ttl) {
            Held held = (Held) lock;
            List<String> arguments = List.of(held.owner, Long.toString(ttl));
            return client.eval(LettuceChecks.EXTEND, List.of(held.name), arguments).equals(1L);
        }

        @Override
        public boolean release(Object lock) {
            Held held = (Held) lock;
            return client.eval(LettuceChecks.RELEASE, List.of(held.name), List.of(held.owner)).equals(1L);
        }

        @Override
        public Object forge(String name) {
            return new Held(name, "another");
        }

        @Override
        public void close() {
            client.close();
        }
    }

    public static void main(String[] arguments) {
        System.exit(Checks.run("jedis", Adapter::new, Map.of()) ? 1 : 0);
    }
}
