-- Token bucket: what is missing of a full one, exact in whole numbers.
--
-- KEYS  the key of one window, handed on by take.lua: one string '<ddddd', 40 bytes: missing, whole,
--       refill, quantum_us, at_us
-- ARGV  none of its own: the part of an operation (limit, period_ns, burst)
-- returns the functions of an algorithm: open, told, spend, deny, debit, back, save (see take.lua)
--
-- A unit is `unit` grains, and `refill` grains come back in a quantum of time: limit / period in lowest terms, the
-- quantum a microsecond, or so many more that a whole bucket stays below 2^51 grains; then grains are halved until it
-- is near that, so that a share that is carried over loses nothing. Time is cut to quanta of the
-- clock itself, so what is cut off is never lost. A bucket too large even for quanta of a second holds as much as
-- fits, which is never in the caller's favour. A changed plan finds the bucket refilled by the old one until now, and
-- goes on with the same share missing.

local function bucket_grains(limit, period_us, burst)
  local quantum_us = 1
  while true do
    local quanta = period_us / quantum_us
    local common = divisor(limit, quanta)
    local unit = quanta / common
    local next_us = quantum_us * 10
    if burst * unit <= exact / 4 or next_us > 1e6 or period_us % next_us ~= 0 then
      local units = math.min(burst, math.floor(exact / 4 / unit))
      local fine = 2 ^ math.floor(math.log(exact / 4 / (units * unit)) / math.log(2))
      return quantum_us, unit * fine, limit / common * fine, units
    end
    quantum_us = next_us
  end
end

local function bucket_open(key, now_us, part, burst)
  local s = { key = key, now_us = now_us, missing = 0 }
  s.quantum_us, s.unit, s.refill, s.units = bucket_grains(part.limit, math.ceil(part.period_ns / 1000), burst)
  s.whole = s.units * s.unit
  s.at_us = now_us - now_us % s.quantum_us
  local saved = redis.call('GET', key)
  if not saved then return s end
  if #saved ~= 40 then
    -- Whose past cannot be read is not trusted with a full one.
    s.missing = s.whole
    return s
  end
  local missing, whole, refill, quantum_us, then_us = struct.unpack('<ddddd', saved)
  -- A clock that went back refills nothing, and goes on from where it is.
  local quanta = math.max(0, math.floor(now_us / quantum_us) - then_us / quantum_us)
  if quanta < math.ceil(missing / refill) then s.missing = missing - quanta * refill end
  if whole ~= s.whole or refill ~= s.refill or quantum_us ~= s.quantum_us then
    s.missing, s.is_scaled = scaled_up(math.min(s.missing, whole), s.whole, whole), true
  end
  return s
end

-- Microseconds from now until so many grains are back.
local function bucket_wait_us(s, grains)
  return math.ceil(grains / s.refill) * s.quantum_us - (s.now_us - s.at_us)
end

local token_bucket = {}

function token_bucket.open(key, now_us, part)
  return bucket_open(key, now_us, part, part.burst)
end

function token_bucket.told(s, cost)
  local told = { wait_us = 0, remaining = 0, reset_us = 0 }
  told.remaining = math.max(0, math.floor((s.whole - s.missing) / s.unit))
  if s.missing > 0 then told.reset_us = bucket_wait_us(s, s.missing) end
  if cost > s.units then
    told.wait_us = -1
  elseif s.missing + cost * s.unit > s.whole then
    told.wait_us = bucket_wait_us(s, s.missing + cost * s.unit - s.whole)
  end
  return told
end

function token_bucket.spend(s, cost)
  s.missing = s.missing + cost * s.unit
end

-- As far as it is empty, never into debt.
function token_bucket.deny(s, cost)
  s.missing = math.max(s.missing, math.min(s.missing + cost * s.unit, s.whole))
end

-- Whether it fits or not: at most as far into debt as the bucket is large.
function token_bucket.debit(s, cost)
  s.missing = math.max(s.missing, math.min(s.missing + math.min(cost, 2 * s.units) * s.unit, 2 * s.whole))
end

function token_bucket.back(s, cost)
  s.missing = math.max(0, s.missing - cost * s.unit)
end

function token_bucket.save(s)
  if s.missing == 0 then
    redis.call('DEL', s.key)
  else
    redis.call('SET', s.key, struct.pack('<ddddd', s.missing, s.whole, s.refill, s.quantum_us, s.at_us),
      'PX', lasting_ms(bucket_wait_us(s, s.missing)))
  end
end
