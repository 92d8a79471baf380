-- Sliding log: the time of every unit, exact, and bounded by the limit.
--
-- KEYS  the key of one window, handed on by take.lua: a list of microseconds, one element a unit, the oldest first
-- ARGV  none of its own: the part of an operation (limit, period_ns)
-- returns the functions of an algorithm: open, told, spend, deny, debit, back, save (see take.lua)
--
-- A unit taken at t counts until just before t + period. A limit that changes finds the units as they are. What is
-- over is cut off with the next change; when a place comes free is one look into the list.

local sliding_log = {}

function sliding_log.open(key, now_us, part)
  local s = { key = key, now_us = now_us, limit = part.limit, period_us = math.ceil(part.period_ns / 1000), over = 0,
    pushed = 0, taken = nil }
  s.size = redis.call('LLEN', key)
  while s.over < s.size do
    local times = redis.call('LRANGE', key, s.over, s.over + 63)
    local over = 0
    for index = 1, #times do
      if times[index] + s.period_us > now_us then break end
      over = index
    end
    s.over = s.over + over
    if over < #times then break end
  end
  s.used = s.size - s.over
  return s
end

function sliding_log.told(s, cost)
  local told = { wait_us = 0, remaining = math.max(0, s.limit - s.used), reset_us = 0 }
  if s.pushed > 0 then
    told.reset_us = s.pushed_us + s.period_us - s.now_us
  elseif s.used > 0 then
    told.reset_us = redis.call('LINDEX', s.key, -1) + s.period_us - s.now_us
  end
  if cost > s.limit then
    told.wait_us = -1
  elseif cost > told.remaining then
    -- So many of the oldest have to be over first; those just counted are the newest.
    local index = s.over + s.used + cost - s.limit - 1
    local at_us = s.pushed_us
    if index < s.size then at_us = redis.call('LINDEX', s.key, index) end
    told.wait_us = at_us + s.period_us - s.now_us
  end
  return told
end

function sliding_log.spend(s, cost)
  -- In order even where the clock went back.
  local newest = redis.call('LINDEX', s.key, -1)
  s.pushed_us = math.max(s.now_us, tonumber(newest or 0))
  s.pushed = s.pushed + cost
  s.used = s.used + cost
end

function sliding_log.deny(s, cost)
  sliding_log.spend(s, math.min(cost, math.max(0, s.limit - s.used)))
end

function sliding_log.debit(s, cost)
  sliding_log.spend(s, math.min(cost, math.max(0, 2 * s.limit - s.used)))
end

function sliding_log.back(s, cost, taken_us)
  redis.call('LREM', s.key, string.format('%.0f', -cost), string.format('%.0f', taken_us))
end

function sliding_log.save(s)
  if s.over > 0 then redis.call('LTRIM', s.key, s.over, -1) end
  if s.pushed == 0 then return end
  local time = string.format('%.0f', s.pushed_us)
  local left = s.pushed
  while left > 0 do
    local times = {}
    for index = 1, math.min(left, 1000) do
      times[index] = time
    end
    redis.call('RPUSH', s.key, unpack(times))
    left = left - #times
  end
  redis.call('PEXPIRE', s.key, lasting_ms(s.pushed_us - s.now_us + s.period_us))
end
