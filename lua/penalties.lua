-- Penalties of a fleet: adds the denials that a node reports to the records of their clients, and tells the node which
-- penalties have begun anywhere. Times are milliseconds, lengths of penalties seconds. limit/penalty.rs has the same arithmetic.
--
-- KEYS  [1] a sorted set of penalties by when they began, microseconds, each of its own: a client's key (16 bytes), when
--       the penalty ends, its length, the rule's `within`; [2...] the records of clients: when the stretch began, when the
--       penalty ends, its length, the denials in the stretch
-- ARGV  [1] the last penalty that the node has heard of, [2] the most to tell at once, [3] the most to keep;
--       [4...] a report for each record: the client's key, denials, the wait it was told (seconds), for how much longer the
--       node's own penalty lasts, its length, and the rule: after, within, factor, max
-- returns the last penalty told, and what there is to know of clients, 64 bytes each: the key, since when the client is quiet,
--       since when the stretch lasts, what is left of the penalty, its length, the denials in the stretch, `within`

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local begun, heard = KEYS[1], tonumber(ARGV[1])
local newest = tonumber(redis.call('ZRANGE', begun, -1, -1, 'WITHSCORES')[2] or 0)
-- Redis has lost its data.
if newest < heard then heard = 0 end
local known, before = {}, newest

for i = 2, #KEYS do
  local client = string.sub(ARGV[i + 2], 1, 16)
  local denials, told, left, own, after, within, factor, most = struct.unpack('<dddddddd', ARGV[i + 2], 17)
  local began, ends, length, count = now, 0, 0, 0
  local record = redis.pcall('GET', KEYS[i])
  if type(record) == 'string' and #record == 32 then
    began, ends, length, count = struct.unpack('<dddd', record)
    -- A record from the future was made before the clock was set back.
    began, ends = math.min(began, now), math.min(ends, now + most * 1000)
  end
  if count == 0 or now - began > within then began, count = now, 0 end
  count = count + denials
  local strikes = math.floor(count / (after + 1))
  if strikes > 0 then
    if length == 0 then length = told end
    -- After 17 any length has grown beyond a day.
    for _ = 1, math.min(strikes, 17) do length = math.min(length * factor, most) end
    began, ends, count = now, now + length * 1000, count % (after + 1)
    -- The node has counted these denials, too, and its penalty is the one that the client was told.
    if left > 0 and (factor == 1 or own * factor > length and length * factor > own) then
      ends, length = now + left, own
    end
  end
  -- By less than a second it only seems to be longer, because reports take time.
  local is_told = strikes > 0
  if now + left > ends + 1000 then
    ends, length, is_told = now + left, math.max(length, own), true
  end
  -- A record that expires is that of a client who is forgiven.
  redis.call('SET', KEYS[i], struct.pack('<dddd', began, ends, length, count), 'PX', math.max(within, length * 1000) + 1)
  known[#known + 1] = client .. struct.pack('<dddddd', 0, now - began, math.max(ends - now, 0), length, count, within)
  if is_told then
    newest = math.max(newest + 1, time[1] * 1000000 + time[2])
    redis.call('ZADD', begun, string.format('%.0f', newest), client .. struct.pack('<ddd', ends, length, within))
  end
end
if newest > before then
  redis.call('ZREMRANGEBYRANK', begun, 0, -1 - ARGV[3])
  redis.call('PEXPIRE', begun, 86400000)
end

local found = redis.call('ZRANGEBYSCORE', begun, string.format('(%.0f', heard), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #found, 2 do
  local ends, length, within = struct.unpack('<ddd', found[i], 17)
  local quiet = math.max(now - math.floor(found[i + 1] / 1000), 0)
  if ends > now then
    known[#known + 1] = string.sub(found[i], 1, 16) .. struct.pack('<dddddd', quiet, quiet, ends - now, length, 0, within)
  end
end
return { tonumber(found[#found] or newest), table.concat(known) }
