-- Token bucket: stores what is missing from a full one, exactly, in whole numbers.
--
-- KEYS  the key of one window, by its index: one string of 44 bytes: missing, at_us 'd' each, until_s 'I4'; the plan it
--       was written under: limit, period_us, units 'd' each (see keys.lua)
-- ARGV  none of its own: a plan (limit, period_ns, burst)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, save, charges (see take.lua)
--
-- A unit is `unit` grains, and `refill` grains come back in each quantum of time. Their ratio is limit / period in
-- lowest terms. The quantum is a microsecond, or longer so that a whole bucket stays below 2^51 grains; then grains
-- are halved until the bucket is close to that, so that carrying a share over to a changed plan loses nothing. Time is
-- cut to quanta of the clock itself, so no time is lost between two calls. A bucket too large even for quanta of a
-- second holds as much as fits, which is never in the client's favour. If the plan changes, the bucket is refilled by
-- the old plan until now and continues with the same units missing.
--
-- A debt is held up to `deepest` whole buckets. Beyond four of them a double has no room for each grain: what rounds is
-- less than a part in 2^53 of the debt.

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

-- Prepares a plan whose bucket holds `units`.
function token_bucket.prepare(plan, units)
  plan.period_us = ceil(plan.period_ns / 1000)
  plan.quantum_us, plan.unit, plan.refill, plan.units = bucket_grains(plan.limit, plan.period_us, units or plan.burst)
  plan.whole = plan.units * plan.unit
  -- How far the present quantum has advanced.
  plan.begun_us = now_us % plan.quantum_us
  plan.at_us = now_us - plan.begun_us
  plan.tail = pack('<ddd', plan.limit, plan.period_us, plan.units)
end

-- Microseconds from now until `grains` are back.
local function refilled_us(plan, grains)
  local quanta = grains / plan.refill
  local part = quanta % 1
  if part > 0 then quanta = quanta - part + 1 end
  return quanta * plan.quantum_us - plan.begun_us
end

-- A record of leases (lease.lua), as one of a bucket: what is lent is missing.
local function read_leased(saved)
  local then_us, level = unpack_from('<dd', saved)
  local limit, period_ns, units = unpack_from('<ddd', saved, 45)
  then_us = then_us - then_us % 4
  local old = { limit = limit, period_ns = period_ns }
  if not (is_plan(limit, period_ns / 1000, units) and is_count(then_us) and level <= units and level >= -deepest * units) then
    return ''
  end
  token_bucket.prepare(old, units)
  local missing = max(0, ceil((units - level) * old.unit))
  local need_us = missing / old.refill * old.quantum_us
  return pack('<ddI4ddd', missing, then_us - then_us % old.quantum_us, min(ceil((then_us + need_us) / 1e6) + 1, kept_last_s),
    limit, old.period_us, old.units)
end

-- A record of another plan: what was missing then, as grains of this plan's bucket; or, if a lower limit does not hold
-- that and the cost, as grains of the old plan, which is returned too. A record that no bucket refills before its key expires was
-- written by no script.
local function read_changed(plan, missing, then_us, until_s, limit, period_us, units, cost)
  local old = { limit = limit, period_ns = period_us * 1000, act = plan.act }
  token_bucket.prepare(old, units)
  if then_us + missing / old.refill * old.quantum_us > until_s * 1e6 and until_s < kept_last_s then
    return plan.whole, 0, true
  end
  local quanta = floor(now_us / old.quantum_us) - floor(then_us / old.quantum_us)
  if quanta > 0 then missing = max(0, missing - quanta * old.refill) end
  -- The cost of a bucket only: what a queue refuses has no wait that was told before.
  if not (plan.algorithm == 1 and cost and cost <= plan.units) then cost = 0 end
  if old.units > plan.units and period_us == plan.period_us and missing > (plan.units - cost) * old.unit then
    -- No limit was ever that far above this one.
    if missing > deepest * plan.units * old.unit then return plan.whole, 0, true end
    return missing, until_s, false, old
  end
  local function carried(grains)
    local wholes = floor(grains / old.unit)
    return wholes * plan.unit + scaled_up(grains - wholes * old.unit, plan.unit, old.unit)
  end
  local debt = carried(max(0, missing - old.whole))
  return min(carried(missing), plan.whole + debt, deepest * plan.whole), 0, true
end

-- The missing grains now, until when the key is kept, and whether the record must be saved: another plan or a later
-- clock wrote it.
local function read(key, plan, cost, saved)
  saved = saved or heads[key] == nil and values[key] or string_of(key)
  if not saved then return 0, 0, false end
  if #saved == 68 then
    local missing, _, _, old = read(key, plan, cost, read_leased(saved))
    return missing, 0, true, old
  end
  -- A value that is no record counts as an empty bucket, so that a key cannot be reset by overwriting it.
  if #saved ~= 44 then return plan.whole, 0, true end
  local missing, then_us, until_s, limit, period_us, units = unpack_from('<ddI4ddd', saved)
  local whole, refill, quantum_us = plan.whole, plan.refill, plan.quantum_us
  -- The usual case is checked inline, because calling a function costs as much as the rest.
  if limit ~= plan.limit or units ~= plan.units or period_us ~= plan.period_us then
    local is_record = is_plan(limit, period_us, units) and is_count(then_us) and missing >= 0
      and missing <= deepest * exact
    if not is_record then return plan.whole, 0, true end
    return read_changed(plan, missing, then_us, until_s, limit, period_us, units, cost)
  end
  local is_record = missing >= 0 and missing <= deepest * whole and then_us >= 0 and then_us < exact
  -- A bucket is full before its key expires.
  if not is_record or then_us + missing / refill * quantum_us > until_s * 1e6 and until_s < kept_last_s then
    return plan.whole, 0, true
  end
  local passed_us = plan.at_us - then_us
  -- If the clock was set back, nothing is refilled, and the record continues from the new time. That is saved even if
  -- nothing is spent.
  if passed_us > 0 then missing = missing - passed_us / quantum_us * refill end
  if missing < 0 then missing = 0 end
  return missing, until_s, passed_us < 0
end

local function write(key, plan, missing, until_s, reset_us)
  if missing == 0 then return keep(key, false) end
  if now_us + reset_us > until_s * 1e6 then until_s = kept_until(key, until_s, reset_us, min(reset_us, 6e8)) end
  keep(key, pack('<ddI4', missing, plan.at_us, until_s), plan.tail)
end

-- By key, for runs with many charges of few keys: the missing grains so far, and for how long the key is kept.
local held, rooms = {}, {}

local function settle(at_us)
  for key, missing in pairs(held) do
    heads[key], held[key] = pack('<dd', missing, at_us), nil
  end
end

function token_bucket.charges(run, at, said, plan, one, is_look)
  local values, heads, held, rooms, now_us = values, heads, held, rooms, now_us
  local number, refill, quantum_us, whole, unit = run[at + 1], plan.refill, plan.quantum_us, plan.whole, plan.unit
  local at_us, begun_us = plan.at_us, plan.begun_us
  local limit, period_us, units = plan.limit, plan.period_us, plan.units
  local is_repeated = not is_look and #run > 3 * #KEYS
  for at = at, #run, 3 do
    if run[at + 1] ~= number then
      settle(at_us)
      return at, said
    end
    local key = run[at]
    local missing, room_us
    if is_repeated then missing, room_us = held[key], rooms[key] end
    if not missing then
      local saved = values[key]
      if heads[key] ~= nil then
        missing = nil
      elseif not saved and is_nothing then
        missing, room_us = 0, -now_us
      elseif saved and #saved == 44 then
        local then_us, until_s, old_limit, old_us, old_units
        missing, then_us, until_s, old_limit, old_us, old_units = unpack_from('<ddI4ddd', saved)
        if old_limit == limit and old_units == units and old_us == period_us and missing >= 0 and then_us >= 0 then
          local passed_us = at_us - then_us
          if passed_us > 0 then missing = missing - passed_us / quantum_us * refill end
          if missing < 0 then missing = 0 end
          room_us = until_s * 1e6 - now_us
        else
          missing = nil
        end
      end
    end
    local rest = -1
    if missing then
      missing = missing + run[at + 2] * unit
      rest = (whole - missing) / unit
    end
    if rest >= 0 then
      local quanta = missing / refill
      local part = quanta % 1
      if part > 0 then quanta = quanta - part + 1 end
      local reset_us = quanta * quantum_us - begun_us
      if reset_us > room_us then
        if not is_look then
          held[key] = nil
          write(key, plan, missing, (room_us + now_us) / 1e6, reset_us)
        end
      elseif is_repeated then
        held[key], rooms[key] = missing, room_us
      elseif not is_look then
        heads[key] = pack('<dd', missing, at_us)
      end
      run[said + 1], run[said + 2] = rest - rest % 1, reset_us
      said = said + 2
    else
      if is_repeated then settle(at_us) end
      said = one(run, at, said, plan)
    end
  end
  settle(at_us)
  return #run + 1, said
end

function token_bucket.open(state)
  local plan, old = state.plan
  state.missing, state.until_s, state.is_scaled, old = read(state.key, plan, state.cost)
  if old then state.less, state.holds, state.plan, state.under = old.units - plan.units, plan.units, old, plan end
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
  if state.less and missing > state.holds * plan.unit then
    -- It refills as before until it fits, and as slowly as under the plan of now from then on.
    local under = state.under
    return 0, refilled_us(plan, missing - state.holds * plan.unit) + ceil(under.whole / under.refill) * under.quantum_us
  end
  local units, under = (plan.whole - missing) / plan.unit, state.under
  units = units > 0 and units - units % 1 or 0
  if state.less then return units, refilled_us(under, ceil(missing / plan.unit * under.unit)) end
  return units, refilled_us(plan, missing)
end

function token_bucket.spend(state, cost)
  state.missing = state.missing + cost * state.plan.unit
end

-- A denied cost takes at most what is left, so it never leads into debt.
function token_bucket.deny(state, cost)
  state.missing = max(state.missing, min(state.missing + cost * state.plan.unit, state.plan.whole))
end

-- Spends the cost even if it does not fit.
function token_bucket.debit(state, cost, most)
  local missing = min(state.missing + cost * state.plan.unit, deepest * state.plan.whole)
  if most then missing = max(state.missing, min(missing, most * state.plan.whole)) end
  state.missing = missing
end

function token_bucket.back(state, cost)
  state.missing = max(0, state.missing - cost * state.plan.unit)
end

function token_bucket.save(state, reset_us)
  write(state.key, state.plan, state.missing, state.until_s, reset_us)
end

return token_bucket
