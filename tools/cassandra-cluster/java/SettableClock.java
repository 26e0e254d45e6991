import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.cassandra.utils.Clock;

/**
 * The machine's clock plus an offset in milliseconds, read from a file. The file may change while
 * the node runs.
 */
public final class SettableClock implements Clock {
    private static final long POLL_INTERVAL_MILLIS = 20;

    private final Path file = Path.of(System.getProperty("settable_clock.file"));

    private volatile long millisAhead;

    public SettableClock() throws IOException {
        millisAhead = read();
        Thread poller = new Thread(this::poll, "SettableClock");
        poller.setDaemon(true);
        poller.start();
    }

    @Override
    public long nanoTime() {
        return System.nanoTime();
    }

    @Override
    public long currentTimeMillis() {
        return System.currentTimeMillis() + millisAhead;
    }

    /** Runs in its own thread: reading the file on each clock read would be too slow. */
    private void poll() {
        try {
            while (true) {
                Thread.sleep(POLL_INTERVAL_MILLIS);
                millisAhead = read();
            }
        } catch (InterruptedException | IOException | NumberFormatException error) {
            // A node that missed later changes would run a test with the wrong time.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private long read() throws IOException {
        return Long.parseLong(Files.readString(file).trim());
    }
}
