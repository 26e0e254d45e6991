"""The Lock of redis-py, over RESP2 and RESP3, and that of its asyncio client."""

import asyncio
import time

import redis
from redis.exceptions import LockError

from checks import HOST, PORT, attempt, finish, fresh, must, must_pass_on, run, taken


class Adapter:
    def __init__(self, port, protocol):
        self.redis = redis.Redis(host=HOST, port=port, protocol=protocol)

    def take(self, name, ttl):
        lock = self.redis.lock(name, timeout=ttl, thread_local=False)
        return lock if lock.acquire(blocking=False) else None

    def wait(self, name, ttl, seconds):
        lock = self.redis.lock(name, timeout=ttl, thread_local=False)
        return lock if lock.acquire(blocking_timeout=seconds) else None

    def extend(self, lock, ttl):
        try:
            return lock.extend(ttl, replace_ttl=True)
        except LockError:
            return False

    def release(self, lock):
        # A lock whose release failed has forgotten its token.
        token = lock.local.token
        try:
            lock.release()
            return True
        except LockError:
            return False
        except redis.ConnectionError:
            lock.local.token = token
            raise

    def forge(self, name):
        lock = self.redis.lock(name, timeout=5)
        lock.local.token = b"another"
        return lock


def owner_is_seen(checks):
    lock = taken(checks.mine, fresh("seen"), 5)
    must(lock.locked() and lock.owned(), "its owner does not see that it has it")
    checks.mine.release(lock)
    must(not lock.locked(), "it seems to be held after its release")


def extend_with_0_keeps_the_lock(checks):
    name = fresh("zero")
    lock = taken(checks.mine, name, 5)
    must(not checks.mine.extend(lock, 0), "an extension by nothing succeeded")
    must(checks.other.take(name, 5) is None, "an extension by nothing set it free")
    must(checks.mine.release(lock), "its release was refused")


def extend_adds_what_is_asked(checks):
    name, since = fresh("adds"), time.monotonic()
    lock = taken(checks.mine, name, 2)
    must(lock.extend(1) and lock.extend(1), "the extension was refused")
    must_pass_on(checks.other, name, since, 4)


def extend_beyond_the_ttl_of_rows(checks):
    lock = taken(checks.mine, fresh("far"), 5)
    must(checks.mine.extend(lock, 600), "the extension was refused")
    must(checks.mine.release(lock), "its release was refused")


def reacquire(checks):
    name = fresh("reacquire")
    lock = taken(checks.mine, name, 3)
    time.sleep(1)
    since = time.monotonic()
    must(lock.reacquire(), "it was refused")
    must_pass_on(checks.other, name, since, 3)
    must(isinstance(attempt(lock.reacquire), LockError), "an expired lock was taken again")


def lock_without_an_end_is_refused_over_tcp(checks):
    got = attempt(lambda: checks.mine.redis.lock(fresh("endless")).acquire(blocking=False))
    must(isinstance(got, redis.ResponseError), f"the answer was {got!r}")


def asyncio_client(_checks):
    async def use():
        client = redis.asyncio.Redis(host=HOST, port=PORT)
        name = fresh("asyncio")
        lock, other = client.lock(name, timeout=5), client.lock(name, timeout=5)
        must(await lock.acquire(), "a free lock was refused")
        must(not await other.acquire(blocking=False), "two hold it")
        must(await lock.extend(5) and await lock.owned(), "it was not extended")
        await lock.release()
        must(await other.acquire(blocking=False), "a free lock was refused")
        await other.release()
        await client.aclose()

    asyncio.run(use())


MORE = [
    owner_is_seen,
    extend_with_0_keeps_the_lock,
    extend_adds_what_is_asked,
    extend_beyond_the_ttl_of_rows,
    reacquire,
    lock_without_an_end_is_refused_over_tcp,
    asyncio_client,
]

finish(
    *(
        run(f"redis-py-resp{protocol}", lambda port, it=protocol: Adapter(port, it), MORE)
        for protocol in (2, 3)
    )
)
