-- Exact charges: all of them or none, at one instant.
--
-- KEYS  by their indices in the parts
-- ARGV  none of its own: parts { key, plan, cost, flags }; flags: 1 shadow, 2 count denied. Plans { algorithm, limit,
--       period_ns, burst }; algorithms are numbered 1 token bucket, 2 fixed window, 3 sliding window, 4 sliding log,
--       5 leaky bucket (6, permits, are held and not taken: concurrency.lua)
-- take(parts, count)                returns whether all parts are admitted; sets the outcome in each part
-- give_back(parts, count, taken_us) undoes a take
-- debit(parts, count)               spends a cost that became known later, even if it does not fit
-- repay(parts, count)               as debit, but no more than one whole limit is owed after it
-- report(parts, count, spent_us)    counts what was admitted without Redis, as much of it as is left, so that nothing is
--                                   owed; units of a fixed window that is over are forgotten
-- peek(part)                        returns the outcome that take would set, and spends nothing
-- outcome: wait_us (0: it fits; above 0: time until it does; -1: never; below -1: it fits after -1 - wait_us),
--       remaining (units), reset_us (time until nothing is spent)
--
-- charges(run, at, said, plan, one, is_look): performs charges of one part and one plan in one loop, because a function
-- call in Lua costs more than a charge. An algorithm need not have it. `run` holds key, plan and cost of each charge;
-- it is processed from `at` on while the plan is the same. Replies are written back into `run` from said + 1 on:
-- remaining, reset_us. A charge that is not simply admitted is passed to one(run, at, said, plan), which returns the
-- new `said`. If is_look, nothing is saved. Returns where the next charge begins, and `said`.
--
-- open(part, is_look): if is_look, later charges of the call must not see any change.
--
-- An algorithm prepares each plan once a call. `open` reads a part's key as of now into the part; `wait` returns how
-- long a cost has to wait; `spend`, `deny`, `debit` and `back` change the part; `left` returns what is left; `save`
-- stores it; `is_over`, if there is one, says whether a time was in another window. What was spent stays spent under a changed plan, in units, as src/limit/state.rs has it. No part is saved before all are open, so an error in one key comes before anything is spent.

local acts = {}

local function prepare(plan)
  local number = plan.algorithm
  local act = acts[number]
  if not act then
    if number > 5 then error('ALGORITHM ' .. tostring(number) .. ' is none that is taken') end
    act = module(number)
    acts[number] = act
  end
  act.prepare(plan)
  plan.act = act
  return act
end

local function open(act, part, is_look)
  part.less, part.holds = nil, nil
  act.open(part, is_look)
end

-- A record that holds more than a lower limit of now stays under the plan it was written under, which `open` has put in
-- place of the part's: so much less is left of it (`less`), and no cost above the limit of now (`holds`) ever fits.
local function wait(act, part, cost)
  if not part.less then return act.wait(part, cost) end
  if cost > part.holds then return -1 end
  return act.wait(part, cost + part.less)
end

local function left(act, part)
  local remaining, reset_us = act.left(part)
  return part.less and max(0, remaining - part.less) or remaining, reset_us
end

-- A part whose key and plan a part before it has: what that takes is not there for this one.
local function first_of(parts, index)
  local part = parts[index]
  for before = 1, index - 1 do
    if parts[before].key == part.key and parts[before].plan == part.plan then return parts[before] end
  end
end

local function take(parts, count)
  local is_admitted = true
  for index = 1, count do
    local part = parts[index]
    local act = part.plan.act or prepare(part.plan)
    local first = first_of(parts, index)
    open(act, part)
    part.is_again, part.together = first ~= nil, part.cost
    local wait_us = wait(act, part, part.cost + (first and first.together or 0))
    part.wait_us = wait_us
    local is_refused = wait_us > 0 or wait_us == -1
    if is_refused and part.flags % 2 == 0 then is_admitted = false end
    if first and not is_refused then first.together = first.together + part.cost end
  end
  for index = 1, count do
    local part = parts[index]
    local act, wait_us, is_changed = part.plan.act, part.wait_us, part.is_scaled
    -- As the part before it has left the key.
    if part.is_again then open(act, part) end
    if wait_us > 0 or wait_us == -1 then
      if part.flags >= 2 and not part.less then
        act.deny(part, part.cost)
        part.wait_us = act.wait(part, part.cost)
        is_changed = true
      end
    elseif is_admitted or part.flags >= 2 then
      act.spend(part, part.cost)
      is_changed = true
    end
    -- What is left, after the cost if it was spent.
    part.remaining, part.reset_us = left(act, part)
    -- A record of an older plan was converted, which must be saved even if nothing is spent.
    if is_changed then act.save(part, part.reset_us) end
    if wait_us < -1 and not is_admitted then part.wait_us = 0 end
  end
  return is_admitted
end

local function change(verb, parts, count, taken_us)
  for index = 1, count do
    local part = parts[index]
    local act = part.plan.act or prepare(part.plan)
    open(act, part)
    if verb ~= 'report' then
      act[verb](part, part.cost, taken_us)
    elseif not (act.is_over and act.is_over(part, taken_us)) then
      act.spend(part, min(part.cost, (left(act, part))))
    end
    local _, reset_us = act.left(part)
    act.save(part, reset_us)
  end
end

local function give_back(parts, count, taken_us)
  change('back', parts, count, taken_us)
end

local function debit(parts, count)
  change('debit', parts, count)
end

local function repay(parts, count)
  change('debit', parts, count, 2)
end

local function report(parts, count, spent_us)
  change('report', parts, count, spent_us)
end

local function peek(part)
  local act = part.plan.act or prepare(part.plan)
  open(act, part, true)
  local wait_us = wait(act, part, part.cost)
  if wait_us <= 0 and wait_us ~= -1 then act.spend(part, part.cost) end
  return wait_us, left(act, part)
end
