-- Sliding log: the time of every unit, exact, and bounded by the limit.
--
-- KEYS  the key of one window, by its index: a list of microseconds, one element a unit, the oldest first
-- ARGV  none of its own: a plan (limit, period_ns)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, save (see take.lua)
--
-- A unit taken at t counts until just before t + period. A limit that changes finds the units as they are. What is
-- over is cut off with the next change; when a place comes free is one look into the list. Where the clock went back and
-- the oldest is of a time to come, or of none, all are of now.

local sliding_log = {}

function sliding_log.prepare(plan)
  plan.period_us = ceil(plan.period_ns / 1000)
end

function sliding_log.open(state)
  local name, period_us = KEYS[state.key], state.plan.period_us
  state.name, state.limit, state.period_us, state.over, state.pushed = name, state.plan.limit, period_us, 0, 0
  state.is_scaled, state.is_wrong = false, false
  state.size = redis.pcall('LLEN', name)
  state.newest_us = 1e16
  -- Of another type: what cannot be read is a log that is full.
  if type(state.size) == 'table' then
    state.size, state.used, state.pushed_us, state.newest_us = 0, state.limit, now_us, now_us
    state.is_scaled, state.is_wrong = true, true
    return
  end
  while state.over < state.size do
    local times = redis.call('LRANGE', name, state.over, state.over + 63)
    local over = 0
    for index = 1, #times do
      if (tonumber(times[index]) or 1e16) + period_us > now_us then break end
      over = index
    end
    state.over = state.over + over
    if over < #times then
      state.is_scaled = (tonumber(times[over + 1]) or 1e16) > now_us
      break
    end
  end
  if state.is_scaled then state.newest_us = now_us end
  state.used = state.size - state.over
end

-- The time of an element; none is later than the newest may be.
local function time_of(state, index)
  if state.is_wrong then return now_us end
  return min(tonumber(redis.call('LINDEX', state.name, index)) or 0, state.newest_us)
end

function sliding_log.wait(state, cost)
  if cost > state.limit then return -1 end
  if cost <= max(0, state.limit - state.used) then return 0 end
  -- So many of the oldest have to be over first; those just counted are the newest.
  local index = state.over + state.used + cost - state.limit - 1
  local at_us = state.pushed_us
  if index < state.size then at_us = time_of(state, index) end
  return at_us + state.period_us - now_us
end

function sliding_log.left(state)
  local reset_us = 0
  if state.pushed > 0 then
    reset_us = state.pushed_us + state.period_us - now_us
  elseif state.used > 0 then
    reset_us = time_of(state, -1) + state.period_us - now_us
  end
  return max(0, state.limit - state.used), reset_us
end

function sliding_log.spend(state, cost)
  -- In order even where the clock went back.
  state.pushed_us = max(now_us, time_of(state, -1))
  state.pushed = state.pushed + cost
  state.used = state.used + cost
end

function sliding_log.deny(state, cost)
  sliding_log.spend(state, min(cost, max(0, state.limit - state.used)))
end

function sliding_log.debit(state, cost)
  sliding_log.spend(state, min(cost, max(0, 2 * state.limit - state.used)))
end

function sliding_log.back(state, cost, taken_us)
  if state.is_wrong then return end
  local gone = redis.call('LREM', state.name, string.format('%.0f', -cost), string.format('%.0f', taken_us))
  state.used = max(0, state.used - gone)
end

function sliding_log.save(state)
  if state.is_wrong then repaired = repaired + 1 end
  if state.is_scaled then
    redis.call('DEL', state.name)
    state.pushed, state.pushed_us = state.used, now_us
  elseif state.over > 0 then
    redis.call('LTRIM', state.name, state.over, -1)
  end
  if state.pushed == 0 then return end
  local time = string.format('%.0f', state.pushed_us)
  local left = state.pushed
  while left > 0 do
    local times = {}
    for index = 1, min(left, together) do
      times[index] = time
    end
    redis.call('RPUSH', state.name, unpack(times))
    left = left - #times
  end
  redis.call('PEXPIRE', state.name, lasting_ms(state.pushed_us - now_us + state.period_us))
end

return sliding_log
