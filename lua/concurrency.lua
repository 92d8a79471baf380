-- Concurrency: permits in flight, counted for each node in whole numbers, so that what is said twice counts once.
--
-- KEYS  the key of one window: a hash of node to '<dd': permits it holds, when they lapse (microseconds)
-- ARGV  none of its own: the part of an operation (limit, cost)
-- hold(key, part, node, held, lasts_us, now_us): the node holds `held` permits and asks for `part.cost` more
-- returns wait_us (0: granted, -1: never, else a second), remaining, reset_us
--
-- A node says all it holds each time, and again before that lapses: what a lost reply left wrong is right again then,
-- and the permits of a node that is no more lapse. A cost of 0 gives back, or only says that it is still there.

local function hold(key, part, node, held, lasts_us, now_us)
  local others, lapsed = 0, {}
  local entries = redis.call('HGETALL', key)
  for index = 1, #entries, 2 do
    local count, until_us = struct.unpack('<dd', entries[index + 1])
    if until_us <= now_us then
      lapsed[#lapsed + 1] = entries[index]
    elseif entries[index] ~= node then
      others = others + count
    end
  end
  if #lapsed > 0 then redis.call('HDEL', key, unpack(lapsed)) end
  local told = { wait_us = 0 }
  local wanted = held + part.cost
  if part.cost > part.limit then
    told.wait_us, wanted = -1, held
  elseif part.cost > 0 and others + wanted > part.limit then
    told.wait_us, wanted = 1e6, held
  end
  if wanted > 0 then
    redis.call('HSET', key, node, struct.pack('<dd', wanted, now_us + lasts_us))
    -- Every node says anew before its own lapses, so the key outlives the longest of them.
    local ttl_ms = redis.call('PTTL', key)
    if ttl_ms * 1000 < lasts_us then redis.call('PEXPIRE', key, lasting_ms(lasts_us)) end
  else
    redis.call('HDEL', key, node)
  end
  told.remaining = math.max(0, part.limit - others - wanted)
  told.reset_us = 0
  if others + wanted > 0 then told.reset_us = 1e6 end
  return told
end
