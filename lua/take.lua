-- Exact charges: all of them or none, at one instant.
--
-- KEYS  by their indices in the parts
-- ARGV  none of its own: parts { key, plan, cost, flags }; flags: 1 shadow, 2 count denied. Plans { algorithm, limit,
--       period_ns, burst }; algorithms are numbered 1 token bucket, 2 fixed window, 3 sliding window, 4 sliding log,
--       5 leaky bucket (6, permits, are held and not taken: concurrency.lua)
-- take(parts, count)                returns whether they are admitted; each part has what its window said
-- give_back(parts, count, taken_us) undoes it
-- debit(parts, count)               spends what is known only now, whether it fits or not
-- peek(part)                        says what take would, and spends nothing
-- what a window says: wait_us (0: it fits; above: until it does; -1: never; below: it fits, after -1 - wait_us),
--       remaining (units), reset_us (until it is whole)
--
-- charges(run, at, said, plan, one, is_look): charges that are alone and of one plan, in one loop, for calls cost more in
-- Lua than what they do. An algorithm may have it. `run` is the numbers key, plan, cost of each charge; from `at` on they
-- are gone through while the plan is the same. What they say stands in `run` again, from said + 1 on: remaining, reset_us.
-- One that is not simply admitted goes the long way, one(run, at, said, plan), which returns `said`. Of looks nothing is
-- kept. Returns where the next begins, and `said`.
--
-- open(part, is_look): what is only looked at changes nothing that other charges of the call find.
--
-- An algorithm prepares a plan once a call. It opens a part's key as it is now and keeps what it found in the part; it
-- tells how long a cost has to wait, changes what it found, says what is left of it, and saves it. Nothing is saved
-- before everything is open, so a key that holds something else fails before anything is spent.

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

local function take(parts, count)
  local is_admitted = true
  for index = 1, count do
    local part = parts[index]
    local act = part.plan.act or prepare(part.plan)
    act.open(part)
    local wait_us = act.wait(part, part.cost)
    part.wait_us = wait_us
    if (wait_us > 0 or wait_us == -1) and part.flags % 2 == 0 then is_admitted = false end
  end
  for index = 1, count do
    local part = parts[index]
    local act, wait_us, is_changed = part.plan.act, part.wait_us, part.is_scaled
    if wait_us > 0 or wait_us == -1 then
      if part.flags >= 2 then
        act.deny(part, part.cost)
        part.wait_us = act.wait(part, part.cost)
        is_changed = true
      end
    elseif is_admitted or part.flags >= 2 then
      act.spend(part, part.cost)
      is_changed = true
    end
    -- What is left: with the cost where it was taken, without where not.
    part.remaining, part.reset_us = act.left(part)
    -- What a changed plan found goes on under the new one from here.
    if is_changed then act.save(part, part.reset_us) end
    if wait_us < -1 and not is_admitted then part.wait_us = 0 end
  end
  return is_admitted
end

local function change(verb, parts, count, taken_us)
  for index = 1, count do
    local part = parts[index]
    local act = part.plan.act or prepare(part.plan)
    act.open(part)
    act[verb](part, part.cost, taken_us)
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

local function peek(part)
  local act = part.plan.act or prepare(part.plan)
  act.open(part, true)
  local wait_us = act.wait(part, part.cost)
  if wait_us <= 0 and wait_us ~= -1 then act.spend(part, part.cost) end
  return wait_us, act.left(part)
end
