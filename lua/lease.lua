-- A lease on a token bucket: what a node may spend by itself until the epoch ends.
--
-- lease_renew(key, plan, r) reads and changes the one string of `key` (keys.lua). Windows it leaves to
-- window_lease.lua, which stands before this file.
--   plan    algorithm, limit, period_ns, burst, epoch_us
--   r       epoch, demand, reported, rate, pending, hint, spent, delta, keep, release, ahead (booleans), costs (what
--           each of those who wait costs, or nil: a unit each): what the node says. Rates are units a second
-- returns epoch, tokens, rate, lasts_us, deny_us, level.
--
-- The record, 44 bytes: at_us, level (doubles); promised: rates given this epoch; wanted, wanted_before: demand
-- reported this epoch and in the last; out, out_before: units given (floats); microseconds since the epoch began (32
-- bits, of which the upper 13 say for how many seconds from at_us the key is kept: see keys.lua); nodes, nodes_before:
-- who reported (16 bits). What is promised is paid already: the bucket refills at `refill - promised`. A key's first
-- epoch begins when its record is made, so keys do not renew all at once.
--
-- Its twin is src/limit/centre/bucket.rs, operation for operation; a test compares them bit by bit.

local lease_floor, lease_ceil, lease_max, lease_min = math.floor, math.ceil, math.max, math.min

-- Refills until `to_us`. What is left here and what the nodes hold unspent are never more than the burst together, so
-- the fleet as a whole is one bucket.
local function lease_fill(s, r, out, to_us)
  local cap = lease_max(r.burst - lease_max(out, 0), 0)
  s.level = lease_min(cap, s.level + lease_max(r.refill - s.promised, 0) * ((to_us - s.at_us) / 1e6))
  s.at_us = to_us
end

-- Refills in the epoch that begins at `begins_us`, in two pieces where units of the last one age in between.
local function lease_advance(s, r, begins_us, to_us)
  local aged_us = begins_us + r.epoch_us / 5 + 10000
  if s.at_us < aged_us then
    local until_us = lease_min(to_us, aged_us)
    lease_fill(s, r, s.out + s.promised * ((until_us - begins_us) / 1e6) + s.out_before, until_us)
  end
  if s.at_us < to_us then
    lease_fill(s, r, s.out + s.promised * ((to_us - begins_us) / 1e6), to_us)
  end
end

-- Whether units of the last epoch may still be spent: for a fifth of this one, and a message takes 10 ms at most.
local function lease_is_young(since_us, r)
  return since_us < r.epoch_us / 5 + 10000
end

-- The record as it is now, in its epoch.
local function lease_open(saved, now_us, r)
  local s = { at_us = now_us, level = r.burst, promised = 0, wanted = 0, wanted_before = 0, out = 0, out_before = 0,
    since_us = 0, nodes = 0, nodes_before = 0, until_s = 0, ends_us = 0, number = 0 }
  if saved and #saved ~= 44 then
    -- Another kind of limit wrote it: empty.
    s.level = 0
  elseif saved then
    s.at_us, s.level, s.promised, s.wanted, s.wanted_before, s.out, s.out_before, s.since_us, s.nodes, s.nodes_before =
      unpack_from('<ddfffffI4HH', saved)
    s.since_us, s.until_s = lease_times(s.at_us, s.since_us)
    -- A clock that stepped back a little stands still; one that stepped far goes on from there.
    if s.at_us > now_us + 2 * r.epoch_us then s.at_us = now_us end
    now_us = lease_max(now_us, s.at_us)
    s.level = lease_min(s.level, r.burst)
  end
  local begins_us = s.at_us - s.since_us
  -- A node counts its lease from when it asked, so it may ask for the next a little before this one is over here.
  local ends_us = begins_us + r.epoch_us
  if not r.release and now_us >= ends_us - 1000 and now_us < ends_us then now_us = ends_us end
  if now_us < ends_us then
    lease_advance(s, r, begins_us, now_us)
  else
    lease_advance(s, r, begins_us, lease_max(ends_us, s.at_us))
    local turns = lease_floor((now_us - begins_us) / r.epoch_us)
    -- What was given still earlier may come back too, as far as the bucket has not refilled in its place: what is lent
    -- of the level never ages here.
    local lent = s.out + s.promised * (r.epoch_us / 1e6)
    local missing = r.burst - lease_max(lent, 0) - s.level
    s.out_before = lent + lease_min(s.out_before, lease_max(missing, 0))
    s.wanted_before, s.nodes_before = s.wanted, s.nodes
    s.wanted, s.promised, s.nodes, s.out = 0, 0, 0, 0
    lease_advance(s, r, ends_us, now_us)
    begins_us = begins_us + turns * r.epoch_us
    if turns > 1 then s.wanted_before, s.nodes_before, s.is_aged = 0, 0, true end
  end
  s.at_us, s.since_us, s.ends_us = now_us, now_us - begins_us, begins_us + r.epoch_us
  s.number = lease_number(begins_us)
  return s
end

local function lease_save(key, s, r)
  local need_us = lease_ceil((r.burst - s.level) / r.refill * 1e6) + r.epoch_us * 2 + 200000
  local until_s = kept_until(key, s.until_s, need_us, lease_min(need_us, 6e8))
  keep(key, pack('<ddfffffI4HH', s.at_us, s.level, s.promised, s.wanted, s.wanted_before, s.out, s.out_before,
    lease_packed(s.at_us, s.since_us, until_s), s.nodes, s.nodes_before), '')
end

-- What nodes may hold unspent: granted in this epoch and come by since, and before where that is not too old.
local function lease_unspent(s, is_aged)
  local aging = 0
  if not is_aged then aging = s.out_before end
  return s.out + s.promised * (s.since_us / 1e6) + aging
end

-- Whether so little refills in an epoch that leases would hold what others miss: who comes first has it.
local function is_small(r)
  return r.refill * (r.epoch_us / 1e6) < (r.ahead and 1.5 or 12)
end

-- Whether the fleet wants so much more than refills that each node could ask for every unit.
local function is_greedy(s, r)
  return r.refill * 0.33 > 1 and lease_max(s.wanted, s.wanted_before) > 2 * r.refill
end

-- Rates: out of what refills; debts are repaid out of it first. `n` is the node that asks: its demand, its share of
-- what the fleet wants, its rate, whether it is_first, and what is left of the epoch.
local function lease_rate(s, r, n)
  local pool = lease_max(r.refill + lease_min(s.level, 0) / (r.epoch_us / 1e6), r.refill / 2)
  local target = lease_min(pool * n.share, 1.3 * n.demand + 0.5 / (r.epoch_us / 1e6))
  -- Too little for a lease: first come, first served here.
  if (target - n.rate) * n.left_s < 1.5 or is_small(r) then target = n.rate end
  -- While the demand of the others is not known yet, half of what is free.
  local all = lease_max(s.wanted_before, s.wanted)
  local free = pool - s.promised
  if s.wanted_before < 0.7 * all then free = free * 0.5 end
  local add = lease_max(lease_min(target - n.rate, free), 0)
  s.promised = s.promised + add
  s.out = s.out - add * (s.since_us / 1e6)
  n.rate = n.rate + add
end

-- Units at once: out of the level. Returns them, and the part of the level that is the node's.
local function lease_tokens(s, r, n, is_aged)
  local ahead_s = lease_min(n.left_s, lease_max(4 / n.demand, 0.1))
  -- By how much more may come than is expected.
  local slack = 2 * math.sqrt(n.demand * ahead_s)
  local expected = n.demand * ahead_s
  if s.level > r.burst / 4 then
    -- There is enough for nobody to ask twice: who has just begun says less than is to come.
    slack = slack + 3
    expected = expected * 4
    if n.demand * (r.epoch_us / 1e6) >= 1.5 then
      slack = slack + s.level / lease_max(16 * lease_max(s.nodes, s.nodes_before), 60)
    end
  end
  local beyond = lease_max((1.2 * n.demand - n.rate) * ahead_s, lease_min(r.hint, lease_ceil(expected) + 1), 0)
  -- Three small shares at once: by shares alone the last of a level that all want goes in ever smaller parts, a
  -- message each.
  local part = n.share / 2
  if n.share < 0.25 then part = lease_min(n.share * 3, 0.25) end
  local dither = (s.at_us - lease_floor(s.at_us / 1000) * 1000) / 1000
  local whole = lease_floor(s.level)
  -- Where parts of what is left are too small to be worth a message, who asks first has two and what comes in a
  -- fiftieth of a second, up to eight.
  local most = lease_max(s.level * part + dither, lease_min(n.demand * 0.02 + 2, 8))
  -- What a thin node is given for requests to come only goes back.
  expected = n.demand * (r.epoch_us / 1e6)
  local is_thin = expected < 0.4 and r.hint == 0
  if is_small(r) then
    most = s.level * 0.5
    is_thin = expected < 1 or not is_greedy(s, r)
  end
  local wanted = 0
  if not is_thin then wanted = beyond + slack end
  local extra = lease_min(wanted, most - r.pending, lendable(r, s.level) - lease_max(lease_unspent(s, is_aged), 0),
    whole - r.pending)
  extra = lease_max(lease_floor(extra), 0)
  local served = lease_served(r, whole)
  extra = lease_useful(r, extra, served)
  s.level = s.level - (served + extra)
  -- What requests wait for is spent at once.
  s.out = s.out + extra
  return served + extra, part
end

-- How long the node denies by itself when it is out of units.
local function lease_deny(s, r, n, part)
  if is_small(r) then
    -- Until a unit is there, which is anybody's.
    local least, wait_min_s = 1, 0
    if is_greedy(s, r) then least, wait_min_s = 3, 0.33 end
    local wait_s = 0
    if s.level < least then wait_s = lease_max((1 - s.level) / r.refill, wait_min_s) end
    return lease_floor(wait_s * 1e6)
  end
  -- Who asks first has it, while there is any; but what a node is due in a fiftieth of a second is the least to ask
  -- for, or a flooded one would ask each round trip.
  local due = r.refill * n.share
  local nodes = lease_max(s.nodes, s.nodes_before)
  local level = s.level
  -- Of the last unit for each of the others nothing is worth a message to who wants three even shares and more.
  if n.demand * nodes > 3 * r.refill then level = level - lease_min(nodes - 1, r.burst / 8) end
  if level >= lease_max(due * 0.02, 1) then return 0 end
  local life_s = r.epoch_us / 1e6
  local owned = s.promised
  if n.left_s > 0.8 * life_s then owned = lease_max(owned, lease_min(r.refill, 1.3 * s.wanted_before)) end
  local unowned = lease_max(r.refill - owned, 0)
  local wait_s = 1e9
  if unowned > 0 then wait_s = lease_max(2 - level * part, 1) / (unowned * n.share) end
  -- Who is new, or has much less than is due because others have not given theirs back, asks again soon; the latter
  -- not before eight units are due, nor where so much is wanted that nothing comes back.
  local is_short = n.rate < 0.5 * lease_min(due, n.demand) and due * life_s >= 4 and s.wanted < 9 * r.refill
  if n.is_first and n.demand <= 0.5 then wait_s = lease_min(wait_s, 0.1) end
  if is_short then wait_s = lease_min(wait_s, lease_max(8 / due, 0.1)) end
  -- So does who wants hardly more than is due: it is short by chance, and others have what it lacks.
  if n.demand < 1.25 * due then wait_s = lease_min(wait_s, lease_max(4 / due, life_s * 0.8)) end
  if level >= 1 then wait_s = 0.02 else wait_s = lease_max(wait_s, 0.02) end
  return lease_floor(lease_min(n.left_s, wait_s) * 1e6)
end

local function lease_renew(key, plan, r)
  r.algorithm, r.limit, r.period_ns, r.burst, r.epoch_us =
    plan.algorithm, plan.limit, plan.period_ns, plan.burst, plan.epoch_us
  r.refill = r.limit * 1e9 / r.period_ns
  if r.algorithm == 2 or r.algorithm == 3 then return window_lease_renew(key, r) end
  local s = lease_open(values[key] or absent(key), now_us, r)
  local left_s = (s.ends_us - s.at_us) / 1e6
  local is_first = r.epoch ~= s.number
  -- What was given in earlier epochs may come back, as far as the bucket has not refilled in its place.
  local is_aged = s.is_aged or not lease_is_young(s.since_us, r)
  if is_first then s.out_before = s.out_before - r.spent end
  if is_aged then
    local missing = r.burst - lease_max(lease_unspent(s, is_aged), 0) - s.level
    s.out_before = lease_min(s.out_before, lease_max(missing, 0))
  end
  -- Debts and returns; no debt sinks the level below a whole burst owed. And what the nodes hold unspent, as far as it
  -- is known.
  local delta = r.delta
  if is_first then
    delta = lease_max(delta, -lease_max(s.out_before, 0))
    s.out_before = lease_max(s.out_before + delta - r.keep, 0)
    s.out = s.out + r.keep
  else
    s.out = s.out + (delta - r.spent)
    -- What the lease has not accrued yet will refill here.
    if r.release then delta = delta + r.rate * left_s end
  end
  s.level = lease_min(r.burst, lease_max(s.level - delta, lease_min(s.level, -r.burst)))
  if r.release then
    if not is_first then
      s.promised = lease_max(0, s.promised - r.rate)
      s.out = s.out + r.rate * (r.epoch_us / 1e6)
      s.wanted = lease_max(0, s.wanted - r.reported)
      s.nodes = lease_max(0, s.nodes - 1)
    end
    lease_save(key, s, r)
    return s.number, 0, 0, 0, 0, s.level
  end
  local rate, reported, demand = r.rate, r.reported, lease_max(r.demand, 0.001)
  if is_first then
    rate, reported = 0, 0
    s.nodes = lease_min(s.nodes + 1, 65535)
  end
  s.wanted = lease_max(s.wanted + demand - reported, demand)
  local share = lease_share(s, demand)
  local n = { demand = demand, share = share, rate = rate, is_first = is_first, left_s = left_s }
  lease_rate(s, r, n)
  local tokens, part = lease_tokens(s, r, n, is_aged)
  local deny_us = lease_deny(s, r, n, part)
  lease_save(key, s, r)
  return s.number, tokens, n.rate, s.ends_us - s.at_us, deny_us, s.level
end

return lease_renew
