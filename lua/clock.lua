-- The clock of all shared limits is Redis' own, because the clocks of nodes differ.
-- returns microseconds since 1970, a whole number below 2^53

local function clock_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
