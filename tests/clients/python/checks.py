"""What the Python programs share: named checks, and the daemons they talk to.

A program gives an adapter of its client to `run`. An adapter has
  take(name, ttl)     -> a held lock, or None if it is refused
  wait(name, ttl, s)  -> a held lock, or None after s seconds
  extend(lock, ttl)   -> whether the lock was extended; None if the client can't
  release(lock)       -> whether it was released
  forge(name)         -> a lock object of another owner, which holds nothing

With LOCKD_TURNS, `run` makes no checks but takes the locks LOCKD_NAMES in turn with others for so
many seconds, and writes to LOCKD_LOG from when to when it held which.
"""

import os
import random
import subprocess
import sys
import threading
import time
import traceback
import uuid

HOST = "127.0.0.1"
PORT = int(os.environ.get("LOCKD_PORT", "6380"))
PORTS = [int(port) for port in os.environ.get("LOCKD_PORTS", "").split()]
RELAY_PORT = int(os.environ.get("LOCKD_RELAY_PORT", "0"))
CONTROL = os.environ.get("LOCKD_CONTROL")

# How late a lock may pass on: the machine may be busy.
SLACK = 8.0
# Rows of a daemon that was killed live for at most this long.
ROWS_MAX = 45.0


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def must(condition, why):
    if not condition:
        raise Failed(why)


def control(*words):
    if CONTROL is None:
        raise Skipped("LOCKD_CONTROL is not set")
    subprocess.run([CONTROL, *words], check=True)


def fresh(what):
    return f"clients::{what}::{uuid.uuid4().hex[:12]}"


def granted_after(adapter, name, ttl, since, limit):
    """Tries until the lock is granted: the lock, and the time since `since`."""
    while True:
        lock = adapter.take(name, ttl)
        passed = time.monotonic() - since
        if lock is not None:
            return lock, passed
        must(passed < limit, f"still refused after {passed:.1f} s")
        time.sleep(0.05)


def must_pass_on(adapter, name, since, promised, limit=None):
    """The next owner gets the lock after the promised time, not before."""
    limit = promised + SLACK if limit is None else limit
    lock, passed = granted_after(adapter, name, 5.0, since, limit)
    must(passed >= promised, f"granted to another after {passed:.3f} s of {promised} s")
    return lock


def taken(adapter, name, ttl):
    lock = adapter.take(name, ttl)
    must(lock is not None, "a free lock was refused")
    return lock


class Checks:
    def __init__(self, mine, other, connect):
        self.mine, self.other, self.connect = mine, other, connect

    def lock(self):
        name = fresh("lock")
        for _ in range(3):
            lock = taken(self.mine, name, 5)
            must(self.mine.release(lock), "its release was refused")

    def contended_is_refused(self):
        name = fresh("refused")
        lock = taken(self.mine, name, 5)
        for _ in range(3):
            must(self.other.take(name, 5) is None, "two hold it")
        must(self.mine.release(lock), "its release was refused")
        must(self.other.release(taken(self.other, name, 5)), "its release was refused")

    def contended_waits(self):
        name = fresh("waits")
        lock = taken(self.mine, name, 20)
        released = []

        def release():
            time.sleep(1)
            released.append(time.monotonic())
            self.mine.release(lock)

        thread = threading.Thread(target=release)
        thread.start()
        second = self.other.wait(name, 5, 15)
        at = time.monotonic()
        thread.join()
        must(second is not None, "the waiting client got nothing")
        must(at >= released[0], "granted before the release")
        must(at < released[0] + SLACK, f"granted {at - released[0]:.1f} s after the release")
        must(self.other.release(second), "its release was refused")

    def wait_ends(self):
        name = fresh("wait-ends")
        lock = taken(self.mine, name, 10)
        begun = time.monotonic()
        must(self.other.wait(name, 5, 1) is None, "two hold it")
        must(time.monotonic() < begun + SLACK, "it waited too long")
        self.mine.release(lock)

    def extend(self):
        name = fresh("extend")
        lock = taken(self.mine, name, 3)
        time.sleep(1)
        since = time.monotonic()
        extended = self.mine.extend(lock, 4)
        if extended is None:
            raise Skipped("the client can't extend")
        must(extended, "the extension was refused")
        must_pass_on(self.other, name, since, 4)

    def expiry(self):
        name = fresh("expiry")
        since = time.monotonic()
        taken(self.mine, name, 2)
        must_pass_on(self.other, name, since, 2)

    def stranger_releases_nothing(self):
        name = fresh("stranger")
        lock = taken(self.mine, name, 10)
        must(not self.other.release(self.other.forge(name)), "a stranger released it")
        must(self.other.take(name, 5) is None, "a stranger's release set it free")
        must(self.mine.release(lock), "its owner could not release it any more")

    def expired_release_is_harmless(self):
        name = fresh("late-release")
        since = time.monotonic()
        lock = taken(self.mine, name, 1)
        second = must_pass_on(self.other, name, since, 1)
        must(not self.mine.release(lock), "the release of an expired lock succeeded")
        must(self.mine.take(name, 5) is None, "a late release set another's lock free")
        must(self.other.release(second), "the second owner could not release it")

    def expired_is_not_revived(self):
        name = fresh("revive")
        lock = taken(self.mine, name, 1)
        time.sleep(1.5)
        extended = self.mine.extend(lock, 5)
        if extended is None:
            raise Skipped("the client can't extend")
        must(not extended, "an expired lock was extended")
        second = self.other.take(name, 5)
        must(second is not None, "an expired lock is still taken")
        must(not self.mine.extend(lock, 5), "an expired lock of another was extended")
        must(self.other.release(second), "the second owner could not release it")

    def extends_do_not_add_up(self):
        name = fresh("add-up")
        lock = taken(self.mine, name, 3)
        for _ in range(5):
            since = time.monotonic()
            extended = self.mine.extend(lock, 3)
            if extended is None:
                raise Skipped("the client can't extend")
            must(extended, "the extension was refused")
        _, passed = granted_after(self.other, name, 5, since, 3 + SLACK)
        must(3 <= passed < 3 + SLACK, f"five times 3 s ended after {passed:.1f} s")

    def never_granted_expired(self):
        name = fresh("fresh")
        for _ in range(5):
            taken(self.mine, name, 1)
            second = self.other.wait(name, 3, 15)
            must(second is not None, "the waiting client got nothing")
            must(self.mine.take(name, 1) is None, "a lock was granted that had expired already")
            must(self.other.release(second), "a lock was granted that had expired already")

    def reconnect(self):
        if not RELAY_PORT:
            raise Skipped("LOCKD_RELAY_PORT is not set")
        name, mine = fresh("reconnect"), self.connect(RELAY_PORT)
        lock = taken(mine, name, 10)
        control("cut")
        must(self.other.take(name, 5) is None, "the lock ended with its connection")
        released = retried(lambda: mine.release(lock))
        must(released, "its owner could not release it over a new connection")
        must(self.other.release(taken(self.other, name, 5)), "its release was refused")

    def killed_daemon_keeps_promises(self):
        name = fresh("killed")
        since = time.monotonic()
        taken(self.mine, name, 4)
        # redis-py tries for seconds to reach a daemon: the lock would be over before the restart.
        control("kill", "1")
        control("start", "1")
        retried(lambda: self.other.take(fresh("warm"), 5))
        second = must_pass_on(self.other, name, since, 4, ROWS_MAX)
        must(self.other.release(second), "its release was refused")

    def next_daemon_releases(self):
        name = fresh("adopted")
        lock = taken(self.mine, name, 20)
        control("kill", "1")
        control("start", "1")
        retried(lambda: self.mine.take(fresh("warm"), 5))
        got = retried(lambda: self.other.take(name, 5))
        must(got is None, "the next daemon granted it to another")
        must(self.mine.release(lock), "the next daemon did not release it")
        second, _ = granted_after(self.other, name, 5, time.monotonic(), SLACK)
        must(self.other.release(second), "its release was refused")

    def wait_outlasts_a_restart(self):
        """A client that waits while the daemon is killed gets an error, or the lock later."""
        name = fresh("waits-killed")
        since = time.monotonic()
        taken(self.mine, name, 4)
        result = []
        thread = threading.Thread(
            target=lambda: result.append(
                (attempt(lambda: self.other.wait(name, 5, 12)), time.monotonic())
            )
        )
        thread.start()
        time.sleep(0.5)
        control("kill", "1")
        control("start", "1")
        thread.join()
        got, at = result[0]
        if got is not None and not isinstance(got, Exception):
            must(at - since >= 4, f"granted to another after {at - since:.3f} s of 4 s")

    def three_daemons_as_masters(self):
        """Redlock over three daemons of one cluster: at most one holds it, and never a majority."""
        if not hasattr(self.mine, "over"):
            raise Skipped("the client has no majority")
        if len(PORTS) < 3:
            raise Skipped("there are no three daemons")
        one, two = self.mine.over(PORTS[:3]), self.mine.over(PORTS[:3])
        for _ in range(5):
            name, locks = fresh("masters"), []
            threads = [
                threading.Thread(target=lambda it=it: locks.append(attempt(lambda: it.take(name, 5))))
                for it in (one, two)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            held = [lock for lock in locks if lock and not isinstance(lock, Exception)]
            must(len(held) < 2, "two hold it")
            must(not held, "a majority of three daemons granted one lock")
        # What was granted by one of them was given back.
        lock, _ = granted_after(self.mine, name, 5, time.monotonic(), 5 + SLACK)
        must(self.mine.release(lock), "its release was refused")


def attempt(work):
    try:
        return work()
    except Exception as error:
        return error


def retried(work):
    """What it comes to once the client has connected again."""
    for _ in range(20):
        result = attempt(work)
        if not isinstance(result, Exception):
            return result
        time.sleep(0.25)
    raise result


def take_turns(client, adapter, seconds):
    ttl, names = 2.0, os.environ["LOCKD_NAMES"].split()
    ttl_ns = int(ttl * 1e9)
    end = time.monotonic() + seconds
    with open(os.environ["LOCKD_LOG"], "w", buffering=1) as log:
        while time.monotonic() < end:
            name = random.choice(names)
            asked = time.monotonic_ns()
            lock = attempt(lambda: adapter.take(name, ttl))
            begun = time.monotonic_ns()
            if lock is None or isinstance(lock, Exception):
                time.sleep(random.uniform(0.001, 0.02))
                continue
            # Some use all of their time, until whose end no other owner may have the lock.
            is_long = random.randrange(300) == 0
            if is_long:
                time.sleep(max(0, (asked + ttl_ns - begun) / 1e9))
            ended = min(time.monotonic_ns(), asked + ttl_ns)
            if begun < ended:
                log.write(f"{begun} {ended} {client} {name}\n")
            attempt(lambda: adapter.release(lock))
            time.sleep(random.uniform(0, 0.005))


ALL = [
    "lock",
    "contended_is_refused",
    "contended_waits",
    "wait_ends",
    "extend",
    "expiry",
    "stranger_releases_nothing",
    "expired_release_is_harmless",
    "expired_is_not_revived",
    "extends_do_not_add_up",
    "never_granted_expired",
    "reconnect",
    "killed_daemon_keeps_promises",
    "next_daemon_releases",
    "wait_outlasts_a_restart",
    "three_daemons_as_masters",
]


def run(client, connect, more=()):
    """Runs all checks with a client, and those of `more`, and ends the program.

    `connect` makes an adapter for a port.
    """
    if seconds := int(os.environ.get("LOCKD_TURNS", "0")):
        take_turns(client, connect(PORT), seconds)
        sys.exit()
    checks = Checks(connect(PORT), connect(PORT), connect)
    todo = [(name, getattr(checks, name)) for name in ALL]
    todo += [(check.__name__, lambda check=check: check(checks)) for check in more]
    only = os.environ.get("LOCKD_CHECKS", "").split()
    failed = False
    for name, check in todo:
        if only and name not in only:
            continue
        try:
            check()
            print(f"ok {client} {name}", flush=True)
        except Skipped as why:
            print(f"skip {client} {name}: {why}", flush=True)
        except Exception as error:
            failed = True
            if not isinstance(error, Failed):
                traceback.print_exc()
            why = str(error) if isinstance(error, Failed) else repr(error)
            print(f"not ok {client} {name}: {why}".replace("\n", " "), flush=True)
    return failed


def finish(*failed):
    sys.exit(1 if any(failed) else 0)
