<?php
// phpredis, the extension: SET with NX and PX, and the scripts that its users write.

declare(strict_types=1);

require __DIR__ . '/checks.php';

final class PhpRedis implements Adapter
{
    private Redis $client;

    public function __construct(private readonly int $port)
    {
        $this->connect();
    }

    private function connect(): void
    {
        $this->client = new Redis();
        // It waits longer than the longest wait of the checks.
        $this->client->connect(HOST, $this->port, 5, null, 100, 30);
    }

    public function take(string $name, float $ttl): ?array
    {
        $owner = owner();
        $options = ['nx', 'px' => milliseconds($ttl)];
        $answer = $this->call(fn() => $this->client->set($name, $owner, $options));
        return $answer === true ? [$name, $owner] : null;
    }

    public function extend(array $lock, float $ttl): bool
    {
        return $this->script(EXTEND, [...$lock, milliseconds($ttl)]) === 1;
    }

    public function release(array $lock): bool
    {
        return $this->script(RELEASE, $lock) === 1;
    }

    public function command(string ...$words): mixed
    {
        return $this->call(fn() => $this->client->rawCommand(...$words));
    }

    private function script(string $text, array $arguments): mixed
    {
        // Most programs send the digest first.
        try {
            return $this->call(fn() => $this->client->evalSha(sha1($text), $arguments, 1));
        } catch (RedisException $error) {
            if (!str_starts_with($error->getMessage(), 'NOSCRIPT')) {
                throw $error;
            }
            return $this->call(fn() => $this->client->eval($text, $arguments, 1));
        }
    }

    private function call(Closure $call): mixed
    {
        if (!$this->client->isConnected()) {
            // One that failed to connect again does not try any more.
            $this->connect();
        }
        $answer = $call();
        // The client returns false for an error.
        $error = $this->client->getLastError();
        $this->client->clearLastError();
        return $error === null ? $answer : throw new RedisException($error);
    }
}

run('phpredis', fn(int $port) => new PhpRedis($port));
