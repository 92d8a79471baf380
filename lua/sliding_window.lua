-- Sliding window: the count of the present aligned window, plus the count of the one before weighted by how much of it
-- still overlaps.
--
-- KEYS  the key of one window, by its index: one string of 44 bytes: index, previous, current 'd' each, until_s 'I4';
--       the plan it was written under: limit, period_us 'd' each (see keys.lua)
-- ARGV  none of its own: a plan (limit, period_ns)
-- returns an algorithm: prepare, open, wait, left, spend, deny, debit, back, save, charges (see take.lua)
--
-- What weighs is rounded up to a unit, and exact before: products beyond 2^53 are taken apart. Periods beyond 2^51
-- microseconds (71 years) are not. A changed limit keeps both counts, a changed period what they weigh together. A
-- count above the limit is a debt: when its window ends, one limit of it weighs, and the rest counts in the next.

local count_max = 2 ^ 44 - 1

local sliding_window = {}

function sliding_window.prepare(plan)
  plan.period_us = ceil(plan.period_ns / 1000)
  plan.index = floor(now_us / plan.period_us)
  plan.most = min(plan.limit, count_max)
  plan.tail = pack('<dd', plan.most, plan.period_us)
end

local function estimate(index, previous, current, period_us)
  if previous == 0 then return current end
  local elapsed_us = max(0, now_us - index * period_us)
  local weighed, rest = scaled(previous, period_us - elapsed_us, period_us)
  if rest > 0 then weighed = weighed + 1 end
  return weighed + current
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

-- A record of another plan. Returns whether it goes on under that, because it holds more than the lower limit of now.
local function open_changed(state, plan, saved, was, previous, current)
  local most, period_us = unpack_from('<dd', saved, 29)
  local index
  index, previous, current = moved(floor(now_us / period_us), was, previous, current, most)
  local spent = estimate(index, previous, current, period_us)
  if period_us ~= plan.period_us then
    state.current, state.is_scaled = min(spent, plan.most + max(0, spent - most)), true
  elseif most > plan.most and spent > plan.most then
    state.less, state.holds = most - plan.most, plan.most
    state.plan = { limit = most, period_ns = period_us * 1000, act = plan.act }
    sliding_window.prepare(state.plan)
    return true
  else
    state.index, state.previous, state.current, state.is_scaled = index, previous, current, true
  end
end

function sliding_window.open(state)
  local key, plan = state.key, state.plan
  local saved = heads[key] == nil and values[key] or string_of(key)
  state.index, state.previous, state.current, state.until_s, state.is_scaled = plan.index, 0, 0, 0, false
  if not saved then return end
  local was, previous, current, until_s
  if #saved == 44 then was, previous, current, until_s = unpack_from('<dddI4', saved) end
  local is_record = was and was >= 0 and was < exact and previous >= 0 and previous < exact and current >= 0
    and current < exact
  local is_ours = sub(saved, 29) == plan.tail
  if is_record and not is_ours then
    local most, period_us = unpack_from('<dd', saved, 29)
    is_record = is_count(most) and most >= 1 and period_us >= 1
  end
  -- A value that is no record counts as a spent window, so that a key cannot be reset by overwriting it.
  if not is_record then
    state.current, state.is_scaled = plan.most, true
    return
  end
  if not is_ours then
    if not open_changed(state, plan, saved, was, previous, current) then return end
    plan = state.plan
  end
  state.index, state.previous, state.current = moved(plan.index, was, previous, current, plan.most)
  -- If the clock was set far back, the counts are moved to the present window, and saved there even if nothing is
  -- spent.
  state.until_s, state.is_scaled = until_s, was > plan.index + 1
end

local function end_us(state, windows)
  return (state.index + windows) * state.plan.period_us - now_us
end

local function remaining(state)
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
  local overlap_us = scaled(period_us, min(room, weighs), max(1, weighs))
  return end_us(state, windows) + period_us - overlap_us
end

function sliding_window.charges(run, at, said, plan, one, is_look)
  local values, heads = values, heads
  local number, index, most, period_us = run[at + 1], plan.index, plan.most, plan.period_us
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
    if was then
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
        if previous > 0 then
          local rest
          weighed, rest = scaled(previous, overlap_us, period_us)
          if rest > 0 then weighed = weighed + 1 end
        end
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
  if cost > remaining(state) then return retry_us(state, cost) end
  return 0
end

function sliding_window.left(state)
  local reset_us = 0
  if state.current > 0 then
    reset_us = end_us(state, 1 + ceil(state.current / state.plan.most))
  elseif state.previous > 0 then
    reset_us = end_us(state, 1)
  end
  return remaining(state), reset_us
end

function sliding_window.spend(state, cost)
  state.current = state.current + cost
end

function sliding_window.deny(state, cost)
  state.current = min(state.current + cost, max(state.plan.most, state.current))
end

function sliding_window.debit(state, cost, most)
  local current = min(state.current + cost, count_max)
  if most then current = max(state.current, min(current, most * state.plan.most)) end
  state.current = current
end

function sliding_window.back(state, cost, taken_us)
  local ago = state.index - floor(taken_us / state.plan.period_us)
  if ago == 0 then
    state.current = max(0, state.current - cost)
  elseif ago == 1 then
    state.previous = max(0, state.previous - cost)
  end
end

function sliding_window.save(state, reset_us)
  local key = state.key
  if state.current == 0 and state.previous == 0 then return keep(key, false) end
  local until_s = kept_until(key, state.until_s, reset_us, 0)
  keep(key, pack('<dddI4', state.index, state.previous, state.current, until_s), state.plan.tail)
end

return sliding_window
