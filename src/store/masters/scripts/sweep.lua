-- ARGV: as above, then the horizon and the contenders that are spared, with commas between.
local horizon, spared = ARGV[4], ARGV[5]
local function is_spared(contender, by)
  return string.find(',' .. by .. ',', ',' .. contender .. ',', 1, true)
end
local all = redis.call('HGETALL', KEYS[2])
local sweeps = ''
for i = 1, #all, 2 do
  local contender = string.match(all[i], '^e/(.*)$')
  if contender and not is_spared(contender, spared) and not higher(all[i + 1], horizon) then
    redis.call('HDEL', KEYS[2], all[i])
  end
  if all[i] == 'sweeps' then
    sweeps = all[i + 1]
  end
end
-- Earlier sweeps stay while they hide what this one does not.
local kept = ''
for earlier, ends, by in string.gmatch(sweeps, '(%d+) (%d+) ([^;]*);') do
  local is_covered = not higher(earlier, horizon)
  for contender in string.gmatch(spared, '[^,]+') do
    is_covered = is_covered and is_spared(contender, by)
  end
  if not is_covered and now <= tonumber(ends) then
    kept = kept .. earlier .. ' ' .. ends .. ' ' .. by .. ';'
  end
end
local ends = string.format('%.0f', now + keep)
redis.call('HSET', KEYS[2], 'sweeps', kept .. horizon .. ' ' .. ends .. ' ' .. spared .. ';')
retain(now + keep)
return {'ok', micros}
