-- KEYS: the record. ARGV: the epoch and the run id that it must have, then the new run id and
-- whether what the server acknowledges survives a crash.
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'run_id')
if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then
  return {'other', '0'}
end
redis.call('HSET', KEYS[1], 'run_id', ARGV[3], 'durable', ARGV[4])
return {'ok', '0'}
