-- ARGV: view and epoch, fields. Without fields, all of each key.
local reply = {'ok', micros}
if #ARGV == 1 then
  for i = 2, #KEYS do
    reply[#reply + 1] = redis.call('HGETALL', KEYS[i])
  end
  return reply
end
local found = {}
for i = 2, #ARGV do
  local value = redis.call('HGET', KEYS[2], ARGV[i])
  if value then
    found[#found + 1] = ARGV[i]
    found[#found + 1] = value
  end
end
reply[3] = found
return reply
