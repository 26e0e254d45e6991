local FOREVER = 999999999999999
local function larger(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end
-- The higher stamp wins, then a delete, then the larger content.
local function beats(stamp, kind, content, other)
  if string.sub(other, 1, 20) ~= stamp then
    return higher(stamp, other)
  end
  if string.sub(other, 21, 21) ~= kind then
    return kind == 'D'
  end
  return larger(content, string.sub(other, 37))
end
local sweeps = redis.call('HGET', KEYS[2], 'sweeps')
local function is_swept(field, stamp)
  local contender = string.match(field, '^e/(.*)$')
  if not sweeps or not contender then
    return false
  end
  for horizon, spared in string.gmatch(sweeps, '(%d+) %d+ ([^;]*);') do
    local is_spared = string.find(',' .. spared .. ',', ',' .. contender .. ',', 1, true)
    if not is_spared and not higher(stamp, horizon) then
      return true
    end
  end
  return false
end
-- Dead cells of clients that are gone would otherwise stay while the object is in use.
local function prune()
  if redis.call('HLEN', KEYS[2]) <= 64 then
    return
  end
  local due = redis.call('HGET', KEYS[2], 'prune')
  if due and now < tonumber(due) then
    return
  end
  redis.call('HSET', KEYS[2], 'prune', string.format('%.0f', now + 10000))
  local all = redis.call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if string.find(all[i], '/', 1, true) and tonumber(string.sub(all[i + 1], 22, 36)) + keep < now then
      redis.call('HDEL', KEYS[2], all[i])
    end
  end
end
-- Cells follow from this argument on: each has field, stamp, L or D, ms to live (-1: without end) and
-- content. With keep 0, key and cells have no end.
local function apply(first)
  local last = 0
  for i = first, #ARGV, 5 do
    local field, stamp, kind, ttl, content = unpack(ARGV, i, i + 4)
    local old = redis.call('HGET', KEYS[2], field)
    if not is_swept(field, stamp) and (not old or beats(stamp, kind, content, old)) then
      ttl = tonumber(ttl)
      local ends = ttl < 0 and FOREVER or now + ttl
      redis.call('HSET', KEYS[2], field, stamp .. kind .. string.format('%015.0f', ends) .. content)
      last = math.max(last, ends)
    end
  end
  if last == FOREVER then
    redis.call('PERSIST', KEYS[2])
  elseif last > 0 and keep > 0 then
    retain(last + keep)
  end
  if last > 0 and keep > 0 then
    prune()
  end
end
