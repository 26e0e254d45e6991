"""The Redlock of pottery."""

from pottery import ReleaseUnlockedLock, Redlock
from pottery.exceptions import ExtendUnlockedLock, QuorumIsImpossible, TooManyExtensions
from redis import Redis

from checks import HOST, finish, fresh, must, run, taken


class Adapter:
    def __init__(self, ports):
        self.masters = {Redis(host=HOST, port=port) for port in ports}

    def over(self, ports):
        return Adapter(ports)

    def lock(self, name, ttl):
        # It puts this before all names.
        return Redlock(
            key=name.removeprefix("redlock:"), masters=self.masters, auto_release_time=ttl, num_extensions=100
        )

    def take(self, name, ttl):
        lock = self.lock(name, ttl)
        return lock if lock.acquire(blocking=False) else None

    def wait(self, name, ttl, seconds):
        lock = self.lock(name, ttl)
        return lock if lock.acquire(timeout=seconds) else None

    def extend(self, lock, ttl):
        # It extends by the time that the lock was made with.
        lock.auto_release_time = ttl
        try:
            lock.extend()
            return True
        except ExtendUnlockedLock:
            return False

    def release(self, lock):
        try:
            lock.release()
            return True
        except ReleaseUnlockedLock:
            return False

    def forge(self, name):
        lock = self.lock(name, 5)
        lock._uuid = "another"
        return lock


def owner_sees_the_remaining_time(checks):
    lock = taken(checks.mine, fresh("left"), 5)
    left = lock.locked()
    must(0 < left <= 5, f"{left} s are left of 5 s")
    checks.mine.release(lock)
    must(not lock.locked(), "time is left after the release")


finish(run("pottery", lambda port: Adapter([port]), [owner_sees_the_remaining_time]))
