-- Takes a key from a server that had it before the ring changed. Its value goes to the new server. Here a spent limit
-- replaces it, so that nodes that do not know of the change yet find no second burst.
--
-- KEYS  [1] the key
-- ARGV  what stands for one that has left
-- returns its value as DUMP has it, and how long it is kept, milliseconds; nothing where there is none

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then return {} end
local value, lasts_ms = redis.call('DUMP', KEYS[1]), redis.call('PTTL', KEYS[1])
if lasts_ms > 0 then redis.call('SET', KEYS[1], ARGV[1], 'PX', lasts_ms) end
return { value, math.max(0, lasts_ms) }
