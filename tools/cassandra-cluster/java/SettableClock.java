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

    /** A thread of its own reads the file: the clock itself is asked too often for that. */
    private void follow() {
        try {
            while (true) {
                Thread.sleep(LOOK_PAUSE_MILLIS);
                millisAhead = read();
            }
        } catch (InterruptedException | IOException | NumberFormatException error) {
            // A node that no longer follows would make a test look at the wrong time.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private long read() throws IOException {
        return Long.parseLong(Files.readString(file).trim());
    }
}
