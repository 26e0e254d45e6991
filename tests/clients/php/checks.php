<?php
// What the PHP programs share: named checks, and the daemons they talk to.
//
// A program gives `run` an adapter for each port. An adapter has
//   take(name, ttl)      a held lock, or null if it is refused
//   extend(lock, ttl)    whether the lock was extended
//   release(lock)        whether it was released
//   command(words)       the answer to any command
// Locks are arrays of name and owner. Times are in seconds.
//
// With LOCKD_TURNS, `run` makes no checks but takes the locks LOCKD_NAMES in turn with others for so
// many seconds, and writes to LOCKD_LOG from when to when it held which.

declare(strict_types=1);

const HOST = '127.0.0.1';
// How late a lock may pass on: the machine may be busy.
const SLACK = 8.0;
// Rows of a daemon that was killed live for at most this long.
const ROWS_MAX = 45.0;

const RELEASE = '
    if redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("del", KEYS[1])
    else
        return 0
    end
';
const EXTEND = '
    if redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("pexpire", KEYS[1], ARGV[2])
    else
        return 0
    end
';

class Failed extends Exception {}
class Skipped extends Exception {}

interface Adapter
{
    public function take(string $name, float $ttl): ?array;
    public function extend(array $lock, float $ttl): bool;
    public function release(array $lock): bool;
    public function command(string ...$words): mixed;
}

function port(string $variable): int
{
    return (int) (getenv($variable) ?: 0);
}

function must(bool $condition, string $why): void
{
    if (!$condition) {
        throw new Failed($why);
    }
}

function now(): float
{
    return hrtime(true) / 1e9;
}

function pause(float $seconds): void
{
    usleep((int) ($seconds * 1e6));
}

function milliseconds(float $seconds): int
{
    return (int) ($seconds * 1000);
}

function fresh(string $what): string
{
    return "clients::$what::" . bin2hex(random_bytes(6));
}

function owner(): string
{
    return bin2hex(random_bytes(16));
}

function control(string ...$words): void
{
    $control = getenv('LOCKD_CONTROL') ?: throw new Skipped('LOCKD_CONTROL is not set');
    // The daemon that it starts must not keep this program's output open.
    exec(escapeshellarg($control) . ' ' . implode(' ', $words) . ' >/dev/null', $_, $code);
    must($code === 0, "the control failed: $words[0]");
}

function attempt(callable $work): mixed
{
    try {
        return $work();
    } catch (Exception $error) {
        return $error;
    }
}

/** What it comes to once the client has connected again. */
function retried(callable $work): mixed
{
    for ($try = 0; $try < 20; $try++) {
        $result = attempt($work);
        if (!$result instanceof Exception) {
            return $result;
        }
        pause(0.25);
    }
    throw $result;
}

function taken(Adapter $adapter, string $name, float $ttl): array
{
    $lock = $adapter->take($name, $ttl);
    must($lock !== null, 'a free lock was refused');
    return $lock;
}

/** Tries until the lock is granted: the lock, and the time since then. */
function granted_after(Adapter $adapter, string $name, float $ttl, float $since, float $limit): array
{
    while (true) {
        $lock = $adapter->take($name, $ttl);
        $passed = now() - $since;
        if ($lock !== null) {
            return [$lock, $passed];
        }
        must($passed < $limit, sprintf('still refused after %.1f s', $passed));
        pause(0.05);
    }
}

/** The next owner gets the lock after the promised time, not before. */
function must_pass_on(
    Adapter $adapter,
    string $name,
    float $since,
    float $promised,
    ?float $limit = null,
): array {
    [$lock, $passed] = granted_after($adapter, $name, 5, $since, $limit ?? $promised + SLACK);
    must($passed >= $promised, sprintf('granted to another after %.3f s of %.0f s', $passed, $promised));
    return $lock;
}

final class Checks
{
    /** @param Closure(int): Adapter $connect */
    public function __construct(
        private readonly Adapter $mine,
        private readonly Adapter $other,
        private readonly Closure $connect,
    ) {}

    public function lock(): void
    {
        $name = fresh('lock');
        for ($time = 0; $time < 3; $time++) {
            must($this->mine->release(taken($this->mine, $name, 5)), 'its release was refused');
        }
    }

    public function contended_is_refused(): void
    {
        $name = fresh('refused');
        $lock = taken($this->mine, $name, 5);
        for ($time = 0; $time < 3; $time++) {
            must($this->other->take($name, 5) === null, 'two hold it');
        }
        must($this->mine->release($lock), 'its release was refused');
        must($this->other->release(taken($this->other, $name, 5)), 'its release was refused');
    }

    /** The daemon's own command waits, over the socket of another process. */
    public function contended_waits(): void
    {
        $name = fresh('waits');
        $lock = taken($this->mine, $name, 20);
        [$ours, $its] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $child = pcntl_fork();
        if ($child === 0) {
            // Its own connection: the parent's is the parent's.
            $adapter = ($this->connect)(port('LOCKD_PORT'));
            pause(1);
            fwrite($its, sprintf("%.6f\n", now()));
            $adapter->release($lock);
            // Without what the parent is to do at its end.
            posix_kill(posix_getpid(), SIGKILL);
        }
        $got = $this->other->command('LOCK', $name, 'WAIT', '15000', 'TTL', '5000', 'OWNER', 'me');
        $at = now();
        $released = (float) fgets($ours);
        pcntl_waitpid($child, $_);
        must(is_array($got) && $got[1] === 'me', 'the waiting client got nothing');
        must($at >= $released, 'granted before the release');
        must($at < $released + SLACK, sprintf('granted %.1f s after the release', $at - $released));
        must($this->other->release([$name, 'me']), 'its release was refused');
    }

    public function extend(): void
    {
        $name = fresh('extend');
        $lock = taken($this->mine, $name, 3);
        pause(1);
        $since = now();
        must($this->mine->extend($lock, 4), 'the extension was refused');
        must_pass_on($this->other, $name, $since, 4);
    }

    public function expiry(): void
    {
        $name = fresh('expiry');
        $since = now();
        taken($this->mine, $name, 2);
        must_pass_on($this->other, $name, $since, 2);
    }

    public function stranger_releases_nothing(): void
    {
        $name = fresh('stranger');
        $lock = taken($this->mine, $name, 10);
        must(!$this->other->release([$name, 'another']), 'a stranger released it');
        must($this->other->take($name, 5) === null, "a stranger's release set it free");
        must($this->mine->release($lock), 'its owner could not release it any more');
    }

    public function expired_release_is_harmless(): void
    {
        $name = fresh('late-release');
        $since = now();
        $lock = taken($this->mine, $name, 1);
        $second = must_pass_on($this->other, $name, $since, 1);
        must(!$this->mine->release($lock), 'the release of an expired lock succeeded');
        must($this->mine->take($name, 5) === null, "a late release set another's lock free");
        must($this->other->release($second), 'the second owner could not release it');
    }

    public function expired_is_not_revived(): void
    {
        $name = fresh('revive');
        $lock = taken($this->mine, $name, 1);
        pause(1.5);
        must(!$this->mine->extend($lock, 5), 'an expired lock was extended');
        $second = $this->other->take($name, 5);
        must($second !== null, 'an expired lock is still taken');
        must(!$this->mine->extend($lock, 5), 'an expired lock of another was extended');
        must($this->other->release($second), 'the second owner could not release it');
    }

    public function extends_do_not_add_up(): void
    {
        $name = fresh('add-up');
        $lock = taken($this->mine, $name, 3);
        for ($time = 0; $time < 5; $time++) {
            $since = now();
            must($this->mine->extend($lock, 3), 'the extension was refused');
        }
        must_pass_on($this->other, $name, $since, 3);
    }

    public function extend_with_0_keeps_the_lock(): void
    {
        $name = fresh('zero');
        $lock = taken($this->mine, $name, 5);
        must(!$this->mine->extend($lock, 0), 'an extension by nothing succeeded');
        must($this->other->take($name, 5) === null, 'an extension by nothing set it free');
        must($this->mine->release($lock), 'its release was refused');
    }

    public function reconnect(): void
    {
        $relay = port('LOCKD_RELAY_PORT') ?: throw new Skipped('LOCKD_RELAY_PORT is not set');
        [$name, $mine] = [fresh('reconnect'), ($this->connect)($relay)];
        $lock = taken($mine, $name, 10);
        control('cut');
        must($this->other->take($name, 5) === null, 'the lock ended with its connection');
        $released = retried(fn() => $mine->release($lock));
        must($released, 'its owner could not release it over a new connection');
        must($this->other->release(taken($this->other, $name, 5)), 'its release was refused');
    }

    public function killed_daemon_keeps_promises(): void
    {
        $name = fresh('killed');
        $since = now();
        $lock = taken($this->mine, $name, 4);
        control('kill', '1');
        try {
            $got = attempt(fn() => $this->mine->take(fresh('down'), 5));
            must($got === null || $got instanceof Exception, 'granted without a daemon');
            must(attempt(fn() => $this->mine->release($lock)) !== true, 'released without a daemon');
        } finally {
            control('start', '1');
        }
        retried(fn() => $this->other->take(fresh('warm'), 5));
        $second = must_pass_on($this->other, $name, $since, 4, ROWS_MAX);
        must($this->other->release($second), 'its release was refused');
    }

    public function next_daemon_releases(): void
    {
        $name = fresh('adopted');
        $lock = taken($this->mine, $name, 20);
        control('kill', '1');
        control('start', '1');
        retried(fn() => $this->mine->take(fresh('warm'), 5));
        $got = retried(fn() => $this->other->take($name, 5));
        must($got === null, 'the next daemon granted it to another');
        must($this->mine->release($lock), 'the next daemon did not release it');
        $second = must_pass_on($this->other, $name, now(), 0);
        must($this->other->release($second), 'its release was refused');
    }

    /** As docs/daemon.md has it for PHP. */
    public function own_commands(): void
    {
        $name = fresh('own');
        $held = $this->mine->command('LOCK', $name, 'TTL', '10000', 'FENCE');
        must(is_array($held) && count($held) === 6, 'the answer was ' . json_encode($held));
        [, $owner, , $token] = $held;
        must(is_int($token), 'it has no token');
        must($this->other->take($name, 5) === null, 'two hold it');
        must($this->mine->command('HELD', $name, $owner) > 0, 'it is not held');
        must($this->mine->command('UNLOCK', $name, $owner) === 1, 'its release was refused');
        must($this->other->release(taken($this->other, $name, 5)), 'its release was refused');
    }
}

function take_turns(string $client, Adapter $adapter, int $seconds): void
{
    [$ttl, $names] = [2.0, explode(' ', getenv('LOCKD_NAMES'))];
    [$end, $log] = [now() + $seconds, fopen(getenv('LOCKD_LOG'), 'w')];
    while (now() < $end) {
        [$name, $asked] = [$names[array_rand($names)], hrtime(true)];
        $lock = attempt(fn() => $adapter->take($name, $ttl));
        $begun = hrtime(true);
        if ($lock === null || $lock instanceof Exception) {
            pause(random_int(1_000, 20_000) / 1e6);
            continue;
        }
        // Some use all of their time, until whose end no other owner may have the lock.
        if (random_int(0, 299) === 0) {
            pause(max(0, ($asked + $ttl * 1e9 - $begun) / 1e9));
        }
        $ended = (int) min(hrtime(true), $asked + $ttl * 1e9);
        if ($begun < $ended) {
            fwrite($log, "$begun $ended $client $name\n");
        }
        attempt(fn() => $adapter->release($lock));
        pause(random_int(0, 5_000) / 1e6);
    }
}

/**
 * Runs all checks with a client, and ends the program.
 *
 * @param Closure(int): Adapter $connect
 */
function run(string $client, Closure $connect): never
{
    $port = port('LOCKD_PORT') ?: 6380;
    if ($seconds = port('LOCKD_TURNS')) {
        take_turns($client, $connect($port), $seconds);
        exit(0);
    }
    $checks = new Checks($connect($port), $connect($port), $connect);
    $only = array_filter(explode(' ', getenv('LOCKD_CHECKS') ?: ''));
    $is_failed = false;
    foreach (array_diff(get_class_methods($checks), ['__construct']) as $check) {
        if ($only && !in_array($check, $only, true)) {
            continue;
        }
        try {
            $checks->$check();
            echo "ok $client $check\n";
        } catch (Skipped $why) {
            echo "skip $client $check: {$why->getMessage()}\n";
        } catch (Throwable $error) {
            $is_failed = true;
            $why = $error instanceof Failed ? $error->getMessage() : (string) $error;
            echo "not ok $client $check: ", str_replace("\n", ' ', $why), "\n";
        }
    }
    exit($is_failed ? 1 : 0);
}
