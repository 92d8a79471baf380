-- Sliding window: the count of the present aligned window, plus the count of the one before weighted by how much of it
-- still overlaps.
--
-- KEYS  the key of one window, by its index: one string of 44 bytes: index, previous, current 'd' each, until_s 'I4';
--       the plan it was written under: limit, period_us 'd' each (see keys.lua). Of few units, 37 bytes and two a unit:
--       newest, at, limit, period_us 'd' each, until_s 'I4', a zero 'B', how many steps before the newest each was taken
--       'H', the oldest first
-- ARGV  none of its own: a plan (limit, period_ns)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, save, charges (see take.lua), carried
--
-- What weighs is rounded down to a unit, and exact before: products beyond 2^53 are taken apart. Periods beyond 2^51
-- microseconds (71 years) are not, and one beyond 2^53 counts as that (285 years). A changed limit keeps both counts, a
-- changed period what they weigh together. A count above the limit is a debt: when its window ends, one limit of it
-- weighs, and the rest counts in the next.
--
-- Two counters are too rough for few units, so those are a log: each counts from its step of the period until that step
-- of the next. A unit that is owed takes the place of one that expires: its step is when that happens.
-- src/limit/small_window.rs has the same steps.

local count_max = 2 ^ 44 - 1

-- The most units of a log, and the bits in which a node alone keeps one.
local few_max, few_bits = 32, 84

local sliding_window = {}

-- Into how many steps the period is divided: as many as fit the bits of a node alone.
local function steps_of(limit, period_ns)
  if limit > few_max then return end
  local most, scale = 0, 1
  for digits = 1, 16 do
    local spare = few_bits - limit * digits
    if spare > 0 then most = max(most, spare * scale) end
    scale = scale * 2
  end
  return min(most, 32768, max(few_bits - few_max, floor(period_ns / 1e6)))
end

-- The step of a time, and the first microsecond of a step.
local function step_of(plan, at_us)
  local within_us = at_us % plan.period_us
  local step = scaled(within_us, plan.steps, plan.period_us)
  return (at_us - within_us) / plan.period_us * plan.steps + step
end

local function begin_us(plan, step)
  local within = step % plan.steps
  local us, rest = scaled(plan.period_us, within, plan.steps)
  if rest > 0 then us = us + 1 end
  return (step - within) / plan.steps * plan.period_us + us
end

function sliding_window.prepare(plan)
  plan.period_us = min(ceil(plan.period_ns / 1000), exact - 1)
  plan.steps = steps_of(plan.limit, plan.period_ns)
  plan.step = plan.steps and step_of(plan, now_us)
  plan.index = floor(now_us / plan.period_us)
  plan.most = min(plan.limit, count_max)
  plan.tail = pack('<dd', plan.most, plan.period_us)
end

local function estimate(index, previous, current, period_us)
  if previous == 0 then return current end
  local elapsed_us = max(0, now_us - index * period_us)
  return scaled(previous, period_us - elapsed_us, period_us) + current
end

-- The counts as of the window `index`. If the clock is behind, they are as of the beginning of their own window.
local function moved(index, was, previous, current, most)
  local ahead = index - was
  if ahead >= 1 then
    local begun = max(0, current - (ahead - 1) * most)
    return index, min(begun, most), max(0, begun - most)
  elseif ahead < -1 then
    return index, previous, current
  end
  return was, previous, current
end

-- What is spent of few units: of one that is owed, all periods until it is repaid.
local function spent_of(times, plan)
  local spent = 0
  for index = 1, #times do
    spent = spent + ceil((times[index] + plan.steps - plan.step) / plan.steps)
  end
  return spent
end

local function spend_few(state, cost)
  local times, plan = state.times, state.plan
  local last = #times
  -- If the clock was set back, time stands still until what is known is a period old.
  local step = max(plan.step, (times[last] or 0) - plan.steps + 1)
  while last > 0 and times[last] > step do last = last - 1 end
  for _ = 1, cost do
    table.insert(times, last + 1, step)
  end
end

local function debit_few(state, cost)
  local times, plan = state.times, state.plan
  local fits = min(cost, max(0, plan.limit - #times))
  spend_few(state, fits)
  local owed = cost - fits
  local later = min(floor(owed / plan.limit), 2 ^ 41 / plan.steps)
  later = (later - later % 1) * plan.steps
  for index = 1, #times do
    times[index] = times[index] + later
  end
  for _ = 1, owed % plan.limit do
    local oldest = table.remove(times, 1)
    times[#times + 1] = oldest + plan.steps
  end
end

-- What a record says: its plan and either the steps of few units, and whether the clock was set back, or the window and
-- the counts of it and the one before. Nothing, if it is no record.
local function read(saved)
  local size = #saved
  if size % 2 == 1 and size > 37 then
    local newest, at, most, period_us, until_s = unpack_from('<ddddI4', saved)
    local is_plan = most >= 1 and most <= few_max and is_count(period_us) and period_us >= 1000
    local is_whole = is_plan and is_count(newest) and is_count(at) and (most + period_us + newest + at) % 1 == 0
    if not is_whole then return end
    local old, times = { limit = most, period_ns = period_us * 1000 }, {}
    sliding_window.prepare(old)
    -- A record that outlasts its key was written by no script.
    if begin_us(old, newest + old.steps) > until_s * 1e6 and until_s < kept_last_s then return end
    local is_back = at > old.step + old.steps
    if is_back then newest = newest - at + old.step end
    for at = 38, size, 2 do
      local step = newest - unpack_from('<H', saved, at)
      if step > old.step - old.steps and #times < most then times[#times + 1] = step end
    end
    return old, times, is_back
  end
  local was, previous, current, until_s, most, period_us = nil, nil, nil, 0
  if size == 44 then
    was, previous, current, until_s, most, period_us = unpack_from('<dddI4dd', saved)
  elseif size == 64 then
    -- Of leases (window_lease.lua). What a lowered limit did not hold there is owed in no later window.
    was, current, previous = unpack_from('<ddd', saved)
    most, period_us = unpack_from('<dd', saved, 49)
    period_us = ceil(period_us / 1000)
    was, current, previous = floor(was / period_us), ceil(current), ceil(previous)
    most = max(most, current, previous)
  end
  local is_record = was and is_count(was) and is_count(previous) and is_count(current) and is_plan(most, period_us, most)
  if not is_record then return end
  -- Both counts are over before their key expires.
  local is_brief = size == 44 and until_s < kept_last_s
  if is_brief and (was + 1 + ceil(current / most)) * period_us > until_s * 1e6 then return end
  return { limit = most, period_ns = period_us * 1000 }, nil, was, previous, current, until_s
end

-- A record of another plan. Returns whether it goes on under that, because it holds more than the lower limit of now.
local function open_changed(state, plan, old, times, was, previous, current)
  old.act = plan.act
  sliding_window.prepare(old)
  local index, spent
  if times then
    spent = spent_of(times, old)
  else
    index, previous, current = moved(old.index, was, previous, current, old.most)
    spent = estimate(index, previous, current, old.period_us)
  end
  local is_alike = old.period_us == plan.period_us
  state.is_scaled = true
  if is_alike and old.most > plan.most and spent > plan.most then
    state.less, state.holds, state.plan = old.most - plan.most, plan.most, old
    return true
  elseif is_alike and times and plan.steps and spent == #times then
    for index = 1, #times do
      local within = times[index] % old.steps
      times[index] = (times[index] - within) / old.steps * plan.steps + floor(within * plan.steps / old.steps)
    end
    state.times = times
  elseif is_alike and index and not plan.steps then
    state.index, state.previous, state.current = index, previous, current
  else
    spent = min(spent, plan.most + max(0, spent - old.most))
    if plan.steps then debit_few(state, spent) else state.current = spent end
  end
end

function sliding_window.open(state)
  local key, plan = state.key, state.plan
  local saved = heads[key] == nil and values[key] or string_of(key)
  state.index, state.previous, state.current, state.until_s, state.is_scaled = plan.index, 0, 0, 0, false
  state.times = plan.steps and {}
  if not saved then return end
  local old, times, was, previous, current, until_s = read(saved)
  -- A value that is no record counts as a spent window, so that a key cannot be reset by overwriting it.
  if not old then
    state.is_scaled = true
    if plan.steps then spend_few(state, plan.limit) else state.current = plan.most end
    return
  end
  if old.limit ~= plan.most or ceil(old.period_ns / 1000) ~= plan.period_us or (times == nil) ~= not plan.steps then
    if not open_changed(state, plan, old, times, was, previous, current) then return end
    plan = state.plan
  end
  state.times = times
  if times then
    state.is_scaled = state.is_scaled or was
    return
  end
  state.index, state.previous, state.current = moved(plan.index, was, previous, current, plan.most)
  -- If the clock was set far back, the counts are moved to the present window, and saved there even if nothing is
  -- spent.
  state.until_s, state.is_scaled = until_s, state.is_scaled or was > plan.index + 1
end

-- What window_lease.lua reads of a record: what is spent, of whose plan, as of when.
function sliding_window.carried(state, saved)
  local old, times, was, previous, current = read(saved)
  if not old then return false end
  sliding_window.prepare(old)
  state.limit, state.period_us = old.limit, old.period_us
  if times then
    state.at_us, state.count, state.before = now_us, spent_of(times, old), 0
  else
    state.at_us, state.count, state.before = was * old.period_us, current, previous
  end
  return true
end

local function end_us(state, windows)
  return (state.index + windows) * state.plan.period_us - now_us
end

local function remaining(state)
  if state.times then return state.plan.limit - #state.times end
  return max(0, state.plan.most - estimate(state.index, state.previous, state.current, state.plan.period_us))
end

-- The first microsecond at which a cost fits. The weighted count only shrinks, linearly within each window.
local function retry_us(state, cost)
  local most, period_us = state.plan.most, state.plan.period_us
  local weighs, room, windows = state.previous, most - cost - state.current, 0
  if room < 0 then
    windows = ceil(-room / most)
    local begun = state.current - (windows - 1) * most
    weighs = min(begun, most)
    room = most - cost - max(0, begun - most)
  end
  if room >= weighs then return end_us(state, windows) end
  local overlap_us, rest = scaled(period_us, room + 1, weighs)
  if rest == 0 then overlap_us = overlap_us - 1 end
  return end_us(state, windows) + period_us - overlap_us
end

function sliding_window.charges(run, at, said, plan, one, is_look)
  local values, heads = values, heads
  local number, index, most, period_us = run[at + 1], plan.index, plan.most, plan.period_us
  -- A log has no loop for runs.
  if plan.steps then return at + 3, one(run, at, said, plan) end
  local overlap_us = period_us - max(0, now_us - index * period_us)
  local reset_us = (index + 2) * period_us - now_us
  local until_s = (now_us + reset_us) / 1e6
  for at = at, #run, 3 do
    if run[at + 1] ~= number then return at, said end
    local key = run[at]
    local saved, remaining = values[key], -1
    local was, previous, current, kept_s, old_most, old_us, _
    if heads[key] == nil then
      if saved and #saved == 44 then
        was, previous, current, kept_s, old_most, old_us = unpack_from('<dddI4dd', saved)
      elseif not saved and is_nothing then
        was, previous, current, kept_s, old_most, old_us = index, 0, 0, 0, most, period_us
      end
    end
    if was and was >= 0 and previous >= 0 and current >= 0 then
      local ahead = index - was
      if ahead >= 1 then
        if current > most then
          _, previous, current = moved(index, was, previous, current, most)
        elseif ahead == 1 then
          previous, current = current, 0
        else
          previous, current = 0, 0
        end
      end
      if ahead >= 0 and old_most == most and old_us == period_us then
        local weighed = 0
        if previous > 0 then weighed = scaled(previous, overlap_us, period_us) end
        current = current + run[at + 2]
        remaining = most - weighed - current
        if remaining > most then remaining = -1 end
        if remaining >= 0 and not is_look then
          if kept_s >= until_s then
            heads[key] = pack('<ddd', index, previous, current)
          else
            keep(key, pack('<dddI4', index, previous, current, kept_until(key, kept_s, reset_us, 0)), plan.tail)
          end
        end
      end
    end
    if remaining >= 0 then
      run[said + 1], run[said + 2] = remaining, reset_us
      said = said + 2
    else
      said = one(run, at, said, plan)
    end
  end
  return #run + 1, said
end

function sliding_window.wait(state, cost)
  if cost > state.plan.most then return -1 end
  local short, times, plan = cost - remaining(state), state.times, state.plan
  if short <= 0 then return 0 end
  if times then return begin_us(plan, times[short] + plan.steps) - now_us end
  return retry_us(state, cost)
end

function sliding_window.left(state)
  local reset_us, times = 0, state.times
  if times and #times > 0 then
    reset_us = begin_us(state.plan, times[#times] + state.plan.steps) - now_us
  elseif state.current > 0 then
    reset_us = end_us(state, 1 + ceil(state.current / state.plan.most))
  elseif state.previous > 0 then
    reset_us = end_us(state, 1)
  end
  return remaining(state), reset_us
end

function sliding_window.spend(state, cost)
  if state.times then return spend_few(state, cost) end
  state.current = state.current + cost
end

function sliding_window.deny(state, cost)
  if state.times then return spend_few(state, min(cost, remaining(state))) end
  state.current = min(state.current + cost, max(state.plan.most, state.current))
end

function sliding_window.debit(state, cost, most)
  local times, plan = state.times, state.plan
  if times then
    if most then cost = min(cost, max(0, most * plan.limit - spent_of(times, plan))) end
    return debit_few(state, cost)
  end
  local current = min(state.current + cost, count_max)
  if most then current = max(state.current, min(current, most * state.plan.most)) end
  state.current = current
end

-- A unit of a log whose place was owed since: what was owed last is not.
local function back_few(times, plan, taken)
  for index = #times, 1, -1 do
    if times[index] == taken then return table.remove(times, index) end
  end
  for index = 1, #times do
    if times[index] > taken and (times[index] - taken) % plan.steps == 0 then
      return table.insert(times, 1, table.remove(times) - plan.steps)
    end
  end
end

function sliding_window.back(state, cost, taken_us)
  local times, plan = state.times, state.plan
  if times then
    for _ = 1, min(cost, plan.limit) do
      back_few(times, plan, step_of(plan, taken_us))
    end
    return
  end
  local ago = state.index - floor(taken_us / state.plan.period_us)
  if ago == 0 then
    state.current = max(0, state.current - cost)
  elseif ago == 1 then
    state.previous = max(0, state.previous - cost)
  end
end

function sliding_window.save(state, reset_us)
  local key, times = state.key, state.times
  if times then
    local count = #times
    if count == 0 then return keep(key, false) end
    local ages = {}
    for index = 1, count do
      ages[index] = times[count] - times[index]
    end
    -- Its length changes, so it is written whole, and its expiry with it.
    local until_s = kept_until(key, 0, reset_us, 0)
    local plan = state.plan
    local head = pack('<ddddI4B', times[count], plan.step, plan.limit, plan.period_us, until_s, 0)
    return keep(key, head .. pack('<' .. string.rep('H', count), unpack(ages)), '')
  end
  if state.current == 0 and state.previous == 0 then return keep(key, false) end
  local until_s = kept_until(key, state.until_s, reset_us, 0)
  keep(key, pack('<dddI4', state.index, state.previous, state.current, until_s), state.plan.tail)
end

return sliding_window
