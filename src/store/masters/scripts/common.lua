-- Each call begins with the server's clock, and with the view that the client goes by and the epoch
-- that this server has in it. A server that was made to follow another has that one's record.
-- A cell is 20 digits of stamp, L (lives) or D (deleted), 15 digits of expiry in ms, and content.
local time = redis.call('TIME')
local micros = time[1] .. string.format('%06d', time[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local member = redis.call('HMGET', KEYS[1], 'view', 'usable_from', 'epoch')
if not member[1] then
  return {'absent', micros}
end
if member[1] .. ' ' .. member[3] ~= ARGV[1] then
  return {'view', micros}
end
if now < tonumber(member[2]) then
  return {'waits', micros}
end
-- Lua compares strings by the server's locale, so digits are compared as numbers.
local function higher(one, other)
  local a, b = tonumber(string.sub(one, 1, 10)), tonumber(string.sub(other, 1, 10))
  if a ~= b then
    return a > b
  end
  return tonumber(string.sub(one, 11, 20)) > tonumber(string.sub(other, 11, 20))
end
