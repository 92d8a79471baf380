-- The dispatcher: one call carries the operations of many requests. It comes last, after the files of the operations.
--
-- KEYS  [1] the record of this batch, if ARGV[1] gives it a number; then, if units are returned, the key that says since when
--           the server has its data: 12 bytes, since_us 'd', until_s 'I4'; then the keys of the operations, each once
-- ARGV  [1] '<dd'  the batch's number in its sender's sequence, or 0 if it has no record and is never sent twice; how
--           long the record is kept, milliseconds; then the plans, each: algorithm 'B', limit period_ns burst epoch_us
--           'd' each. To the number of the algorithm 128 is added if the windows are of the calendar; then follow the number of
--           a window and when it and the three after it begin, microseconds since 1970 'd' each
--       [2] the operations, little-endian: kind 'B', parts of the operation 'B', the parts, and then
--                 1 renew   one part without a cost; epoch 'I4', demand reported rate pending hint spent refilled delta
--                           keep 'd' each; how many costs 'B', the costs 'd' each (none: a unit each)
--                 2 take
--                 3 return  taken_us 'd', the key of since when there is data 'B', 0: none. Older units were lost with it
--                 4 peek
--                 5 debit, or repay if the flags are 1, or report if they are 2: then follows spent_us 'd'
--                 6 hold    the node 'c8', held lasts_us 'd' each
--                 7 look, which changes nothing, not even a record of an older plan
--                 8 a run of takes, 9 a run of peeks, each of one part without flags. In place of the number of parts
--                   is that of the charges, and for each charge follow key plan cost 'B' each, the cost at least 1
--                 part: key plan 'H' each, the cost's units 'B', flags 'B' (1: shadow, 2: count denied, 4: the cost
--                 follows as a 'd', 8: the lease is released, 16: a lease is wanted even if the limit is small); key
--                 and plan are indices into KEYS and the plans, from 1
-- returns one string: now_us 'd', then for every operation, in their order, a letter and
--       'G' a grant: epoch 'I4', tokens rate lasts_us deny_us level wait_us 'd' each
--       'T' taken: admitted 'B', then for each part wait_us (as take.lua says) remaining reset_us 'd' each
--       'C' a run: how many 'B', then for each charge: remaining reset_us 'd' each if it is admitted without a wait;
--           otherwise -2 - remaining, reset_us, wait_us 'd' each; or an error: -1 'd', length 'I2', text
--       'R' returned, debited or reported
--       'P' peeked or held: as one part of 'T'
--       'L' looked at: as one part of 'T', zeros for a lease; then the key's string: length 'B', bytes. If a leased key
--           has a string of exact charges still, that as leases will read it, and a one for what remains
--       'E' an error of this operation alone: length 'I2', text
-- if keys of a wrong type were replaced, before all that: -2 'd', how many 'd'
-- if nothing could be written, only: -1 'd', length 'I2', text
-- fails with STALE if the record holds a later number of its sender: this batch has arrived too late
--
-- A batch that is sent again because its reply was lost is answered from its record and changes nothing.

local byte = string.byte
local head, asked = ARGV[1], ARGV[2]
local renew, perform
-- Where the next operation begins in `asked`, or the next part of the current one.
local at = 1
local plans, parts = {}, {}

-- Renewals have a loop of their own, because most calls consist of nothing else.
local function renewing()
  local lease_renew = module(7)

  return function()
    local key, plan, flags, epoch, demand, reported, rate, pending, hint, spent, refilled, delta, keep, count, costs, _
    key, plan, _, flags, epoch, demand, reported, rate, pending, hint, spent, refilled, delta, keep, count, at =
      unpack_from('<HHBBI4dddddddddB', asked, at)
    if count > 0 then
      costs = {}
      for index = 1, count do
        costs[index], at = unpack_from('<d', asked, at)
      end
    end
    plan = plans[plan]
    local is_release, is_ahead = flags % 16 >= 8, flags >= 16
    return pack('<BI4dddddd', 71, lease_renew(key, plan, epoch, demand, reported, rate, pending, hint, spent, refilled,
      delta, keep, is_release, is_ahead, costs))
  end
end

-- All operations but renewals and runs. These functions are defined only if a call needs them: a call of runs would pay
-- more for defining them than for its charges.
local function performing()
  -- The tables are reused by the next operation, because no operation keeps one.
  local function read_part(index)
    local part = parts[index]
    if not part then
      part = {}
      parts[index] = part
    end
    local key, key_high, plan, plan_high, cost, flags = byte(asked, at, at + 5)
    at = at + 6
    if flags >= 4 then
      if flags % 8 >= 4 then cost, at = unpack_from('<d', asked, at) end
      flags = flags % 4
    end
    part.key, part.plan, part.cost, part.flags = key + 256 * key_high, plans[plan + 256 * plan_high], cost, flags
  end

  local function taken(count)
    local admitted = take(parts, count) and 1 or 0
    local part = parts[1]
    if count == 1 then return pack('<BBddd', 84, admitted, part.wait_us, part.remaining, part.reset_us) end
    local said = { pack('<BB', 84, admitted) }
    for index = 1, count do
      part = parts[index]
      said[index + 1] = pack('<ddd', part.wait_us, part.remaining, part.reset_us)
    end
    return table.concat(said)
  end

  local function look(part)
    local plan, saved = part.plan, ''
    local wait_us, remaining, reset_us = 0, 0, 0
    if plan.algorithm == 6 then
      local _, free = module(6)
      wait_us, remaining, reset_us = free(part.key, plan, part.cost)
    elseif plan.epoch_us == 0 then
      wait_us, remaining, reset_us = peek(part)
    end
    -- Logs and permits are not strings.
    if plan.algorithm ~= 4 and plan.algorithm ~= 6 then saved = string_of(part.key) or '' end
    if plan.epoch_us > 0 and #saved > 0 then
      local _, carried = module(7)
      carried = carried(saved, plan)
      if carried then saved, remaining = carried, 1 end
    end
    saved = sub(saved, 1, 255)
    return pack('<BdddB', 76, wait_us, remaining, reset_us, #saved) .. saved
  end

  -- Since when the server has its data: since a connection was opened to it, or if nobody has noted that, the oldest units
  -- that are known of, or now.
  local function since_us(key, taken_us)
    local saved, since, until_s = string_of(key), -1, 0
    if saved and #saved == 12 then since, until_s = unpack_from('<dI4', saved) end
    if not (since >= 0 and since <= now_us) then
      since, until_s = taken_us > 0 and min(taken_us, now_us) or now_us, 0
    end
    local month_us = 30 * 86400e6
    local kept_s = kept_until(key, until_s, month_us, month_us)
    if kept_s ~= until_s then keep(key, pack('<dI4', since, kept_s), '') end
    return since
  end

  return function(kind, count)
    for index = 1, count do
      read_part(index)
    end
    if kind == 2 then return taken(count) end
    if kind == 3 then
      local taken_us, since
      taken_us, since, at = unpack_from('<dB', asked, at)
      if since == 0 or taken_us >= since_us(since, taken_us) then give_back(parts, count, taken_us) end
      return 'R'
    elseif kind == 5 then
      local flags = parts[1].flags
      if flags == 2 then
        local spent_us
        spent_us, at = unpack_from('<d', asked, at)
        report(parts, count, spent_us)
      elseif flags == 1 then
        repay(parts, count)
      else
        debit(parts, count)
      end
      return 'R'
    elseif kind == 6 then
      local node, held, lasts_us
      node, held, lasts_us, at = unpack_from('<c8dd', asked, at)
      local part, hold = parts[1], module(6)
      return pack('<Bddd', 80, hold(part.key, part.plan, part.cost, node, held, lasts_us))
    elseif kind == 7 then
      return look(parts[1])
    end
    return pack('<Bddd', 80, peek(parts[1]))
  end
end

local replies = {}
-- The current run of charges or peeks: key, plan and cost of each. `run_at` is where to continue. Replies overwrite the
-- charges that are done; `said` is how many numbers of `run` are replies.
local run, run_at, said, is_look

-- A charge of a run that is not simply admitted, or whose algorithm has no loop for runs.
local function one(run, at, before, plan)
  run_at, said = at + 3, before
  local part = parts[1] or {}
  parts[1] = part
  part.key, part.plan, part.cost, part.flags = run[at], plan, run[at + 2], 0
  if is_look then
    part.wait_us, part.remaining, part.reset_us = peek(part)
  else
    take(parts, 1)
  end
  if part.wait_us == 0 then
    run[before + 1], run[before + 2] = part.remaining, part.reset_us
    return before + 2
  end
  run[before + 1], run[before + 2], run[before + 3] = -2 - part.remaining, part.reset_us, part.wait_us
  return before + 3
end

local function say_run()
  replies[#replies + 1] = pack('<' .. string.rep('d', said), unpack(run, 1, said))
  said = 0
end

local function perform_run()
  while run_at <= #run do
    local plan = plans[run[run_at + 1]]
    if not plan.act then
      run_at = run_at + 3
      prepare(plan)
      run_at = run_at - 3
    end
    local charges = plan.act.charges
    if charges then
      run_at, said = charges(run, run_at, said, plan, one, is_look)
    else
      said = one(run, run_at, said, plan)
    end
  end
  say_run()
  run = nil
end

local function perform_next()
  if run then perform_run() end
  while at <= #asked do
    local kind, count = byte(asked, at, at + 1)
    at = at + 2
    if kind == 1 then
      renew = renew or renewing()
      replies[#replies + 1] = renew()
    elseif kind >= 8 then
      replies[#replies + 1] = string.char(67, count)
      run, run_at, said, is_look = { byte(asked, at, at + 3 * count - 1) }, 1, 0, kind == 9
      at = at + 3 * count
      perform_run()
    else
      perform = perform or performing()
      replies[#replies + 1] = perform(kind, count)
    end
  end
end

local function refusal(format, letter, why)
  local text = string.sub(type(why) == 'table' and why.err or tostring(why), 1, 200)
  return pack(format, letter, #text) .. text
end

-- Performs the operations one by one, so that an error in one ends only that one. Returns the reply.
local function perform_all()
  local is_done, why
  repeat
    is_done, why = pcall(perform_next)
    if not is_done and run then
      say_run()
      replies[#replies + 1] = refusal('<dI2', -1, why)
    elseif not is_done then
      replies[#replies + 1] = refusal('<BI2', 69, why)
    end
  until is_done
  is_done, why = pcall(write_keys)
  -- Nothing was written, so no operation may be reported as applied.
  if not is_done then return refusal('<dI2', -1, why) end
  local said = pack('<d', now_us) .. table.concat(replies)
  return repaired > 0 and pack('<dd', -2, repaired) .. said or said
end

local number, stays_ms, plans_at = unpack_from('<dd', head)
read_keys()
local record = number > 0 and values[1]
if record and #record >= 8 then
  local last = unpack_from('<d', record)
  if last == number then
    return sub(record, 9)
  elseif last > number then
    return redis.error_reply('STALE a later batch was answered here')
  end
end

now_us = clock_us()
while plans_at <= #head do
  local plan = {}
  plan.algorithm, plan.limit, plan.period_ns, plan.burst, plan.epoch_us, plans_at = unpack_from('<Bdddd', head, plans_at)
  if plan.algorithm >= 128 then
    local edges = {}
    plan.algorithm, plan.edges = plan.algorithm - 128, edges
    edges.first, edges[1], edges[2], edges[3], edges[4], plans_at = unpack_from('<ddddd', head, plans_at)
  end
  plans[#plans + 1] = plan
end
local answer = perform_all()
if number > 0 then redis.pcall('SET', KEYS[1], pack('<d', number) .. answer, 'PX', stays_ms) end
return answer
