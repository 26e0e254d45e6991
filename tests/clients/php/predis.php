<?php
// Predis, in PHP alone: SET with NX and PX, and the scripts that its users write.

declare(strict_types=1);

require 'Predis/autoload.php';
require __DIR__ . '/checks.php';

final class Predis implements Adapter
{
    private readonly Predis\Client $client;

    public function __construct(int $port)
    {
        // It waits longer than the longest wait of the checks.
        $this->client = new Predis\Client(['host' => HOST, 'port' => $port, 'read_write_timeout' => 30]);
    }

    public function take(string $name, float $ttl): ?array
    {
        $owner = owner();
        $answer = $this->client->set($name, $owner, 'PX', milliseconds($ttl), 'NX');
        return (string) $answer === 'OK' ? [$name, $owner] : null;
    }

    public function extend(array $lock, float $ttl): bool
    {
        return $this->client->eval(EXTEND, 1, ...[...$lock, milliseconds($ttl)]) === 1;
    }

    public function release(array $lock): bool
    {
        return $this->client->eval(RELEASE, 1, ...$lock) === 1;
    }

    public function command(string ...$words): mixed
    {
        $answer = $this->client->executeRaw($words, $is_error);
        return $is_error ? throw new RuntimeException($answer) : $answer;
    }
}

run('predis', fn(int $port) => new Predis($port));
