-- Leaky bucket as a queue: a token bucket of `burst` waiting units plus the one being served.
--
-- KEYS  as token_bucket.lua
-- ARGV  none of its own
-- returns an algorithm; an admission that has to wait for its turn tells it as wait_us = -1 - delay_us
--
-- The units missing from the bucket are those queued before a request, and its delay is the time until they have
-- drained.

local leaky_bucket = {}
for name, act in pairs(module(1)) do
  leaky_bucket[name] = act
end
local prepare, wait = leaky_bucket.prepare, leaky_bucket.wait
leaky_bucket.charges = nil

function leaky_bucket.prepare(plan)
  prepare(plan, plan.burst + 1)
end

function leaky_bucket.wait(state, cost)
  local wait_us = wait(state, cost)
  if wait_us == 0 and state.missing > 0 then
    local _, delay_us = leaky_bucket.left(state)
    if delay_us > 0 then return -1 - delay_us end
  end
  return wait_us
end

return leaky_bucket
