-- Which ring this server is in: the layout that nodes reported last, and the one before.
--
-- KEYS  [1] a string of three: the layout, since when (seconds), the layout before
-- ARGV  the asking node's layout, and now (seconds)
-- returns the layout before and for how many seconds it has been another

local known = redis.call('GET', KEYS[1]) or ''
local current, since, before = string.match(known, '^(.-)\n\n(%d+)\n(.*)$')
if current ~= ARGV[1] then
  before, since = current or '', ARGV[2]
  redis.call('SET', KEYS[1], ARGV[1] .. '\n\n' .. since .. '\n' .. before)
end
return { before, math.max(0, tonumber(ARGV[2]) - tonumber(since)) }
