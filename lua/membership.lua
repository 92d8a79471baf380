-- Counts the nodes of a fleet: each reports once a second that it is there.
--
-- KEYS  [1] a sorted set of nodes by the time of their last report, milliseconds
-- ARGV  [1] the node, [2] 1: it is there; 0: it leaves
-- returns those that have reported within five seconds

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] == '1' then
  redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - 5000)
-- A report from the future was made before the clock was set back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now_ms + 5000, '+inf')
redis.call('PEXPIRE', KEYS[1], 10000)
return redis.call('ZRANGE', KEYS[1], 0, -1)
