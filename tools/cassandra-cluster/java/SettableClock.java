import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.cassandra.utils.Clock;

/**
 * The clock of a node: the machine's, set ahead by as many milliseconds as a file says. The file
 * may change while the node runs.
 */
public final class SettableClock implements Clock {
    private static final long LOOK_PAUSE_MILLIS = 20;

    private final Path file = Path.of(System.getProperty("settable_clock.file"));

    private volatile long millisAhead;

    public SettableClock() throws IOException {
        millisAhead = read();
        Thread follower = new Thread(this::follow, "SettableClock");
        follower.setDaemon(true);
        follower.start();
    }

    @Override
    public long nanoTime() {
        return System.nanoTime();
    }

    @Override
    public long currentTimeMillis() {
        return System.currentTimeMillis() + millisAhead;
    }

    /** Runs in a thread of its own: the clock is asked too often to read the file each time. */
    private void follow() {
        try {
            while (true) {
                Thread.sleep(LOOK_PAUSE_MILLIS);
                millisAhead = read();
            }
        } catch (InterruptedException | IOException | NumberFormatException error) {
            // A node that no longer follows the file would run a test with the wrong time.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private long read() throws IOException {
        return Long.parseLong(Files.readString(file).trim());
    }
}
