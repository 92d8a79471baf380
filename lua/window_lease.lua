-- A lease on a fixed or a sliding window: units that a node may spend on its own until the epoch, or the window, ends.
--
-- window_lease_renew(key, epoch, demand, reported, rate, pending, spent, delta, keep, is_release, costs) is called by
-- lease_renew (lease.lua), with the same arguments and results. This file also has what buckets and windows share,
-- beginning with the numbers of the current plan.
--
-- A short window is lent whole: its epoch is the window, and a lease ends when the window does. As the window before ages,
-- units become free at a rate, which is lent as well: what has still to become free of a part of `previous` moves to
-- `current`, so that the spent part of the limit remains the same and from then on falls by so much less. Of other windows
-- the whole grant is units.
--
-- The record, 64 bytes: at_us; current, previous: units granted in this window and spent in the one before (doubles);
-- wanted, wanted_before: demand reported in this epoch and in the last; out, out_before: units granted in them
-- (floats); microseconds since the epoch began (32 bits, of which the upper 13 hold for how many seconds from at_us the
-- key is kept: see keys.lua); nodes, nodes_before: how many nodes reported (16 bits); the plan it was written under: limit,
-- period_ns (doubles). A window may be one of the calendar (arithmetic.lua); in the place of `previous` is then when units
-- were last granted, so that they are found again under another zone or anchor (fixed_window.lua). An epoch never crosses a
-- window's end. A changed limit leaves the units as they are; under a changed period, what is spent counts in the present
-- window. A record of an exact window is read too.
--
-- Its twin is src/limit/script_model/window.rs, operation for operation; a test compares them bit by bit. lease.lua
-- says why steps are skipped and functions hardly called.

local sqrt = math.sqrt

-- The numbers of the current plan. Upvalues cost a third of what table fields do, and most renewals of a call have the
-- same plan.
local at_hand, is_window, is_sliding, is_whole
local limit, burst, refill, per_epoch, period_ns, period_us, epoch_us, epoch_s, fifth_us, lent_min
-- Units of a long sliding window that become free while nodes deny on their own. Then each gets its share of them at once,
-- because a node that asks for each as it becomes free asks for nearly every request.
local batch
-- What a window may have spent: of a sliding one nearly a unit more than the limit, because what weighs of the window before is
-- rounded down to a unit.
local whole
-- What records of it end in.
local lease_tail

local function lease_adopt(plan)
  at_hand, limit, burst = plan, plan.limit, plan.burst
  -- Of a plan without leases, to which units of an older one are returned, the shortest.
  epoch_us = plan.epoch_us > 0 and plan.epoch_us or 50000
  is_sliding = plan.algorithm == 3
  is_window = is_sliding or plan.algorithm == 2
  whole = is_sliding and limit + (1 - 2 ^ -20) or limit
  period_ns = plan.period_ns
  refill, period_us = limit * 1e9 / period_ns, floor(period_ns / 1000)
  lease_tail = is_window and pack('<d', period_ns) or pack('<ddd', limit, period_ns, burst)
  epoch_s, fifth_us = epoch_us / 1e6, epoch_us / 5
  is_whole = is_window and plan.epoch_us >= period_us
  per_epoch = refill * epoch_s
  -- All nodes together may hold units for future requests that refill in two epochs, or a hundredth of what is left if
  -- that is more.
  lent_min = per_epoch * 2
  batch = is_sliding and not is_whole and min(limit / 80, per_epoch / 2) or 0
end

-- An epoch that is not its window lasts half a second at most, which is 19 bits of microseconds. The bits above hold for how
-- long the key is kept.
local lease_since = 2 ^ 19

local function lease_packed(at_us, since_us, until_s)
  local at_s = at_us / 1e6
  local stays_s = until_s - (at_s - at_s % 1)
  if 8191 < stays_s then stays_s = 8191 end
  if 0 > stays_s then stays_s = 0 end
  return since_us + lease_since * stays_s
end

-- The fleet's demand: the higher of the last epoch's and this epoch's. Two bounds let it fall quickly after a rush: the
-- demand reported in this epoch plus the last epoch's for the part of the fleet that has not reported yet, and the demand
-- if all nodes wanted as much as those that have reported.
local function lease_wanted(wanted, wanted_before, nodes, nodes_before)
  local now, before = nodes, nodes_before
  if 1 > now then now = 1 end
  if 1 > before then before = 1 end
  local silent, times, all = 1 - nodes / before, nodes_before / now, wanted_before
  if 0 > silent then silent = 0 end
  if 1 > times then times = 1 end
  if wanted > all then all = wanted end
  local known, alike = wanted + wanted_before * silent, wanted * times
  if known < all then all = known end
  if alike < all then all = alike end
  return all
end

-- A node's share of what all want, at least half of an even share.
local function lease_share(all, nodes, nodes_before, demand)
  local most, share = nodes_before, demand / all
  if nodes > most then most = nodes end
  if 1 > most then most = 1 end
  if 1 < share then share = 1 end
  if 0.5 / most > share then share = 0.5 / most end
  return share
end

-- Units for the waiting requests out of `whole`: in their order, each gets all it costs or nothing.
local function lease_served(whole, pending, costs)
  if pending <= whole then return pending end
  if not costs then return 0 > whole and 0 or whole end
  local served = 0
  for index = 1, #costs do
    if served + costs[index] <= whole then served = served + costs[index] end
  end
  return served
end

-- The end of the millisecond in which the epoch of this number began, at the last time before `at_us` that the number
-- was used.
local function window_given_us(number, at_us)
  local now_ms = at_us / 1000
  now_ms = now_ms - now_ms % 1
  return (now_ms + 1 - (now_ms - (number - 1)) % 16777215) * 1000
end

-- A record of an exact window, or one of another period: what is spent as of now. It keeps its window if that is the same.
local function window_carried(saved)
  local at_us, spent, before, old_limit, old_ns
  if #saved == 64 then
    at_us, spent, before = unpack_from('<ddd', saved)
    old_limit, old_ns = unpack_from('<dd', saved, 49)
    local is_record = is_plan(old_limit, old_ns / 1000, old_limit) and is_count(at_us) and is_count(spent)
    if not (is_record and is_count(before)) then return '' end
  else
    local state = {}
    if not module(is_sliding and 3 or 2).carried(state, saved) then return '' end
    at_us, spent, before, old_limit, old_ns = state.at_us, state.count, state.before, state.limit, state.period_us * 1000
  end
  if old_ns ~= period_ns then
    local old_us = floor(old_ns / 1000)
    local index, then_index = floor(now_us / old_us), floor(at_us / old_us)
    if is_calendar(old_us) then
      local is_over = now_us >= calendar_end(at_hand.edges, period_us, now_us, before, old_us)
      index, then_index, before = is_over and 2 or 0, 0, 0
    end
    if index > then_index then spent, before = 0, index == then_index + 1 and spent or 0 end
    if is_sliding then spent = spent + before * (old_us - max(0, now_us - max(index, then_index) * old_us)) / old_us end
    at_us, spent, before = now_us, min(spent, limit + max(0, spent - old_limit)), at_hand.edges and now_us or 0
  end
  return pack('<dddffffI4HHdd', at_us, spent, before, 0, 0, 0, 0, 0, 0, 0, limit, period_ns)
end

-- The record advanced to the present, in its epoch and window. One that no script wrote counts as spent until the window
-- ends.
local function window_open(saved)
  if saved and #saved > 0 and sub(saved, 57) ~= lease_tail then saved = window_carried(saved) end
  local to_us, at_us, current, previous, wanted, wanted_before = now_us, now_us, 0, at_hand.edges and now_us or 0, 0, 0
  local out, out_before, since_us, nodes, nodes_before, until_s = 0, 0, 0, 0, 0, 0
  if saved and #saved ~= 64 then
    current = limit
  elseif saved then
    local packed
    at_us, current, previous, wanted, wanted_before, out, out_before, packed, nodes, nodes_before =
      unpack_from('<dddffffI4HH', saved)
    if not (at_us >= 0 and at_us < exact and current >= 0 and current < exact and previous >= 0 and previous < exact
      and wanted >= 0 and wanted < exact and wanted_before >= 0 and wanted_before < exact and out >= 0 and out < exact
      and out_before >= 0 and out_before < exact
      and (not at_hand.edges or math.abs(previous - at_us) <= period_us + day_us)) then
      return window_open('')
    end
    since_us = packed % lease_since
    local at_s = at_us / 1e6
    until_s = at_s - at_s % 1 + (packed - since_us) / lease_since
    -- If the clock was set back into the window before, the record's time and window are used until the clock is there.
    if at_us > to_us + 2 * epoch_us then
      local edges = at_hand.edges
      if window_at(edges, period_us, at_us) ~= window_at(edges, period_us, to_us) + 1 then at_us = to_us end
    end
    if at_us > to_us then to_us = at_us end
  end
  local index, then_index, starts_us, ends_us = to_us / period_us, at_us / period_us, nil, nil
  if at_hand.edges then
    local edges = at_hand.edges
    index, then_index = window_at(edges, period_us, to_us), window_at(edges, period_us, min(previous, at_us))
    starts_us, ends_us = window_start(edges, period_us, index), window_start(edges, period_us, index + 1)
  else
    index, then_index = index - index % 1, then_index - then_index % 1
    starts_us = index * period_us
    ends_us = starts_us + period_us
  end
  local is_new = index - then_index >= 1
  if is_new then
    previous = at_hand.edges and to_us or index - then_index == 1 and current or 0
    current = 0
  end
  local begins_us = is_whole and then_index * period_us or at_us - since_us
  if is_new or to_us >= begins_us + epoch_us then
    local turns = (to_us - begins_us) / epoch_us
    turns = turns - turns % 1
    if turns <= 1 then
      wanted_before, nodes_before = wanted, nodes
    else
      wanted_before, nodes_before = 0, 0
    end
    -- Units of an earlier window cannot be spent any more.
    if is_new then out_before = 0 else out_before = out_before + out end
    wanted, nodes, out = 0, 0, 0
    begins_us = begins_us + turns * epoch_us
    if starts_us > begins_us then begins_us = starts_us end
  end
  return to_us, current, previous, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s,
    starts_us, ends_us
end

local function window_save(key, at_us, current, previous, wanted, wanted_before, out, out_before, since_us, nodes,
  nodes_before, until_s, ends_us)
  local need_us = ends_us + period_us - at_us + 200000
  if is_whole then since_us = 0 end
  if not (now_us + need_us <= until_s * 1e6) then until_s = kept_until(key, until_s, need_us, 0) end
  heads[key] = pack('<dddffffI4HHdd', at_us, current, previous, wanted, wanted_before, out, out_before,
    lease_packed(at_us, since_us, until_s), nodes, nodes_before, limit, period_ns)
end

-- Microseconds until `units` are left if no node spends any.
local function window_wait(spent, current, previous, ends_us, units)
  local most = whole - units
  if spent <= most then return 0 end
  if not is_sliding or 0 > most then return ends_us end
  if current <= most then
    -- Solves previous * x + current = most for x, the overlapping share.
    return max(ceil(ends_us - period_us * ((most - current) / previous)), 1)
  end
  return ends_us + max(ceil(period_us - period_us * (most / current)), 0)
end

-- Units for future requests, if any are left after those that requests wait for.
local function window_extra(at_us, left, out, out_before, share, demand, pending, keep, left_s)
  local extra = 1.2 * demand * left_s + 2 * sqrt(demand * left_s) - keep
  if 0 > extra then extra = 0 end
  local most, lendable, rest = batch * share, left / 100, left - left % 1 - pending
  if share >= 0.25 then share = share / 2 end
  most = max(most, left * share + at_us % 1000 / 1000) - pending
  if lent_min > lendable then lendable = lent_min end
  lendable = lendable - out - out_before
  if lendable < most then most = lendable end
  if rest < most then most = rest end
  if most < extra then extra = most end
  if extra < 1 then return 0 end
  return extra - extra % 1
end

-- Of a window that is lent whole: units for future requests, and units that become free until it ends. A node gets what it
-- needs almost certainly, and a part of the rest of its share, because another may need more than it expects.
--   left, coming  units that are left, and that become free and are not lent
--   most_now      the most of what is left for future requests
--   wanted, spare what all nodes are expected to want until the window ends, and what is left if those want it who have not
--                 had their share
--   share, part   a node's share of what those want, and of what all want
--   least         fewer are not worth a message
local function window_part(left, most_now, coming, wanted, spare, share, part, demand, pending, keep, rate, least, left_s,
  costs)
  local expected, held, later, now = demand * left_s, keep + rate * left_s, coming * share, left * share
  local doubt, rest, least_apart = sqrt(expected), left - left % 1 - pending, part < 0.2 and 100 or 40
  -- What nodes have not spent of a rate when the window ends is lost, a unit or more each: they share little first come, first
  -- served.
  if limit * part < least_apart or rate == 0 and later < 10 then later = 0 end
  -- Of requests with costs of their own none is certain to fit into what a node holds.
  local certain = costs and 0 or expected
  if certain < least then least = certain end
  if most_now < now then now = most_now end
  if least > now then now = least end
  now = now - pending
  if rest < now then now = rest end
  if 0 > now then now = 0 end
  local sure, need = certain - 1.5 * doubt - held, 1.2 * expected + 2 * doubt - held
  if 0 > sure then sure = 0 end
  if 0 > spare then spare = 0 end
  local most, fair = now + later, certain + spare * part - held
  if fair < most then most = fair end
  if sure < most then most = sure + (most - sure) * (0.5 + 0.5 * min(spare / wanted, 1)) end
  if least > most then most = least end
  if most < need then need = most end
  if 0 > need then need = 0 end
  -- Units at once are for a while only, because other nodes miss them if traffic moves.
  local soon = max(demand * (epoch_us / 8e6), 64)
  if expected < soon then soon = expected end
  local slack = 2 * sqrt(soon)
  local extra = slack
  if now < extra then extra = now end
  if need < extra then extra = need end
  if need - extra < later then later = need - extra end
  if 1 > later then later = 0 end
  rate = rate + later / left_s
  local at_once = 1.2 * soon + slack - keep - rate * (soon / demand)
  if least > at_once then at_once = least end
  extra = need - later
  if now < extra then extra = now end
  if at_once < extra then extra = at_once end
  return extra - extra % 1, later
end

-- How long a node denies on its own when a window that is lent whole leaves it nothing.
local function window_deny(spent, current, previous, all, share, demand, rate, least, ends_us, lasts_us, gone_us)
  local wait_us, is_short
  if is_sliding then
    local due = refill * share
    if demand < due then due = demand end
    -- When the window ends, the node asks anyway.
    wait_us = min(window_wait(spent, current, previous, ends_us, max(least, 1)), lasts_us)
    is_short = rate < 0.5 * due and all < 9 * refill
  else
    wait_us = window_wait(spent, current, previous, ends_us, 1)
    is_short = current - all * (gone_us / 1e6) > limit / 20
  end
  -- Others hold what this node lacks, and return it if their traffic has gone.
  if is_short then return min(wait_us, floor(period_us / 20)) end
  return wait_us
end

local function window_lease_renew(key, epoch, demand, reported, rate, pending, spent, delta, keep, is_release, costs)
  local at_us, current, previous, wanted, wanted_before, out, out_before, begins_us, nodes, nodes_before, until_s,
    starts_us, ends_us = window_open(heads[key] == nil and values[key] or string_of(key))
  local begins_ms = begins_us / 1000
  local since_us, number = at_us - begins_us, (begins_ms - begins_ms % 1) % 16777215 + 1
  local is_first = epoch ~= number
  -- What a lease returns or owes is booked in the window in which it was granted. Without a lease that is the present
  -- window, as it is for a lease of this epoch, unless the clock was set back into another window.
  local given_us = at_us
  if epoch ~= 0 and (is_first or begins_us < starts_us) then given_us = window_given_us(epoch, at_us) end
  local is_new = given_us < starts_us
  if delta > 0 then
    current = min(current + delta, max(current, 2 * limit))
  elseif not is_new then
    current = current + delta
    if 0 > current then current = 0 end
  elseif is_sliding and given_us >= starts_us - period_us then
    previous = max(previous + delta, 0)
  end
  if at_hand.edges and (delta > 0 or previous > at_us) then previous = at_us end
  if not is_first then
    out = out - spent + delta
    if 0 > out then out = 0 end
  elseif not is_new then
    out_before = out_before - spent + delta - keep
    if 0 > out_before then out_before = 0 end
  end
  if is_first or not is_whole then rate = 0 end
  if is_release and not is_first then
    wanted, nodes, previous = max(wanted - reported, 0), max(nodes - 1, 0), previous + rate * (period_us / 1e6)
  end
  -- The spent part of the limit: the last window counts by the share of it that still overlaps.
  local aging = is_sliding and previous * ((ends_us - at_us) / period_us) or 0
  if is_release then
    window_save(key, at_us, current, previous, wanted, wanted_before, out, out_before, since_us, nodes, nodes_before,
      until_s, ends_us)
    return number, 0, 0, 0, 0, limit - (aging + current), 0
  end
  if 0.001 > demand then demand = 0.001 end
  if is_first then
    reported, nodes, out = 0, nodes + 1, out + keep
    if 65535 < nodes then nodes = 65535 end
    -- Units kept from another window will be spent in this one, so they count here.
    if is_new then current = current + keep end
  end
  wanted = wanted + demand - reported
  if demand > wanted then wanted = demand end
  -- A lease ends early enough that its units are spent or too old before the window ends.
  local left, until_us = whole - (aging + current), ends_us
  if not is_whole then until_us = ends_us - (fifth_us - fifth_us % 1) end
  if begins_us + epoch_us < until_us then until_us = begins_us + epoch_us end
  local lasts_us, extra, later, served = until_us - at_us, 0, 0, lease_served(left - left % 1, pending, costs)
  if 0 > lasts_us then lasts_us = 0 end
  local left_s, all = lasts_us / 1e6, lease_wanted(wanted, wanted_before, nodes, nodes_before)
  local share, least = lease_share(all, nodes, nodes_before, demand), 0
  if is_whole then least = min(demand * 0.02 + 2, 8, limit / 50, limit * share / 10) end
  -- A node with little demand would return units for future requests, so it gets none. Nor does any node if a waiting
  -- request is refused or, if requests have costs of their own, if they are fewer than the waiting ones cost together.
  if lasts_us ~= 0 and not (demand * epoch_s < 1) and (served == pending or is_whole and not costs) then
    if is_whole then
      local unserved = is_first and all - (wanted - demand) or all
      -- Until a window has shown which nodes want a key, others may have the same burst.
      local most_now = nodes_before == 0 and left / 4 or left
      extra, later = window_part(left, most_now, aging, all * left_s, left + aging - unserved * left_s,
        lease_share(unserved, nodes, nodes_before, demand), share, demand, pending, keep, rate, least, left_s,
        costs)
    else
      extra = window_extra(at_us, left, out, out_before, share, demand, pending, keep, left_s)
    end
    if costs and extra < pending then extra, later = 0, 0 end
  end
  if later > 0 then
    previous, rate = max(previous - later * (period_us / lasts_us), 0), rate + later / left_s
    aging = previous * ((ends_us - at_us) / period_us)
  end
  if at_hand.edges and served + extra + keep > 0 then previous = at_us end
  -- Units that requests wait for are spent at once, so only the others count as out.
  current, out = current + (served + extra + later), out + (extra + later)
  spent = aging + current
  local deny_us, wait_us = 0, 0
  if is_whole then
    deny_us = window_deny(spent, current, previous, all, share, demand, rate, least, ends_us - now_us, lasts_us,
      at_us - starts_us)
  else
    deny_us = window_wait(spent, current, previous, ends_us - now_us, whole - spent < 1 and max(batch * share, 1) or 1)
  end
  if served < pending then
    -- The wait is that of the costliest waiting request, so that its client is not told to retry too early.
    local dearest = 1
    for index = 1, costs and #costs or 0 do
      if costs[index] > dearest then dearest = costs[index] end
    end
    wait_us = window_wait(spent, current, previous, ends_us - now_us, dearest)
  end
  window_save(key, at_us, current, previous, wanted, wanted_before, out, out_before, since_us, nodes, nodes_before,
    until_s, ends_us)
  return number, served + extra, rate, lasts_us, deny_us, limit - spent, wait_us
end
