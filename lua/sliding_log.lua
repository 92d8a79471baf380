-- Sliding log: the time of every unit, exact, and bounded by the limit.
--
-- KEYS  the key of one window, by its index: a list of microseconds, one element a unit, the oldest first
-- ARGV  none of its own: a plan (limit, period_ns)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, save (see take.lua)
--
-- A unit taken at t counts until just before t + period. If the limit changes, the units stay as they are. Expired
-- units are trimmed with the next change. When a place becomes free is read from one element. If the oldest unit is
-- from the future, because the clock was set back, or is no number, all units count as taken now. A unit that is owed
-- takes the place of one that expires: its time is when that happens. There are at most as many of them as the limit.
--
-- A key's log is read once a call and written once, at its end, so many charges of one key cost a few commands.

local sliding_log = {}

-- By key: its log as changed so far by this call.
local logs = {}

function sliding_log.prepare(plan)
  plan.period_us = ceil(plan.period_ns / 1000)
end

local function read(key, plan)
  local name, period_us = KEYS[key], plan.period_us
  local log = {
    name = name, limit = plan.limit, period_us = period_us, over = 0, pushed = 0, newest_us = 1e16,
    is_scaled = false, is_wrong = false, is_changed = false,
  }
  log.size = redis.pcall('LLEN', name)
  -- The key has another type: it counts as a full log.
  if type(log.size) == 'table' then
    log.size, log.used, log.pushed_us, log.newest_us = 0, plan.limit, now_us, now_us
    log.is_scaled, log.is_wrong = true, true
    return log
  end
  while log.over < log.size do
    local times = redis.call('LRANGE', name, log.over, log.over + 63)
    local over = 0
    for index = 1, #times do
      if (tonumber(times[index]) or 1e16) + period_us > now_us then break end
      over = index
    end
    log.over = log.over + over
    if over < #times then
      log.is_scaled = (tonumber(times[over + 1]) or 1e16) > now_us
      break
    end
  end
  if log.is_scaled then log.newest_us = now_us end
  log.used = log.size - log.over
  return log
end

local function write(log)
  if log.is_wrong then repaired = repaired + 1 end
  local pushed, pushed_us = log.pushed, log.pushed_us
  if log.is_scaled then
    redis.call('DEL', log.name)
    pushed, pushed_us = log.used, now_us
  elseif log.over > 0 then
    redis.call('LTRIM', log.name, log.over, -1)
  end
  if pushed == 0 then return end
  local time = string.format('%.0f', pushed_us)
  local left = pushed
  while left > 0 do
    local times = {}
    for index = 1, min(left, together) do
      times[index] = time
    end
    redis.call('RPUSH', log.name, unpack(times))
    left = left - #times
  end
  redis.call('PEXPIRE', log.name, lasting_ms(pushed_us - now_us + log.period_us))
end

local function write_all()
  for _, log in pairs(logs) do
    if log.is_changed then write(log) end
  end
  logs = {}
end
unwritten[#unwritten + 1] = write_all

function sliding_log.open(state, is_look)
  local key, plan = state.key, state.plan
  local log = logs[key]
  if log and (log.limit ~= plan.limit or log.period_us ~= plan.period_us) then
    -- The same key under another plan in one call: write the log first, as if that call had ended.
    if log.is_changed then write(log) end
    log = nil
  end
  if not log then
    log = read(key, plan)
    logs[key] = log
  end
  if is_look then
    local copy = {}
    for field, value in pairs(log) do
      copy[field] = value
    end
    log = copy
  end
  state.log, state.is_scaled = log, log.is_scaled
end

-- The time of an element, clamped to the newest possible.
local function time_of(log, index)
  if log.is_wrong then return now_us end
  return min(tonumber(redis.call('LINDEX', log.name, index)) or 0, log.newest_us)
end

function sliding_log.wait(state, cost)
  local log = state.log
  if cost > log.limit then return -1 end
  if cost <= max(0, log.limit - log.used) then return 0 end
  -- This many of the oldest units must expire first; the units that this call has counted are the newest.
  local index = log.over + log.used + cost - log.limit - 1
  local at_us = log.pushed_us
  if index < log.size then at_us = time_of(log, index) end
  return at_us + log.period_us - now_us
end

function sliding_log.left(state)
  local log, reset_us = state.log, 0
  if log.pushed > 0 then
    reset_us = log.pushed_us + log.period_us - now_us
  elseif log.used > 0 then
    reset_us = time_of(log, -1) + log.period_us - now_us
  end
  return max(0, log.limit - log.used), reset_us
end

function sliding_log.spend(state, cost)
  local log = state.log
  -- The list stays in order even if the clock was set back.
  if log.pushed == 0 then log.pushed_us = max(now_us, time_of(log, -1)) end
  log.pushed = log.pushed + cost
  log.used = log.used + cost
end

function sliding_log.deny(state, cost)
  sliding_log.spend(state, min(cost, max(0, state.log.limit - state.log.used)))
end

function sliding_log.debit(state, cost)
  local log = state.log
  local fits = min(cost, max(0, log.limit - log.used))
  sliding_log.spend(state, fits)
  local owed = min(cost - fits, max(0, 2 * log.limit - log.used))
  if owed == 0 then return end
  -- The units whose places are taken must be in the list, from which their times are read.
  write(log)
  log = read(state.key, state.plan)
  while owed > 0 do
    local from = log.over + log.used - log.limit
    local times = redis.call('LRANGE', log.name, from, from + min(owed, together, log.limit) - 1)
    for index = 1, #times do
      times[index] = string.format('%.0f', tonumber(times[index]) + log.period_us)
    end
    redis.call('RPUSH', log.name, unpack(times))
    log.size, log.used, owed = log.size + #times, log.used + #times, owed - #times
  end
  redis.call('PEXPIRE', log.name, lasting_ms(time_of(log, -1) - now_us + log.period_us))
  logs[state.key], state.log = log, log
end

function sliding_log.back(state, cost, taken_us)
  local log = state.log
  if log.is_wrong then return end
  -- The units to return may have been taken by this call and not written yet.
  if log.is_changed then
    write(log)
    log = read(state.key, state.plan)
    logs[state.key], state.log = log, log
  end
  local gone = redis.call('LREM', log.name, string.format('%.0f', -cost), string.format('%.0f', taken_us))
  if gone > 0 then
    log = read(state.key, state.plan)
    logs[state.key], state.log = log, log
  end
end

function sliding_log.save(state)
  state.log.is_changed = true
end

return sliding_log
