-- KEYS: the record. ARGV: the epoch and the view that it must have, the new view and its members.
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'view')
if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then
  return {'other', '0'}
end
redis.call('HSET', KEYS[1], 'view', ARGV[3], 'members', ARGV[4])
return {'ok', '0'}
