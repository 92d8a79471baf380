-- Concurrency: permits in flight. Each node reports the total that it holds, so a report that arrives twice counts
-- once.
--
-- KEYS  the key of one window, by its index: a hash of node to '<dd': permits it holds, when they lapse (microseconds)
-- ARGV  none of its own: a plan (limit)
-- hold(key, plan, cost, node, held, lasts_us): the node holds `held` permits and asks for `cost` more
-- free(key, plan, cost): returns what hold would return to a node without permits, and changes nothing
-- both return wait_us (0: granted, -1: never, otherwise a second), remaining, reset_us
--
-- A node reports its total each time, and again before the report lapses. So an error that a lost reply caused lasts
-- only until the next report, and the permits of a node that has died lapse. A cost of 0 returns permits, or only
-- renews the report.

-- How many permits an entry reports, and until when. An entry that cannot be read counts as none.
local function held_by(entry)
  if #entry ~= 16 then return 0, 0 end
  local count, until_us = unpack_from('<dd', entry)
  if is_count(count) and is_count(until_us) then return count, until_us end
  return 0, 0
end

local function hold(key, plan, cost, node, held, lasts_us)
  local name = KEYS[key]
  local others, lapsed = 0, {}
  local entries = redis.pcall('HGETALL', name)
  -- The key has another type. It is replaced as if no permit were held; the nodes soon report again what they hold.
  if entries.err then
    redis.call('DEL', name)
    entries, repaired = {}, repaired + 1
  end
  for index = 1, #entries, 2 do
    local count, until_us = held_by(entries[index + 1])
    if until_us <= now_us then
      lapsed[#lapsed + 1] = entries[index]
    elseif entries[index] ~= node then
      others = others + count
      -- Reported before the clock was set back: it lapses after its usual time from now.
      if until_us > now_us + 2 * lasts_us then
        redis.call('HSET', name, entries[index], pack('<dd', count, now_us + lasts_us))
      end
    end
  end
  if #lapsed > 0 then redis.call('HDEL', name, unpack(lapsed)) end
  local wait_us, wanted = 0, held + cost
  if cost > plan.limit then
    wait_us, wanted = -1, held
  elseif cost > 0 and others + wanted > plan.limit then
    wait_us, wanted = 1e6, held
  end
  if wanted > 0 then
    redis.call('HSET', name, node, pack('<dd', wanted, now_us + lasts_us))
    -- The key must outlive the entry that lapses last.
    local ttl_ms = redis.call('PTTL', name)
    if ttl_ms * 1000 < lasts_us then redis.call('PEXPIRE', name, lasting_ms(lasts_us)) end
  else
    redis.call('HDEL', name, node)
  end
  local reset_us = 0
  if others + wanted > 0 then reset_us = 1e6 end
  return wait_us, max(0, plan.limit - others - wanted), reset_us
end

local function free(key, plan, cost)
  local used = 0
  local entries = redis.pcall('HGETALL', KEYS[key])
  if entries.err then entries = {} end
  for index = 2, #entries, 2 do
    local count, until_us = held_by(entries[index])
    if until_us > now_us then used = used + count end
  end
  local wait_us, reset_us = 0, 0
  if cost > plan.limit then
    wait_us = -1
  elseif used + cost > plan.limit then
    wait_us = 1e6
  else
    used = used + cost
  end
  if used > 0 then reset_us = 1e6 end
  return wait_us, max(0, plan.limit - used), reset_us
end

return hold, free
