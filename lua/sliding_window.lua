-- Sliding window: this aligned window and the one before, which weighs by the share of it that still overlaps.
--
-- KEYS  the key of one window, handed on by take.lua: one string '<dddddB', 41 bytes: index, previous, current, limit,
--       period_us
-- ARGV  none of its own: the part of an operation (limit, period_ns)
-- returns the functions of an algorithm: open, told, spend, deny, debit, back, save (see take.lua)
--
-- What weighs is rounded up to a unit, and exact before: products beyond 2^53 are taken apart. Periods beyond 2^51
-- microseconds (71 years) are not. A changed limit scales both counts, a changed period what they weigh together.

local sliding_window = {}

local function sliding_estimate(s)
  local elapsed_us = math.max(0, s.now_us - s.index * s.period_us)
  local weighed, rest = scaled(s.previous, s.period_us - elapsed_us, s.period_us)
  if rest > 0 then weighed = weighed + 1 end
  return weighed + s.current
end

-- Brings the counts to the window of `now_us`. A clock behind finds the beginning of the counts' own window.
local function sliding_move(s, index)
  local ahead = index - s.index
  if ahead == 1 then
    s.index, s.previous, s.current = index, s.current, 0
  elseif ahead > 1 then
    s.index, s.previous, s.current = index, 0, 0
  elseif ahead < -1 then
    s.index = index
  end
end

function sliding_window.open(key, now_us, part)
  local period_us = math.ceil(part.period_ns / 1000)
  local s = { key = key, now_us = now_us, limit = math.min(part.limit, 2 ^ 44 - 1), period_us = period_us,
    index = math.floor(now_us / period_us), previous = 0, current = 0 }
  local saved = redis.call('GET', key)
  if not saved then return s end
  if #saved ~= 41 then
    s.current = s.limit
    return s
  end
  local old = { now_us = now_us }
  old.index, old.previous, old.current, old.limit, old.period_us = struct.unpack('<ddddd', saved)
  sliding_move(old, math.floor(now_us / old.period_us))
  if old.period_us ~= period_us then
    s.is_scaled = true
    s.current = scaled_up(math.min(sliding_estimate(old), old.limit), s.limit, old.limit)
    return s
  end
  s.index, s.previous, s.current = old.index, old.previous, old.current
  if old.limit ~= s.limit then
    s.is_scaled = true
    s.previous = scaled_up(math.min(s.previous, old.limit), s.limit, old.limit)
    s.current = scaled_up(math.min(s.current, old.limit), s.limit, old.limit)
  end
  return s
end

local function sliding_end_us(s, windows)
  return (s.index + windows) * s.period_us - s.now_us
end

-- The first microsecond at which a cost fits: what weighs only shrinks, along a line a window.
local function sliding_retry_us(s, cost)
  local weighs, room, windows = s.previous, s.limit - cost - s.current, 0
  if room < 0 then
    weighs, room, windows = s.current, s.limit - cost, 1
  end
  local overlap_us = scaled(s.period_us, math.min(room, weighs), math.max(1, weighs))
  return sliding_end_us(s, windows) + s.period_us - overlap_us
end

function sliding_window.told(s, cost)
  local told = { wait_us = 0, remaining = math.max(0, s.limit - sliding_estimate(s)), reset_us = 0 }
  if s.current > 0 then
    told.reset_us = sliding_end_us(s, 2)
  elseif s.previous > 0 then
    told.reset_us = sliding_end_us(s, 1)
  end
  if cost > s.limit then
    told.wait_us = -1
  elseif cost > told.remaining then
    told.wait_us = sliding_retry_us(s, cost)
  end
  return told
end

function sliding_window.spend(s, cost)
  s.current = s.current + cost
end

function sliding_window.deny(s, cost)
  s.current = math.min(s.current + cost, math.max(s.limit, s.current))
end

function sliding_window.debit(s, cost)
  s.current = math.min(s.current + cost, math.max(2 * s.limit, s.current))
end

function sliding_window.back(s, cost, taken_us)
  local ago = s.index - math.floor(taken_us / s.period_us)
  if ago == 0 then
    s.current = math.max(0, s.current - cost)
  elseif ago == 1 then
    s.previous = math.max(0, s.previous - cost)
  end
end

function sliding_window.save(s)
  if s.current == 0 and s.previous == 0 then
    redis.call('DEL', s.key)
  else
    redis.call('SET', s.key, struct.pack('<dddddB', s.index, s.previous, s.current, s.limit, s.period_us, 3),
      'PX', lasting_ms(sliding_end_us(s, 2)))
  end
end
