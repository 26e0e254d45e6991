-- The reply to a read: the fields that these arguments name, or all of each key if there are none.
local function show(first, last)
  local reply = {'ok', micros}
  if last < first then
    for i = 2, #KEYS do
      reply[#reply + 1] = redis.call('HGETALL', KEYS[i])
    end
    return reply
  end
  local found = {}
  for i = first, last do
    local value = redis.call('HGET', KEYS[2], ARGV[i])
    if value then
      found[#found + 1] = ARGV[i]
      found[#found + 1] = value
    end
  end
  reply[3] = found
  return reply
end
