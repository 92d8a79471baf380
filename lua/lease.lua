-- A lease on a token bucket: the units that a node may spend on its own until the epoch ends.
--
-- lease_renew(key, plan, epoch, demand, reported, rate, pending, hint, spent, refilled, delta, keep, is_release, is_ahead,
-- costs) reads and changes the string of `key` (keys.lua). It passes windows to window_lease.lua, which comes before this
-- file in the script and also keeps the numbers of the current plan.
--   plan    algorithm, limit, period_ns, burst, epoch_us
--   costs   what each waiting request costs, or nil if each costs one unit
-- The node sends all arguments from epoch on; rates are units a second.
-- returns epoch, tokens, rate, lasts_us, deny_us, level, wait_us (until a refused cost would fit; 0 for buckets, whose
-- nodes compute it)
-- lease_carried(saved, plan) returns, for a look, what a renewal would read of a string of exact charges; else nothing
--
-- The record, 68 bytes: at_us; level: units left (doubles); promised: sum of the rates granted in this epoch; wanted,
-- wanted_before: demand reported in this epoch and in the last; out, out_before: units granted in them (floats); time
-- since the epoch began (32 bits, of which the upper 13 hold for how many seconds from at_us the key is kept: see
-- keys.lua), in ticks of four microseconds, because an epoch may have more than 19 bits of these; nodes, nodes_before:
-- how many nodes reported (16 bits); the plan it was written under: limit, period_ns, burst (doubles). at_us is in such
-- ticks, too: its lowest bits are one more than how many epochs have ended, up to two, since the bucket last refilled in
-- place of units too old to be spent (older scripts write 0). The last byte of out_before is 164, or 165 if the bucket
-- has been full since it last refused; then those of wanted, wanted_before and promised count for how long the bucket did
-- not refill in this epoch and in the last because it was full, in 4096ths of an epoch: two times 12 bits, the upper four
-- of each in promised. Promised rates are paid in advance: the bucket refills at `refill - promised`. A key's first epoch
-- begins when its record is made, so keys do not renew all at once.
--
-- What was spent stays spent under a changed plan, in units. A record that holds more than a lower limit goes on under
-- the plan it was written under, and lends nothing, until it fits; one of an exact bucket (token_bucket.lua) is read too.
--
-- Its twin is src/limit/script_model/bucket.rs, operation for operation; a test compares them bit by bit. The script
-- skips a step of the twin only if that cannot change the result.
--
-- In Lua, a function call or a table field costs more than the arithmetic here. So a record is kept in locals, and the
-- greater of two numbers is `if b > a then a = b end`, which does what math.max does, with NaN too.

local byte = string.byte

-- Of the record at hand: that count of epochs, for how long the bucket was full in this epoch and in the last, and whether it
-- has been full since it last refused.
local calm, full, full_before, is_unrefused

local function lease_counted(parts)
  if 0 > parts then return 0 end
  if 4095 < parts then return 4095 end
  return parts - parts % 1
end

-- A rate whose last bits note the count of its time, so that it is known for how long the bucket was full before when the
-- node reports; never more than the rate.
local function lease_noting(rate)
  local bits, noted = unpack_from('<I4', pack('<f', rate)), full
  if bits < 4096 then return 0 end
  local part = noted % 1
  if part > 0 then noted = noted - part + 1 end
  noted = bits - bits % 4096 + lease_counted(noted)
  if noted > bits then noted = noted - 4096 end
  noted = unpack_from('<f', pack('<I4', noted))
  return noted
end

-- Drops from the units that nodes held too long those in whose place the bucket has refilled; `held`: what others hold.
-- Returns what is left of them.
local function lease_drop_refilled(level, held, out_before)
  if 0 > held then held = 0 end
  local missing = burst - held - level
  if 0 > missing then missing = 0 end
  if missing < out_before then out_before, calm = missing, 0 end
  return out_before
end

-- Refills from `from_us` until `to_us`. The level and the units that nodes hold unspent (`out`) together never exceed
-- the burst, so the fleet as a whole is one bucket.
local function lease_fill(level, promised, out, from_us, to_us)
  if 0 > out then out = 0 end
  local cap, inflow = burst - out, refill - promised
  if 0 > cap then cap = 0 end
  if 0 > inflow then inflow = 0 end
  local lasts_s = (to_us - from_us) / 1e6
  level = level + inflow * lasts_s
  if level < cap then return level end
  local full_s = (level - cap) / refill
  if full_s > 0 then is_unrefused = true end
  -- Without a unit that nodes hold, nothing is spent without telling.
  if out >= 1 then full = full + full_s / epoch_s * 4096 end
  return cap
end

-- Refills within the epoch that begins at `begins_us`, in two steps if the units of the last epoch become too old in
-- between. Returns the level.
local function lease_advance(level, promised, out, out_before, at_us, begins_us, to_us)
  local aged_us = begins_us + fifth_us + 10000
  if at_us < aged_us then
    local until_us = to_us
    if aged_us < until_us then until_us = aged_us end
    local unspent = out + promised * ((until_us - begins_us) / 1e6) + out_before
    level = lease_fill(level, promised, unspent, at_us, until_us)
    at_us = until_us
  end
  if at_us < to_us then
    level = lease_fill(level, promised, out + promised * ((to_us - begins_us) / 1e6), at_us, to_us)
  end
  return level
end

-- A record of an exact bucket: what is missing there is missing here.
local function lease_of_exact(saved)
  local missing, then_us, until_s, old_limit, period_us, units = unpack_from('<ddI4ddd', saved)
  if not (is_plan(old_limit, period_us, units) and is_count(then_us)) then return '' end
  local old = { limit = old_limit, period_ns = period_us * 1000 }
  module(1).prepare(old, units)
  if not (missing >= 0 and missing <= deepest * old.whole) then return '' end
  then_us = then_us - then_us % 4
  return pack('<ddfffffI4HHddd', then_us, units - missing / old.unit, 0, 0, 0, 0, 0, lease_packed(then_us, 0, until_s), 0, 0,
    old_limit, period_us * 1000, units)
end

-- The record advanced to the present, in its epoch. Also returns whether units granted before this epoch are too old to
-- be spent, which they are after more than an epoch. Returns nothing if no script wrote the record.
local function lease_open(saved, is_release)
  local to_us = now_us - now_us % 4
  local at_us, level, promised, wanted, wanted_before = to_us, burst, 0, 0, 0
  local out, out_before, since_us, nodes, nodes_before, until_s, is_aged = 0, 0, 0, 0, 0, 0, false
  calm, full, full_before, is_unrefused = 0, 0, 0, not saved
  if saved and #saved ~= 68 then
    -- A record of another kind of limit counts as an empty bucket.
    level = 0
  elseif saved then
    local packed
    at_us, level, promised, wanted, wanted_before, out, out_before, packed, nodes, nodes_before =
      unpack_from('<ddfffffI4HH', saved)
    since_us, calm = packed % lease_since * 4, at_us % 4
    at_us = at_us - calm
    if calm > 0 then calm = calm - 1 end
    local mark = byte(saved, 33)
    is_unrefused = mark == 165
    if is_unrefused or mark == 164 then
      local high = byte(saved, 17)
      full, full_before = byte(saved, 21) + high % 16 * 256, byte(saved, 25) + (high - high % 16) * 16
    end
    local at_s = at_us / 1e6
    local stays_s = (packed - packed % lease_since) / lease_since
    until_s = at_s - at_s % 1 + stays_s
    -- A bucket is full before its key expires, and `stays_s` is 8191 if the key is kept longer.
    if not (at_us >= 0 and at_us < exact and level >= -deepest * burst and level <= burst and promised >= 0
      and promised < exact and wanted >= 0 and wanted < exact and wanted_before >= 0 and wanted_before < exact and out > -exact
      and out < exact and out_before > -exact and out_before < exact
      and (stays_s == 8191 or at_us + (burst - level) / refill * 1e6 <= until_s * 1e6)) then
      return
    end
    -- If the clock has stepped back a little, time stands still until it has caught up. If it has stepped far back, the
    -- record continues from the new time.
    if at_us > to_us + 2 * epoch_us then at_us = to_us end
    if at_us > to_us then to_us = at_us end
    if burst < level then level = burst end
  end
  local begins_us = at_us - since_us
  -- A node counts its lease from when it asked, so it may ask for the next one a little before this epoch ends here.
  local ends_us = begins_us + epoch_us
  if to_us < ends_us and not is_release and to_us >= ends_us - 1000 then to_us = ends_us end
  if to_us < ends_us then
    level = lease_advance(level, promised, out, out_before, at_us, begins_us, to_us)
  else
    local turn_us = ends_us
    if at_us > turn_us then turn_us = at_us end
    level = lease_advance(level, promised, out, out_before, at_us, begins_us, turn_us)
    -- Units granted in still earlier epochs may be returned too, as far as the bucket has not refilled in their place.
    -- Units lent out of the level never become too old here.
    local lent = out + promised * epoch_s
    out_before = lease_drop_refilled(level, lent, out_before) + lent
    wanted_before, nodes_before = wanted, nodes
    wanted, promised, nodes, out = 0, 0, 0, 0
    full_before, full = lease_counted(full), 0
    level = lease_advance(level, 0, 0, out_before, turn_us, ends_us, to_us)
    local turns = (to_us - begins_us) / epoch_us
    turns = turns - turns % 1
    begins_us, calm = begins_us + turns * epoch_us, calm + turns
    if 2 < calm then calm = 2 end
    if turns > 1 then wanted_before, nodes_before, is_aged = 0, 0, true end
  end
  return to_us, level, promised, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before,
    until_s, is_aged
end

local function lease_save(key, at_us, level, promised, wanted, wanted_before, out, out_before, since_us, nodes,
  nodes_before, until_s)
  local need_us, ticks = (burst - level) / refill * 1e6, since_us / 4
  local part = need_us % 1
  if part > 0 then need_us = need_us - part + 1 end
  need_us = need_us + epoch_us * 2 + 200000
  if not (now_us + need_us <= until_s * 1e6) then until_s = kept_until(key, until_s, need_us, min(need_us, 6e8)) end
  full, full_before = lease_counted(full), lease_counted(full_before)
  local low, low_before = full % 256, full_before % 256
  heads[key] = pack('<ddBc3Bc3Bc3fBc3I4HHddd', at_us + calm + 1, level, (full - low) / 256 + (full_before - low_before) / 16,
    sub(pack('<f', promised), 2), low, sub(pack('<f', wanted), 2), low_before, sub(pack('<f', wanted_before), 2), out,
    is_unrefused and 165 or 164, sub(pack('<f', out_before), 2), lease_packed(at_us, ticks - ticks % 1, until_s), nodes,
    nodes_before, limit, period_ns, burst)
end

-- Opens a record of another plan: advanced under that, and then carried over. Returns what lease_open does and, if a
-- lower limit does not hold what is spent, the old plan, whose numbers are the current ones then.
local function lease_open_changed(saved, is_release, plan)
  local old_limit, old_ns, old_burst = unpack_from('<ddd', saved, 45)
  local at_us, level, promised, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s, is_aged
  if not is_plan(old_limit, old_ns / 1000, old_burst) then return end
  local old = { algorithm = plan.algorithm, limit = old_limit, period_ns = old_ns, burst = old_burst,
    epoch_us = plan.epoch_us }
  local new_burst, new_refill, new_ns = burst, refill, period_ns
  lease_adopt(old)
  at_us, level, promised, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s, is_aged =
    lease_open(saved, is_release)
  if not at_us then return lease_adopt(plan) end
  full, full_before = 0, 0
  local less, smaller, slower, since_s = old_burst - new_burst, 1, 1, (at_us - begins_us) / 1e6
  if less > 0 then smaller = new_burst / old_burst end
  if new_refill < refill then slower = new_refill / refill end
  -- Of what they hold, nodes keep a share as large as that of the limit; the rest is here. What is too old to be spent may
  -- be returned as far as the bucket has not refilled in its place.
  local aging, accrued = out_before, promised * since_s
  local lent = out + accrued
  if is_aged or not (at_us - begins_us < fifth_us + 10000) then aging = min(aging, max(old_burst - max(lent, 0) - level, 0)) end
  local freed = max(0, min((lent + aging) * (1 - smaller), old_burst - level))
  -- No limit was ever that far above this one.
  if old_ns == new_ns and level + freed - less < -deepest * new_burst then return lease_adopt(plan) end
  local outgrown = less > 0 and old_ns == new_ns and level + freed < less and old or nil
  if not outgrown then
    lease_adopt(plan)
    level, promised, out = level + freed, promised * slower, lent * smaller - accrued * slower
    out_before = out_before * smaller
    calm = 0
    -- What another period's limit does not hold is forgiven; a debt is not.
    local debt, spent = max(-level, 0), old_burst - level
    level, until_s = max(burst - min(spent, burst + debt), -deepest * burst), 0
  end
  return at_us, level, promised, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s, is_aged,
    outgrown
end

-- Whether the fleet's demand is so far above the refill that every node would ask for every unit that comes.
local function is_greedy(wanted, wanted_before)
  if wanted_before > wanted then wanted = wanted_before end
  return refill * 0.33 > 1 and wanted > 2 * refill
end

-- How much a node's rate grows. It comes out of the refill, from which debts are repaid first.
local function lease_rate(level, promised, wanted, wanted_before, demand, share, rate, left_s)
  if 0 < level then level = 0 end
  local pool = refill + level / epoch_s
  if refill / 2 > pool then pool = refill / 2 end
  local target, most = pool * share, 1.3 * demand + 0.5 / epoch_s
  if most < target then target = most end
  -- Too little for a lease: units go to the node that asks first.
  if (target - rate) * left_s < 1.5 then return 0 end
  -- As long as the others' demand is not known yet, half of the free rate.
  local all, free = wanted_before, pool - promised
  if wanted > all then all = wanted end
  if wanted_before < 0.7 * all then free = free * 0.5 end
  local add = target - rate
  if free < add then add = free end
  if 0 > add then add = 0 end
  return add
end

-- The part of the level that a node may take. A small share is tripled: if each node took only its share, the last
-- units of a level would go out in ever smaller parts, each a message.
-- `most`: what it is at most.
local function lease_part(share, most)
  local part = share / 2
  if share < 0.25 then
    part = share * 3
    if 0.25 < part then part = 0.25 end
  end
  if most < part then return most end
  return part
end

-- Units for future requests, out of the level, as long as nodes do not hold too many unspent.
local function lease_extra(at_us, level, unspent, wanted, wanted_before, nodes, demand, share, rate, pending, hint, keep,
  left_s, is_small, part_max, is_tight)
  local ahead_s, expected = 4 / demand, 0
  if 0.1 > ahead_s then ahead_s = 0.1 end
  if left_s < ahead_s then ahead_s = left_s end
  expected = demand * ahead_s
  -- How many more requests may come than expected: two standard deviations.
  local slack, lendable = 2 * sqrt(expected), level / 100
  if is_small and lendable >= 5 then
    lendable = level / 40
  elseif lent_min > lendable then
    lendable = lent_min
  end
  local beyond = (1.2 * demand - rate) * ahead_s
  if level > burst / 4 then
    -- The level is high, so be generous and save a second message: a node that has just begun reports less demand than
    -- will come.
    slack, expected = slack + 3, expected * 4
    if demand * epoch_s >= 1.5 then
      -- One node's slack is at most its share of what may be lent, or the others would ask for every request.
      local sixteen, sharers, even = 16 * nodes, nodes
      if 60 > sixteen then sixteen = 60 end
      if is_small then
        -- A small limit lends nothing else, so the share is that of the demand and includes what the node keeps. As long as
        -- the others' demand is not known yet, it is a tenth. Up to eight units are for the first who ask.
        local all, least = wanted, lendable * 0.5
        if wanted_before > all then all = wanted_before end
        local part = demand / all
        if 0.5 < part then part = 0.5 end
        if wanted_before < 0.7 * all then
          if 10 > sharers then sharers = 10 end
          if 1 / sharers < part then part = 1 / sharers end
        end
        even = lendable * part
        if 8 < least then least = 8 end
        if least > even then even = least end
        even = even - (beyond + slack + keep)
      else
        if 2 > sharers then sharers = 2 end
        even = lendable / sharers
      end
      local part = level / sixteen
      if even < part then part = even end
      slack = slack + part
    end
  end
  if hint > 0 then
    local part = expected % 1
    if part > 0 then expected = expected - part + 1 end
    if expected + 1 < hint then hint = expected + 1 end
    if hint > beyond then beyond = hint end
  end
  if 0 > beyond then beyond = 0 end
  local most
  if is_small then
    most = level * 0.5
  else
    -- If parts of the level are too small to be worth a message, the node that asks first gets two units plus what it
    -- needs in a fiftieth of a second, at most eight.
    local least = demand * 0.02 + 2
    if 8 < least then least = 8 end
    most = level * lease_part(share, part_max) + at_us % 1000 / 1000
    if least > most then most = least end
  end
  local extra = beyond + slack
  if most - pending < extra then extra = most - pending end
  if is_tight then lendable = lent_min * 0.15 end
  if 0 > unspent then unspent = 0 end
  if lendable - unspent < extra then extra = lendable - unspent end
  local rest = level - level % 1 - pending
  if rest < extra then extra = rest end
  if extra < 1 then return 0 end
  return extra - extra % 1
end

-- For a small limit: how long a node denies on its own when it is out of units. That is until there is a unit, which
-- goes to the node that asks first.
local function lease_deny_small(level, wanted, wanted_before)
  if level >= 3 then return 0 end
  local least, wait_min_s = 1, 0
  if is_greedy(wanted, wanted_before) then least, wait_min_s = 3, 0.33 end
  if level >= least then return 0 end
  local wait_s = (1 - level) / refill
  if wait_min_s > wait_s then wait_s = wait_min_s end
  local wait_us = wait_s * 1e6
  return wait_us - wait_us % 1
end

-- The same for all other limits. Units go to the node that asks first, but a node waits at least until a fiftieth of a
-- second's share is there, or a flooded node would ask at every round trip.
local function lease_deny(level, promised, wanted, wanted_before, nodes, demand, share, rate, is_first, left_s,
  part_max)
  local due = refill * share
  -- A node that wants three even shares or more leaves the last unit of each other node alone: it is not worth a
  -- message to it.
  if demand * nodes > 3 * refill then level = level - min(nodes - 1, burst / 8) end
  local least = due * 0.02
  if 1 > least then least = 1 end
  if level >= least then return 0 end
  local owned = promised
  if left_s > 0.8 * epoch_s then owned = max(owned, min(refill, 1.3 * wanted_before)) end
  local unowned = refill - owned
  local wait_s = 1e9
  if unowned > 0 then wait_s = max(2 - level * lease_part(share, part_max), 1) / (unowned * share) end
  -- A new node asks again soon. So does one that has much less than its share because others have not returned theirs
  -- yet, but not before eight units are due, and not if demand is so high that nothing will be returned.
  local is_short = rate < 0.5 * min(due, demand) and due * epoch_s >= 4 and wanted < 9 * refill
  if is_first and demand <= 0.5 then wait_s = min(wait_s, 0.1) end
  if is_short then wait_s = min(wait_s, max(8 / due, 0.1)) end
  -- So does a node that wants hardly more than its share: it is short by chance, and other nodes hold what it lacks.
  if demand < 1.25 * due then wait_s = min(wait_s, max(4 / due, epoch_s * 0.8)) end
  if level >= 1 then wait_s = 0.02 end
  if 0.02 > wait_s then wait_s = 0.02 end
  if wait_s < left_s then left_s = wait_s end
  local wait_us = left_s * 1e6
  return wait_us - wait_us % 1
end

-- Books debts and returns, and updates what the nodes hold unspent. A debt never takes the level below minus one burst.
-- `to_come` is what a lease that is released has not accrued yet. Returns level, out, out_before.
-- `in_place`: what may have refilled in place of the units of an older lease, which is neither told as spent nor returned.
local function lease_settle(level, promised, out, out_before, since_us, is_first, is_aged, spent, delta, keep, to_come,
  in_place)
  if in_place > 0 then
    local untold, least = spent, 0
    if 0 > untold then untold = 0 end
    if in_place < untold then untold = in_place end
    spent = spent - untold
    if delta + in_place - untold < least then least = delta + in_place - untold end
    if least > delta then delta = least end
  end
  if is_first then out_before = out_before - spent end
  -- Units granted in earlier epochs may be returned, as far as the bucket has not refilled in their place.
  if is_aged then
    out_before = lease_drop_refilled(level, out + promised * (since_us / 1e6), out_before)
  end
  if is_first then
    local most = out_before
    if 0 > most then most = 0 end
    if -most > delta then delta = -most end
    out_before = out_before + delta - keep
    if 0 > out_before then out_before = 0 end
    out = out + keep
  else
    out = out + (delta - spent)
    -- A released rate refills the bucket here instead.
    delta = delta + to_come
  end
  local least = level
  if -burst < least then least = -burst end
  level = level - delta
  if least > level then level = least end
  if not (level < burst) then level = burst end
  return level, out, out_before
end

-- How long the bucket may have refilled in place of units of a lease from before the last epoch; 0: it has not, or the
-- limit is so small that it is too little to look for.
local function lease_refilled(number, epoch, since_us)
  local gone_us = (number - epoch) % 16777215 * 1000
  if epoch == 0 or per_epoch < 24 or gone_us < (calm + 1.5) * epoch_us then return 0 end
  return (gone_us + since_us - 1.2 * epoch_us - 9000) / 1e6
end

-- Refills now what was due while the bucket was full: as much as a node says that would have refilled in place of what it spent
-- (`refilled`), if the bucket was full for so long since the node's last report. Of a lease that is not of this epoch or the
-- last, and of one too old to be spent, nothing. Returns the level.
local function lease_make_good(level, promised, out, out_before, since_us, begins_us, is_first, is_aged, epoch, rate,
  refilled)
  local before, since, noted = 0, full, unpack_from('<I4', pack('<f', rate)) % 4096
  local unspent = out + promised * (since_us / 1e6)
  if is_first then
    local before_ms = (begins_us - epoch_us) / 1000
    if is_aged or epoch ~= (before_ms - before_ms % 1) % 16777215 + 1 then return level end
    before = full_before - noted
    if 0 > before then before = 0 end
  else
    since = since - noted
    if 0 > since then since = 0 end
  end
  if not is_aged then unspent = unspent + out_before end
  if 0 > unspent then unspent = 0 end
  local part, units, room = refill * epoch_s / 4096, refilled, burst - unspent - level
  if (before + since) * part < units then units = (before + since) * part end
  if room < units then units = room end
  if not (units > 0) then return level end
  local parts = units / part
  if parts < before then before = parts end
  full_before, parts = full_before - before, parts - before
  if parts > 0 then full = full - parts end
  return level + units
end

local function lease_renew(key, plan, epoch, demand, reported, rate, pending, hint, spent, refilled, delta, keep,
  is_release, is_ahead, costs)
  if plan ~= at_hand then lease_adopt(plan) end
  if is_window then
    return window_lease_renew(key, epoch, demand, reported, rate, pending, spent, delta, keep, is_release, costs)
  end
  local saved, open = heads[key] == nil and values[key] or string_of(key), lease_open
  if saved and #saved == 44 then saved = lease_of_exact(saved) end
  if saved and #saved == 68 and sub(saved, 45) ~= lease_tail then open = lease_open_changed end
  local at_us, level, promised, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s,
    is_aged, outgrown = open(saved, is_release, plan)
  if not at_us then
    at_us, level, promised, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s, is_aged =
      lease_open('', is_release)
  end
  local since_us, lasts_us, begins_ms = at_us - begins_us, begins_us + epoch_us - at_us, begins_us / 1000
  local left_s, number = lasts_us / 1e6, (begins_ms - begins_ms % 1) % 16777215 + 1
  local is_first = epoch ~= number
  -- Units of the last epoch may be spent for a fifth of this one, plus 10 ms for a message on its way.
  is_aged = is_aged or not (since_us < fifth_us + 10000)
  local in_place = is_first and not is_aged and refill * lease_refilled(number, epoch, since_us) or 0
  level, out, out_before = lease_settle(level, promised, out, out_before, since_us, is_first, is_aged, spent, delta,
    keep, is_release and rate * left_s or 0, in_place)
  if refilled > 0 and not is_release then
    level = lease_make_good(level, promised, out, out_before, since_us, begins_us, is_first, is_aged, epoch, rate, refilled)
  end
  if is_release then
    if not is_first then
      promised, wanted, nodes = max(0, promised - rate), max(0, wanted - reported), max(0, nodes - 1)
      out = out + rate * epoch_s
    end
    lease_save(key, at_us, level, promised, wanted, wanted_before, out, out_before, since_us, nodes, nodes_before,
      until_s)
    return number, 0, 0, 0, 0, outgrown and level - (outgrown.burst - plan.burst) or level, 0
  end
  if outgrown then
    -- The numbers at hand are the old plan's.
    lease_save(key, at_us, level, promised, wanted, wanted_before, out, out_before, since_us, nodes, nodes_before,
      until_s)
    -- The next unit comes as under the old plan. Nodes count by the new one, so they are told the level of which it comes then.
    local missing = 1 - (level - (burst - plan.burst))
    local deny_us = missing / refill * 1e6
    return number, 0, 0, lasts_us, deny_us - deny_us % 1, 1 - missing * plan.limit / limit, 0
  end
  if 0.001 > demand then demand = 0.001 end
  if is_first then
    rate, reported, nodes = 0, 0, nodes + 1
    if 65535 < nodes then nodes = 65535 end
  end
  wanted = wanted + demand - reported
  if demand > wanted then wanted = demand end
  -- A limit is small if so little refills in an epoch that leases would hold units which other nodes need. Then units
  -- go to the node that asks first, and no node has a share or a rate.
  local is_small, share, count, is_thin = per_epoch < (is_ahead and 1.5 or 12), 1, nodes, true
  local part_max, is_unlent, is_tight, is_rateless = 1, false, false, false
  if nodes_before > count then count = nodes_before end
  if is_small then
    -- If the level is so high that five units or more may be lent, no other node misses them.
    is_thin = demand * epoch_s < 1 or not (level / 100 >= 5 or is_greedy(wanted, wanted_before))
  else
    share = lease_share(lease_wanted(wanted, wanted_before, nodes, nodes_before), nodes, nodes_before, demand)
    -- No node may hold what the others will need, as long as the bucket has not refused since it was full, and of the last
    -- units none holds any: Redis decides each request.
    if is_unrefused and count <= 10 then
      if nodes > 1 then part_max = 0.5 / count end
      is_unlent = level < min(8 * (count - 1), burst / 2)
      -- If a unit is much of the bucket, nodes hold little once they want all that refills, or have not told yet; and when
      -- less is left than rates may give out before their epoch ends, these come back. Not if answers take long: then nodes
      -- spend their rate before they come.
      is_tight = count > 1 and not is_ahead and per_epoch <= 100 and per_epoch * 8 >= burst
        and (nodes_before == 0 or max(wanted, wanted_before) > 0.9 * refill)
      is_rateless = is_tight and level < per_epoch * 0.32 + 8 * (count - 1)
      if is_tight then part_max = part_max / 2 end
    end
    if is_rateless then
      promised, out, rate = max(0, promised - rate), out + rate * (since_us / 1e6), 0
    else
      local add = is_unlent and 0 or lease_rate(level, promised, wanted, wanted_before, demand, share, rate, left_s)
      local noted = lease_noting(rate + add)
      add = noted - rate
      promised, out, rate = promised + add, out - add * (since_us / 1e6), noted
    end
    -- A node with little demand would return units for future requests, so it gets none.
    is_thin = demand * epoch_s < 0.4 and hint == 0
  end
  local extra, served = 0, lease_served(level - level % 1, pending, costs)
  -- No units for future requests if a waiting one is refused and, if requests have costs of their own, none below what
  -- the waiting ones cost together.
  if not is_thin and not is_unlent and served == pending then
    local unspent = out + promised * (since_us / 1e6)
    if not is_aged then unspent = unspent + out_before end
    extra = lease_extra(at_us, level, unspent, wanted, wanted_before, count, demand, share, rate, pending, hint, keep,
      left_s, is_small, part_max, is_tight)
    if costs and extra < pending then extra = 0 end
  end
  -- Units that requests wait for are spent at once, so only the others count as out.
  level, out = level - (served + extra), out + extra
  if served < pending then is_unrefused = false end
  local deny_us = 0
  if is_small then
    deny_us = lease_deny_small(level, wanted, wanted_before)
  elseif not (is_unlent and is_unrefused) then
    deny_us = lease_deny(level, promised, wanted, wanted_before, count, demand, share, rate, is_first, left_s, part_max)
  end
  lease_save(key, at_us, level, promised, wanted, wanted_before, out, out_before, since_us, nodes, nodes_before,
    until_s)
  return number, served + extra, rate, lasts_us, deny_us, level, 0
end

-- What a renewal would read of a string, if that is of exact charges and plan is leased now; else nothing.
local function lease_carried(saved, plan)
  lease_adopt(plan)
  if #saved == (is_window and 64 or 68) then return end
  if is_window then saved = window_carried(saved) else saved = #saved == 44 and lease_of_exact(saved) or '' end
  return #saved > 0 and saved or nil
end

return lease_renew, lease_carried
