-- Leaky bucket as a queue: the token bucket's grains, of a bucket of `burst` units that wait and the one that goes on.
--
-- KEYS  as token_bucket.lua
-- ARGV  none of its own
-- returns as token_bucket.lua; an admission that has to wait for its turn tells it as wait_us = -1 - delay_us
--
-- What is missing when a request comes stands before it, and its delay is the time until that has drained.

local leaky_bucket = {}
for name, act in pairs(token_bucket) do
  leaky_bucket[name] = act
end

function leaky_bucket.open(key, now_us, part)
  return bucket_open(key, now_us, part, part.burst + 1)
end

function leaky_bucket.told(s, cost)
  local told = token_bucket.told(s, cost)
  if told.wait_us == 0 and s.missing > 0 then
    local delay_us = bucket_wait_us(s, s.missing)
    if delay_us > 0 then told.wait_us = -1 - delay_us end
  end
  return told
end
