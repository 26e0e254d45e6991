-- ARGV: view and epoch, the last ms at which to begin, for how many ms dead cells are kept.
-- What a server receives late, such as after it was stopped, is not applied.
if now > tonumber(ARGV[2]) then
  return {'late', micros}
end
local keep = tonumber(ARGV[3])
-- A mark has no end, and neither has its key.
local function retain(last)
  local left = redis.call('PTTL', KEYS[2])
  if left == -1 and redis.call('HEXISTS', KEYS[2], 'mark') == 1 then
    return
  end
  if left < last - now then
    redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', last))
  end
end
