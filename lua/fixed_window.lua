-- Fixed window: a count that starts again at every multiple of the period, or where a window of the calendar begins.
--
-- KEYS  the key of one window, by its index: one string of 36 bytes: index, count 'd' each, until_s 'I4'; the plan it
--       was written under: limit, period_us 'd' each (see keys.lua). Of a window of the calendar 44 bytes: when units of it
--       were last spent and when it ends, 'd' each, are in the place of the index
-- ARGV  none of its own: a plan (limit, period_ns, edges)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, is_over, save (see take.lua),
--         carried
--
-- A changed plan keeps what was spent. A count above the limit is a debt: each window that ends takes one limit of it.
-- Under another zone or anchor it counts in the window in which units were last spent, so its key is kept for a period more. A
-- refusal changes no record, so a request with another day in its claim does not let it count for longer.

local fixed_window = {}

function fixed_window.prepare(plan)
  plan.period_us = ceil(plan.period_ns / 1000)
  plan.index = window_at(plan.edges, plan.period_us, now_us)
  plan.tail = pack('<dd', plan.limit, plan.period_us)
end

-- What a record says; `index` is nil if it is none. Of a window of the calendar, `index` is when units were last spent, and the
-- last result its end.
local function read(saved, plan)
  local index, count, until_s, limit, period_us, ends_us = nil, 0, 0, 0, 0, nil
  if #saved == 36 then
    index, count, until_s, limit, period_us = unpack_from('<ddI4dd', saved)
  elseif #saved == 44 then
    index, ends_us, count, until_s, limit, period_us = unpack_from('<dddI4dd', saved)
  elseif #saved == 64 then
    -- Of leases (window_lease.lua). What a lowered limit did not hold there is owed in no later window.
    local at_us, spent_us
    at_us, count, spent_us = unpack_from('<ddd', saved)
    limit, period_us = unpack_from('<dd', saved, 49)
    period_us, count = ceil(period_us / 1000), ceil(count)
    limit = max(limit, count)
    index = floor(at_us / period_us)
    if is_calendar(period_us) then
      index, ends_us = spent_us, calendar_end(plan.edges, plan.period_us, now_us, spent_us, period_us)
    end
  end
  local is_record = index and is_count(index) and is_count(count) and is_plan(limit, period_us, limit)
    and (not ends_us or is_calendar(period_us) and math.abs(ends_us - index) <= period_us + day_us)
  -- A count is over before its key expires.
  if is_record and #saved ~= 64 and until_s < kept_last_s then
    local first_us = ends_us or (index + 1) * period_us
    is_record = first_us + (ceil(count / limit) - 1) * period_us <= until_s * 1e6
  end
  return is_record and index or nil, count, until_s, limit, period_us, ends_us
end

-- What window_lease.lua reads of a record: what is spent, of whose plan, as of when.
function fixed_window.carried(state, saved)
  local index, count, _, limit, period_us, ends_us = read(saved)
  if not index then return false end
  state.at_us, state.count, state.before, state.limit, state.period_us = index * period_us, count, 0, limit, period_us
  if ends_us then state.at_us, state.before = index, index end
  return true
end

function fixed_window.open(state)
  local key, plan = state.key, state.plan
  local saved = heads[key] == nil and values[key] or string_of(key)
  state.index, state.count, state.until_s, state.is_scaled, state.spent_us = plan.index, 0, 0, false, now_us
  if not saved then return end
  local index, count, until_s, limit, period_us, ends_us = read(saved, plan)
  -- A value that is no record counts as a spent window, so that a key cannot be reset by overwriting it.
  if not index then
    state.count, state.is_scaled = plan.limit, true
    return
  end
  if ends_us and period_us == plan.period_us then
    index, state.spent_us = window_at(plan.edges, period_us, index), index
  end
  if limit ~= plan.limit or period_us ~= plan.period_us then
    local ended = plan.index - index
    if period_us ~= plan.period_us then
      ended = ends_us and floor((now_us - ends_us) / (period_us - 1)) + 1 or floor(now_us / period_us) - index
    end
    count = max(0, count - max(0, ended) * limit)
    if limit > plan.limit and count > plan.limit and period_us == plan.period_us then
      state.less, state.holds = limit - plan.limit, plan.limit
      plan = { limit = limit, period_ns = period_us * 1000, act = plan.act, edges = plan.edges }
      fixed_window.prepare(plan)
      state.plan = plan
    else
      state.count, state.is_scaled = min(count, plan.limit + max(0, count - limit)), true
      return
    end
    index = max(index, plan.index)
  end
  if index < plan.index then
    state.count, state.until_s = max(0, count - (plan.index - index) * plan.limit), until_s
  else
    -- If the clock is a little behind, the count's own window is used. If it was set far back, the count is moved to
    -- the present window, and saved there even if nothing is spent; otherwise the next window would take it over too.
    state.count, state.until_s = count, until_s
    if index == plan.index + 1 then
      state.index = index
    else
      state.is_scaled = state.is_scaled or index > plan.index
    end
  end
end

-- Microseconds until so many windows have ended, the state's own included.
local function end_us(state, windows)
  return window_start(state.plan.edges, state.plan.period_us, state.index + windows) - now_us
end

function fixed_window.wait(state, cost)
  local limit = state.plan.limit
  if cost > limit then return -1 end
  if cost > max(0, limit - state.count) then return end_us(state, ceil((state.count - limit + cost) / limit)) end
  return 0
end

function fixed_window.left(state)
  if state.count == 0 then return state.plan.limit, 0 end
  return max(0, state.plan.limit - state.count), end_us(state, ceil(state.count / state.plan.limit))
end

local function raise(state, count)
  if count > state.count then state.count, state.spent_us = count, now_us end
end

function fixed_window.spend(state, cost)
  raise(state, state.count + cost)
end

function fixed_window.deny(state, cost)
  raise(state, min(state.count + cost, max(state.plan.limit, state.count)))
end

function fixed_window.debit(state, cost, most)
  local count = min(state.count + cost, exact / 2)
  if most then count = max(state.count, min(count, most * state.plan.limit)) end
  raise(state, count)
end

-- Whether a time was in another window.
function fixed_window.is_over(state, at_us)
  return window_at(state.plan.edges, state.plan.period_us, at_us) ~= state.index
end

-- Units of a window that is over are not returned: the next one began full, or with a debt that nothing tells from what
-- was spent since.
function fixed_window.back(state, cost, taken_us)
  if not fixed_window.is_over(state, taken_us) then state.count = max(0, state.count - cost) end
end

function fixed_window.save(state, reset_us)
  local key, plan, index = state.key, state.plan, state.index
  if state.count == 0 then return keep(key, false) end
  local edges, period_us, until_s = plan.edges, plan.period_us, state.until_s
  if not edges then
    return keep(key, pack('<ddI4', index, state.count, kept_until(key, until_s, reset_us, 0)), plan.tail)
  end
  local spent_us = max(window_start(edges, period_us, index), min(state.spent_us, now_us))
  local ends_us = window_start(edges, period_us, index + 1)
  local last_us = max(reset_us, ends_us + (ceil(state.count / plan.limit) - 1) * period_us - now_us)
  until_s = kept_until(key, until_s, last_us + period_us, 0)
  keep(key, pack('<dddI4', spent_us, ends_us, state.count, until_s), plan.tail)
end

return fixed_window
