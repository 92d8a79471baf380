-- Fixed window: a count that starts again at every multiple of the period.
--
-- KEYS  the key of one window, handed on by take.lua: one string '<dddd', 32 bytes: index, count, limit, period_us
-- ARGV  none of its own: the part of an operation (limit, period_ns)
-- returns the functions of an algorithm: open, told, spend, deny, debit, back, save (see take.lua)
--
-- A changed plan keeps the share that is spent, rounded up to a unit.

local fixed_window = {}

function fixed_window.open(key, now_us, part)
  local s = { key = key, now_us = now_us, limit = part.limit, period_us = math.ceil(part.period_ns / 1000), count = 0 }
  s.index = math.floor(now_us / s.period_us)
  local saved = redis.call('GET', key)
  if not saved then return s end
  if #saved ~= 32 then
    s.count = s.limit
    return s
  end
  local index, count, limit, period_us = struct.unpack('<dddd', saved)
  if limit ~= s.limit or period_us ~= s.period_us then
    s.is_scaled = true
    if index >= math.floor(now_us / period_us) then s.count = scaled_up(math.min(count, limit), s.limit, limit) end
  elseif index >= s.index then
    -- A clock a little behind finds the count's own window; one that went far back goes on with the count.
    s.count = count
    if index == s.index + 1 then s.index = index end
  end
  return s
end

local function fixed_end_us(s)
  return (s.index + 1) * s.period_us - s.now_us
end

function fixed_window.told(s, cost)
  local told = { wait_us = 0, remaining = math.max(0, s.limit - s.count), reset_us = 0 }
  if s.count > 0 then told.reset_us = fixed_end_us(s) end
  if cost > s.limit then
    told.wait_us = -1
  elseif cost > told.remaining then
    told.wait_us = fixed_end_us(s)
  end
  return told
end

function fixed_window.spend(s, cost)
  s.count = s.count + cost
end

function fixed_window.deny(s, cost)
  s.count = math.min(s.count + cost, math.max(s.limit, s.count))
end

function fixed_window.debit(s, cost)
  s.count = math.min(s.count + cost, math.max(2 * s.limit, s.count))
end

-- A window that is over needs nothing back.
function fixed_window.back(s, cost, taken_us)
  if math.floor(taken_us / s.period_us) == s.index then s.count = math.max(0, s.count - cost) end
end

function fixed_window.save(s)
  if s.count == 0 then
    redis.call('DEL', s.key)
  else
    redis.call('SET', s.key, struct.pack('<dddd', s.index, s.count, s.limit, s.period_us),
      'PX', lasting_ms(fixed_end_us(s)))
  end
end
