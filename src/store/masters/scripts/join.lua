-- KEYS: the record, the registry. ARGV: the view that the record must have ('' if there is none),
-- for how many ms the server waits, the number of arguments that follow of the record (names and
-- values), these, and then names and values of the registry, which go where none is newer.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if (redis.call('HGET', KEYS[1], 'view') or '') ~= ARGV[1] then
  return {'other', '0'}
end
local record = 4 + tonumber(ARGV[3])
for i = record, #ARGV, 2 do
  local old = redis.call('HGET', KEYS[2], ARGV[i])
  local function part(value, first, last)
    return tonumber(string.sub(value, first, last))
  end
  local is_newer = not old or part(ARGV[i + 1], 1, 10) > part(old, 1, 10)
  if old and part(ARGV[i + 1], 1, 10) == part(old, 1, 10) then
    is_newer = part(ARGV[i + 1], 11, 20) > part(old, 11, 20)
  end
  if is_newer then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
redis.call('DEL', KEYS[1])
for i = 4, record - 1, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'usable_from', string.format('%.0f', now + tonumber(ARGV[2])))
return {'ok', '0'}
