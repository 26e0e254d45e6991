"""redlock-py."""

import logging
import time

from redlock import Lock, Redlock

from checks import HOST, finish, run


class Adapter:
    def __init__(self, ports):
        servers = [{"host": HOST, "port": port, "db": 0} for port in ports]
        self.redlock = Redlock(servers, retry_count=1)

    def over(self, ports):
        return Adapter(ports)

    def take(self, name, ttl):
        return self.redlock.lock(name, int(ttl * 1000)) or None

    def wait(self, name, ttl, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if lock := self.take(name, ttl):
                return lock
            time.sleep(0.1)
        return None

    def extend(self, _lock, _ttl):
        return None

    def release(self, lock):
        # It does not say whether the lock was held: the reply of its script does.
        replies = []
        for server in self.redlock.servers:
            replies.append(server.eval(self.redlock.unlock_script, 1, lock.resource, lock.key))
        self.redlock.unlock(lock)
        return all(replies)

    def forge(self, name):
        return Lock(0, name, "another")


# It logs what it can not reach.
logging.disable()
finish(run("redlock-py", lambda port: Adapter([port])))
