-- A lease on a fixed or a sliding window: units a node may spend by itself until the epoch, or the window, ends.
--
-- window_lease_renew(key, r) is called by lease_renew (lease.lua) and takes and returns what that does. A window
-- refills at once or by forgetting, so there are no rates: the whole grant is units.
--
-- The record, 48 bytes: at_us; current, previous: units given in this window and spent in the one before (doubles);
-- wanted, wanted_before: demand reported this epoch and in the last; out, out_before: units given (floats);
-- microseconds since the epoch began (32 bits, of which the upper 13 say for how many seconds from at_us the key is
-- kept: see keys.lua); nodes, nodes_before: who reported (16 bits). An epoch never crosses a window's end.
--
-- Its twin is src/limit/centre/window.rs, operation for operation; a test compares them bit by bit.

local window_floor, window_ceil, window_max, window_min = math.floor, math.ceil, math.max, math.min

-- An epoch's number: its begin in milliseconds, modulo 24 bits, from 1.
local function lease_number(begins_us)
  local begins_ms = math.floor(begins_us / 1000)
  return begins_ms - math.floor(begins_ms / 16777215) * 16777215 + 1
end

-- An epoch is half a second at most, 19 bits of microseconds; above them stands for how long the key is kept.
local lease_since = 2 ^ 19

local function lease_packed(at_us, since_us, until_s)
  return since_us + lease_since * math.max(0, math.min(until_s - math.floor(at_us / 1e6), 8191))
end

-- Since the epoch began, and until when the key is kept.
local function lease_times(at_us, packed)
  local since_us = packed % lease_since
  return since_us, math.floor(at_us / 1e6) + (packed - since_us) / lease_since
end

-- A node's share of what the fleet wants; half an even one at least. The fleet wants what it wanted in the last epoch
-- or wants in this, whichever is more, but no more than who has reported says now and who has not said then, and no
-- more than if all others said what those have said.
local function lease_share(s, demand)
  local silent = math.max(1 - s.nodes / math.max(s.nodes_before, 1), 0)
  local alike = s.wanted * math.max(s.nodes_before / math.max(s.nodes, 1), 1)
  local all = math.min(math.max(s.wanted_before, s.wanted), s.wanted + s.wanted_before * silent, alike)
  return math.max(math.min(demand / all, 1), 0.5 / math.max(s.nodes_before, s.nodes, 1))
end

-- Units that all nodes may hold for requests to come: what refills in two epochs, or a 64th of what is left.
local function lendable(r, left)
  return math.max(r.refill * (r.epoch_us / 1e6) * 2, left / 64)
end

-- What those who wait are given of `whole` units: first come, each all it costs or nothing.
local function lease_served(r, whole)
  if r.pending <= whole then return r.pending end
  if not r.costs then return math.max(whole, 0) end
  local served = 0
  for index = 1, #r.costs do
    if served + r.costs[index] <= whole then served = served + r.costs[index] end
  end
  return served
end

-- Units for requests to come: none where some of those who wait are refused, nor fewer than those cost.
local function lease_useful(r, extra, served)
  if served < r.pending or (r.costs and extra < r.pending) then return 0 end
  return extra
end

-- When an epoch began, of its number, to the end of that millisecond: the last that is called so. A lease without one
-- is of now.
local function lease_given_us(number, now_us)
  if number == 0 then return now_us end
  local now_ms = math.floor(now_us / 1000)
  local ago_ms = now_ms - (number - 1)
  return (now_ms + 1 - (ago_ms - math.floor(ago_ms / 16777215) * 16777215)) * 1000
end

-- What of the limit is spent: the last window weighs by what of it still overlaps.
local function window_spent(s, r)
  if r.algorithm == 2 then return s.current end
  return s.previous * ((s.window_ends_us - s.at_us) / s.period_us) + s.current
end

-- The record as it is now, in its epoch and window.
local function window_open(saved, now_us, r)
  local s = { at_us = now_us, current = 0, previous = 0, wanted = 0, wanted_before = 0, out = 0, out_before = 0,
    since_us = 0, nodes = 0, nodes_before = 0, until_s = 0, period_us = window_floor(r.period_ns / 1000),
    window_ends_us = 0, ends_us = 0, number = 0 }
  if saved and #saved ~= 48 then
    -- Another kind of limit wrote it: spent, until the window ends.
    s.current = r.limit
  elseif saved then
    s.at_us, s.current, s.previous, s.wanted, s.wanted_before, s.out, s.out_before, s.since_us, s.nodes,
      s.nodes_before = unpack_from('<dddffffI4HH', saved)
    s.since_us, s.until_s = lease_times(s.at_us, s.since_us)
    if s.at_us > now_us + 2 * r.epoch_us then s.at_us = now_us end
    now_us = window_max(now_us, s.at_us)
  end
  local index = window_floor(now_us / s.period_us)
  local ahead = index - window_floor(s.at_us / s.period_us)
  if ahead >= 1 then
    s.previous = ahead == 1 and s.current or 0
    s.current = 0
  end
  local starts_us = index * s.period_us
  s.window_ends_us = starts_us + s.period_us
  local begins_us = s.at_us - s.since_us
  if ahead >= 1 or now_us >= begins_us + r.epoch_us then
    local turns = window_floor((now_us - begins_us) / r.epoch_us)
    if turns <= 1 then
      s.wanted_before, s.nodes_before = s.wanted, s.nodes
    else
      s.wanted_before, s.nodes_before = 0, 0
    end
    -- Units of an earlier window are no more.
    if ahead >= 1 then s.out_before = 0 else s.out_before = s.out_before + s.out end
    s.wanted, s.nodes, s.out = 0, 0, 0
    begins_us = window_max(begins_us + turns * r.epoch_us, starts_us)
  end
  s.at_us, s.since_us, s.ends_us = now_us, now_us - begins_us, window_min(begins_us + r.epoch_us, s.window_ends_us)
  s.number = lease_number(begins_us)
  return s
end

local function window_save(key, s)
  local need_us = s.window_ends_us + s.period_us - s.at_us + 200000
  local since_us = lease_packed(s.at_us, s.since_us, kept_until(key, s.until_s, need_us, 0))
  keep(key, pack('<dddffffI4HH', s.at_us, s.current, s.previous, s.wanted, s.wanted_before, s.out, s.out_before,
    since_us, s.nodes, s.nodes_before), '')
end

-- Until a unit is left if nobody spends, microseconds.
local function window_wait(s, r)
  local most = r.limit - 1
  if window_spent(s, r) <= most then return 0 end
  local ends_us = s.window_ends_us - s.at_us
  if r.algorithm == 2 then return ends_us end
  if s.current <= most then
    -- previous * x + current = most, x being what overlaps.
    return window_max(window_ceil(ends_us - s.period_us * ((most - s.current) / s.previous)), 1)
  end
  return ends_us + window_max(window_ceil(s.period_us - s.period_us * (most / s.current)), 0)
end

-- Units for who waits and for what is to come, and how long they may be spent.
local function window_lend(s, r, demand)
  local left = r.limit - window_spent(s, r)
  -- A lease ends so early that its units are spent or aged before the window ends.
  local ends_us = window_min(s.ends_us, s.window_ends_us - window_floor(r.epoch_us / 5))
  local share = lease_share(s, demand)
  if share >= 0.25 then share = share / 2 end
  local lasts_us = window_max(ends_us - s.at_us, 0)
  local left_s = lasts_us / 1e6
  local dither = (s.at_us - window_floor(s.at_us / 1000) * 1000) / 1000
  local need = window_max(1.2 * demand * left_s + 2 * math.sqrt(demand * left_s) - r.keep, 0)
  -- What a thin node is given for requests to come only goes back.
  if lasts_us == 0 or demand * (r.epoch_us / 1e6) < 1 then need = 0 end
  local whole = window_floor(left)
  local most = window_min(left * share + dither - r.pending, lendable(r, left) - s.out - s.out_before,
    whole - r.pending)
  local served = lease_served(r, whole)
  local extra = lease_useful(r, window_max(window_floor(window_min(need, most)), 0), served)
  s.current = s.current + (served + extra)
  -- What requests wait for is spent at once.
  s.out = s.out + extra
  return served + extra, lasts_us
end

local function window_lease_renew(key, r)
  local s = window_open(values[key] or absent(key), now_us, r)
  local is_first = r.epoch ~= s.number
  -- What a lease gives back or owes goes where it was given.
  local given_us, starts_us = lease_given_us(r.epoch, s.at_us), s.window_ends_us - s.period_us
  local is_new = given_us < starts_us
  if r.delta > 0 then
    s.current = window_min(s.current + r.delta, window_max(s.current, 2 * r.limit))
  elseif not is_new then
    s.current = window_max(s.current + r.delta, 0)
  elseif r.algorithm == 3 and given_us >= starts_us - s.period_us then
    s.previous = window_max(s.previous + r.delta, 0)
  end
  if not is_first then
    s.out = window_max(s.out - r.spent + r.delta, 0)
  elseif not is_new then
    s.out_before = window_max(s.out_before - r.spent + r.delta - r.keep, 0)
  end
  if r.release then
    if not is_first then
      s.wanted = window_max(s.wanted - r.reported, 0)
      s.nodes = window_max(s.nodes - 1, 0)
    end
    window_save(key, s)
    return s.number, 0, 0, 0, 0, r.limit - window_spent(s, r)
  end
  local reported, demand = r.reported, window_max(r.demand, 0.001)
  if is_first then
    reported = 0
    s.nodes = window_min(s.nodes + 1, 65535)
    s.out = s.out + r.keep
    -- Given in another window, to be spent in this.
    if is_new then s.current = s.current + r.keep end
  end
  s.wanted = window_max(s.wanted + demand - reported, demand)
  local tokens, lasts_us = window_lend(s, r, demand)
  local deny_us = window_wait(s, r)
  window_save(key, s)
  return s.number, tokens, 0, lasts_us, deny_us, r.limit - window_spent(s, r)
end
