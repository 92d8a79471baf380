-- Exact charges: all of them or none, at one instant.
--
-- KEYS  one for each part, handed on by the dispatcher
-- ARGV  none of its own: parts { algorithm, limit, period_ns, burst, cost, shadow, count_denied }; algorithms are
--       numbered 1 token bucket, 2 fixed window, 3 sliding window, 4 sliding log, 5 leaky bucket (6, permits, are held
--       and not taken: concurrency.lua)
-- take(keys, parts, now_us)                 returns admitted, and for each part what its window said
-- give_back(keys, parts, taken_us, now_us)  undoes it
-- debit(keys, parts, now_us)                spends what is known only now, whether it fits or not
-- peek(key, part, now_us)                   says what take would, and spends nothing
-- what a window says: wait_us (0: it fits; above: until it does; -1: never; below: it fits, after -1 - wait_us),
--       remaining (units), reset_us (until it is whole)
--
-- An algorithm opens its key as it is now, tells what a cost would meet, changes what it opened, and saves it. Nothing
-- is saved before everything is opened, so a key that holds something else fails before anything is spent.

local algorithms = { token_bucket, fixed_window, sliding_window, sliding_log, leaky_bucket }

local function algorithm_of(part)
  return algorithms[part.algorithm] or error('ALGORITHM ' .. tostring(part.algorithm) .. ' is none that is taken')
end

local function is_refused(told)
  return told.wait_us > 0 or told.wait_us == -1
end

local function take(keys, parts, now_us)
  local told, states = { admitted = true }, {}
  for index, part in ipairs(parts) do
    states[index] = algorithm_of(part).open(keys[index], now_us, part)
    told[index] = algorithm_of(part).told(states[index], part.cost)
    if is_refused(told[index]) and not part.shadow then told.admitted = false end
  end
  for index, part in ipairs(parts) do
    local algorithm, state, wait_us = algorithm_of(part), states[index], told[index].wait_us
    if is_refused(told[index]) then
      if part.count_denied then
        algorithm.deny(state, part.cost)
        wait_us = algorithm.told(state, part.cost).wait_us
      end
      if part.count_denied or state.is_scaled then algorithm.save(state) end
    elseif told.admitted or part.count_denied then
      algorithm.spend(state, part.cost)
      algorithm.save(state)
    elseif state.is_scaled then
      -- What a changed plan found goes on under the new one from here.
      algorithm.save(state)
    end
    -- What is left: with the cost where it was taken, without where not.
    local left = algorithm.told(state, 0)
    if not told.admitted and wait_us < -1 then wait_us = 0 end
    told[index] = { wait_us = wait_us, remaining = left.remaining, reset_us = left.reset_us }
  end
  return told
end

local function give_back(keys, parts, taken_us, now_us)
  for index, part in ipairs(parts) do
    -- A key that is gone was whole when it left.
    if redis.call('EXISTS', keys[index]) == 1 then
      local state = algorithm_of(part).open(keys[index], now_us, part)
      algorithm_of(part).back(state, part.cost, taken_us)
      algorithm_of(part).save(state)
    end
  end
end

local function debit(keys, parts, now_us)
  for index, part in ipairs(parts) do
    local state = algorithm_of(part).open(keys[index], now_us, part)
    algorithm_of(part).debit(state, part.cost)
    algorithm_of(part).save(state)
  end
end

local function peek(key, part, now_us)
  local state = algorithm_of(part).open(key, now_us, part)
  local told = algorithm_of(part).told(state, part.cost)
  if is_refused(told) then return told end
  algorithm_of(part).spend(state, part.cost)
  local left = algorithm_of(part).told(state, 0)
  return { wait_us = told.wait_us, remaining = left.remaining, reset_us = left.reset_us }
end
