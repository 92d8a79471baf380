-- Token bucket: what is missing of a full one, exact in whole numbers.
--
-- KEYS  the key of one window, by its index: one string of 44 bytes: missing, at_us 'd' each, until_s 'I4'; the plan it
--       was written under: whole, refill, quantum_us 'd' each (see keys.lua)
-- ARGV  none of its own: a plan (limit, period_ns, burst)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, save (see take.lua)
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
      local units = min(burst, floor(exact / 4 / unit))
      local fine = 2 ^ floor(math.log(exact / 4 / (units * unit)) / math.log(2))
      return quantum_us, unit * fine, limit / common * fine, units
    end
    quantum_us = next_us
  end
end

local token_bucket = {}

-- Of a plan whose bucket holds so many units.
function token_bucket.prepare(plan, units)
  plan.quantum_us, plan.unit, plan.refill, plan.units =
    bucket_grains(plan.limit, ceil(plan.period_ns / 1000), units or plan.burst)
  plan.whole = plan.units * plan.unit
  -- The quantum that has begun.
  plan.begun_us = now_us % plan.quantum_us
  plan.at_us = now_us - plan.begun_us
  plan.tail = pack('<ddd', plan.whole, plan.refill, plan.quantum_us)
end

-- Microseconds from now until so many grains are back.
local function refilled_us(plan, grains)
  local quanta = grains / plan.refill
  local part = quanta % 1
  if part > 0 then quanta = quanta - part + 1 end
  return quanta * plan.quantum_us - plan.begun_us
end

-- Under another plan: what was missing then, as a share of this one's bucket.
local function read_changed(plan, missing, then_us, whole, refill, quantum_us)
  local quanta = floor(now_us / quantum_us) - then_us / quantum_us
  if quanta > 0 then missing = max(0, missing - quanta * refill) end
  return scaled_up(min(missing, whole), plan.whole, whole), 0, true
end

-- What is missing now, until when the key is kept, and whether another plan wrote it.
local function read(key, plan)
  local saved = heads[key] == nil and values[key] or string_of(key)
  if not saved then return 0, 0, false end
  -- Whose past cannot be read is not trusted with a full one.
  if #saved ~= 44 then return plan.whole, 0, false end
  local missing, then_us, until_s, whole, refill, quantum_us = unpack_from('<ddI4ddd', saved)
  if refill ~= plan.refill or whole ~= plan.whole or quantum_us ~= plan.quantum_us then
    return read_changed(plan, missing, then_us, whole, refill, quantum_us)
  end
  local passed_us = plan.at_us - then_us
  -- A clock that went back refills nothing, and goes on from where it is.
  if passed_us > 0 then missing = missing - passed_us / quantum_us * refill end
  if missing < 0 then missing = 0 end
  return missing, until_s, false
end

local function write(key, plan, missing, until_s, reset_us)
  if missing == 0 then return keep(key, false) end
  if now_us + reset_us > until_s * 1e6 then until_s = kept_until(key, until_s, reset_us, min(reset_us, 6e8)) end
  keep(key, pack('<ddI4', missing, plan.at_us, until_s), plan.tail)
end

-- A charge that is alone: all that an algorithm does for it, at once and without calls, which cost more in Lua than
-- what they do. Returns nothing where it is refused.
function token_bucket.charge(key, plan, cost)
  local saved, refill, quantum_us = values[key], plan.refill, plan.quantum_us
  local missing, then_us, until_s, whole, old_refill, old_us
  if saved and #saved == 44 and heads[key] == nil then
    missing, then_us, until_s, whole, old_refill, old_us = unpack_from('<ddI4ddd', saved)
  end
  if old_refill == refill and whole == plan.whole and old_us == quantum_us then
    local passed_us = plan.at_us - then_us
    if passed_us > 0 then missing = missing - passed_us / quantum_us * refill end
    if missing < 0 then missing = 0 end
  else
    missing, until_s = read(key, plan)
    whole = plan.whole
  end
  missing = missing + cost * plan.unit
  local rest = (whole - missing) / plan.unit
  if rest < 0 or cost > plan.units then return nil end
  local quanta = missing / refill
  local part = quanta % 1
  if part > 0 then quanta = quanta - part + 1 end
  local reset_us = 0
  if missing > 0 then reset_us = quanta * quantum_us - plan.begun_us end
  if missing == 0 or now_us + reset_us > until_s * 1e6 or heads[key] ~= nil then
    write(key, plan, missing, until_s, reset_us)
  else
    heads[key] = pack('<ddI4', missing, plan.at_us, until_s)
  end
  return rest - rest % 1, reset_us
end

function token_bucket.open(state)
  state.missing, state.until_s, state.is_scaled = read(state.key, state.plan)
end

function token_bucket.wait(state, cost)
  local plan = state.plan
  local beyond = state.missing + cost * plan.unit - plan.whole
  if cost > plan.units then return -1 end
  return beyond > 0 and refilled_us(plan, beyond) or 0
end

function token_bucket.left(state)
  local plan, missing = state.plan, state.missing
  if missing == 0 then return plan.units, 0 end
  local units = (plan.whole - missing) / plan.unit
  return units > 0 and units - units % 1 or 0, refilled_us(plan, missing)
end

function token_bucket.spend(state, cost)
  state.missing = state.missing + cost * state.plan.unit
end

-- As far as it is empty, never into debt.
function token_bucket.deny(state, cost)
  state.missing = max(state.missing, min(state.missing + cost * state.plan.unit, state.plan.whole))
end

-- Whether it fits or not: at most as far into debt as the bucket is large.
function token_bucket.debit(state, cost)
  local plan = state.plan
  state.missing = max(state.missing, min(state.missing + min(cost, 2 * plan.units) * plan.unit, 2 * plan.whole))
end

function token_bucket.back(state, cost)
  state.missing = max(0, state.missing - cost * state.plan.unit)
end

function token_bucket.save(state, reset_us)
  write(state.key, state.plan, state.missing, state.until_s, reset_us)
end

return token_bucket
