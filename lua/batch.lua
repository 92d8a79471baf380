-- The dispatcher: one call carries the operations of many requests. The files of the operations stand before it.
--
-- KEYS  [1] the record of this batch, where ARGV[1] numbers it; then the keys of every operation, in their order
-- ARGV  [1] '<d'  the batch's number in its sender's sequence; 0: it keeps no record and is never sent twice
--       [2] '<d'  how long the record stays, milliseconds
--       [3…]      an operation each, little-endian: kind 'B', number of keys 'B', then
--                 1 renew   plan, epoch 'I4', demand reported rate pending hint spent delta keep 'd'
--                           each, release 'B'
--                 2 take    a part for each key
--                 3 return  taken_us 'd', a part for each key
--                 4 peek    one part
--                 5 debit   a part for each key
--                 6 hold    one part, the node 'c8', held lasts_us 'd' each
--                 plan: algorithm 'B', limit period_ns burst epoch_us 'd' each; part: plan, cost 'd', flags 'B'
--                 (1: shadow, 2: count denied)
-- returns one string: now_us 'd', then for every operation, in their order, a letter and
--       'G' a grant: epoch 'I4', tokens rate lasts_us deny_us level 'd' each
--       'T' taken: admitted 'B', then for each part wait_us (as take.lua says) remaining reset_us 'd' each
--       'R' returned, debited
--       'P' what is left or held, as one part of 'T'
--       'E' an error of this operation alone: length 'I2', text
-- errors with STALE where its sender has numbered a later batch on this record: this one came too late
--
-- A batch that is sent again, because its reply was lost, answers from its record what it answered, and does nothing.

local function plan_at(arg, at)
  local algorithm, limit, period_ns, burst, epoch_us, after = struct.unpack('<Bdddd', arg, at)
  return { algorithm = algorithm, limit = limit, period_ns = period_ns, burst = burst, epoch_us = epoch_us }, after
end

local function part_of(bytes)
  local part, at = plan_at(bytes, 1)
  local flags
  part.cost, flags = struct.unpack('<dB', bytes, at)
  part.shadow = flags % 2 == 1
  part.count_denied = flags >= 2
  return part
end

-- The operations of a batch are of few policies: what was read once is read no more. Nobody changes a part.
local known_parts = {}

local function parts_at(arg, at, count)
  local parts = {}
  for index = 1, count do
    local bytes = string.sub(arg, at, at + 41)
    local part = known_parts[bytes]
    if not part then
      part = part_of(bytes)
      known_parts[bytes] = part
    end
    parts[index] = part
    at = at + 42
  end
  return parts
end

local function outcome(told)
  return struct.pack('<ddd', told.wait_us, told.remaining, told.reset_us)
end

local function perform(kind, keys, arg, now_us)
  if kind == 1 then
    local r, at = plan_at(arg, 3)
    local release
    r.epoch, r.demand, r.reported, r.rate, r.pending, r.hint, r.spent, r.delta, r.keep, release =
      struct.unpack('<I4ddddddddB', arg, at)
    r.release = release == 1
    local g = lease_renew(keys[1], now_us, r)
    return struct.pack('<c1I4ddddd', 'G', g.epoch, g.tokens, g.rate, g.lasts_us, g.deny_us, g.level)
  elseif kind == 2 then
    local taken = take(keys, parts_at(arg, 3, #keys), now_us)
    if #keys == 1 then
      local told = taken[1]
      local admitted = taken.admitted and 1 or 0
      return struct.pack('<c1Bddd', 'T', admitted, told.wait_us, told.remaining, told.reset_us)
    end
    local reply = { struct.pack('<c1B', 'T', taken.admitted and 1 or 0) }
    for index = 1, #keys do
      reply[index + 1] = outcome(taken[index])
    end
    return table.concat(reply)
  elseif kind == 3 then
    local taken_us, at = struct.unpack('<d', arg, 3)
    give_back(keys, parts_at(arg, at, #keys), taken_us, now_us)
    return 'R'
  end
  if kind == 5 then
    debit(keys, parts_at(arg, 3, #keys), now_us)
    return 'R'
  elseif kind == 6 then
    local node, held, lasts_us = struct.unpack('<c8dd', arg, 45)
    return 'P' .. outcome(hold(keys[1], parts_at(arg, 3, 1)[1], node, held, lasts_us, now_us))
  end
  return 'P' .. outcome(peek(keys[1], parts_at(arg, 3, 1)[1], now_us))
end

local number = struct.unpack('<d', ARGV[1])
local next_key = 1
if number > 0 then
  next_key = 2
  local record = redis.pcall('GET', KEYS[1])
  if type(record) == 'string' and #record >= 8 then
    local last = struct.unpack('<d', record)
    if last == number then
      return string.sub(record, 9)
    elseif last > number then
      return redis.error_reply('STALE a later batch was answered here')
    end
  end
end

local now_us = clock_us()
local replies = { struct.pack('<d', now_us) }
for index = 3, #ARGV do
  local arg = ARGV[index]
  local kind, count = string.byte(arg, 1, 2)
  local keys = {}
  for key = 1, count do
    keys[key] = KEYS[next_key]
    next_key = next_key + 1
  end
  local is_done, reply = pcall(perform, kind, keys, arg, now_us)
  if not is_done then
    local text = type(reply) == 'table' and reply.err or tostring(reply)
    text = string.sub(text, 1, 200)
    reply = struct.pack('<c1I2', 'E', #text) .. text
  end
  replies[index - 1] = reply
end
local answer = table.concat(replies)
if number > 0 then
  local kept = struct.pack('<d', number) .. answer
  local stays_ms = struct.unpack('<d', ARGV[2])
  redis.pcall('SET', KEYS[1], kept, 'PX', stays_ms)
end
return answer
