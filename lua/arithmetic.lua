-- Whole numbers in doubles, which are exact below 2^53; longer products are computed in parts.
--
-- scaled(a, b, c)     floor(a * b / c) and the remainder, exact for whole b <= c <= 2^51 and a < 2^53
-- scaled_up(a, b, c)  ceil(a * b / c) for any whole a, b < 2^53 and 0 < c: exact where the product or c allows it
-- divisor(a, b)       the greatest common one
-- is_count(a)         whether a is from 0 to below 2^53; what is no number is not
-- is_plan(limit, period_us, units)  whether a record may have been written under these
-- deepest             the most whole buckets that a debt may be
--
-- A window of the calendar has no fixed length: its plan has `edges`, when four windows in a row begin, microseconds since
-- 1970, and the number of the first. Beyond them a window lasts its longest: `period_us` less the microsecond that tells records
-- of the calendar from those of as many days. Without `edges`, windows begin at multiples of the period.
--
-- window_at(edges, period_us, at_us)     the number of the window of a time
-- window_start(edges, period_us, index)  when the window of a number begins
-- is_calendar(period_us)                 whether a record with this period is of the calendar
-- calendar_end(edges, period_us, now_us, spent_us, old_us)  when the window of another unit ends
-- day_us                                 a day: windows of the calendar are longer than their period by less

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local exact, deepest, day_us = 2 ^ 53, 2 ^ 20, 86400e6

local function is_count(a)
  return a >= 0 and a < exact
end

local function is_plan(limit, period_us, units)
  return is_count(limit) and is_count(units) and limit >= 1 and units >= 1 and period_us >= 1 and period_us <= 2 ^ 64 / 1000
end

local function scaled(a, b, c)
  local product = a * b
  if product < exact then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- An infinity, from a record that is not ours, would never end the loop below. NaN is returned instead, which makes
  -- every cost too large.
  if not is_count(a) then return 0 / 0, 0 end
  -- Long multiplication: as many binary digits of `a` at a time as keep every step in the exact range.
  local step = 2 ^ floor(math.log(exact / (2 * c)) / math.log(2))
  if step < 2 then step = 2 end
  local scale = 1
  while a >= scale * step do scale = scale * step end
  local quotient, rest = 0, 0
  while scale >= 1 do
    local digit = floor(a / scale)
    a = a - digit * scale
    local whole = rest * step + digit * b
    rest = whole % c
    quotient = quotient * step + (whole - rest) / c
    scale = scale / step
  end
  return quotient, rest
end

local function scaled_up(a, b, c)
  -- `scaled` is exact only for b <= c, so whole multiples of c are multiplied separately.
  local whole = floor(b / c)
  local quotient, rest = scaled(a, b - whole * c, c)
  if rest > 0 then quotient = quotient + 1 end
  return a * whole + quotient
end

local function window_at(edges, period_us, at_us)
  if not edges then return floor(at_us / period_us) end
  local place, beyond = #edges, 0
  while place > 1 and at_us < edges[place] do place = place - 1 end
  if place == #edges or at_us < edges[1] then beyond = floor((at_us - edges[place]) / (period_us - 1)) end
  return edges.first + place - 1 + beyond
end

local function window_start(edges, period_us, index)
  if not edges then return index * period_us end
  local place = index - edges.first + 1
  local near = max(1, min(place, #edges))
  return edges[near] + (place - near) * (period_us - 1)
end

local function is_calendar(period_us)
  return period_us > 1 and (period_us - 1) % day_us == 0
end

-- When the window of another calendar unit ends in which units were last spent, as far as the windows around now tell. It is
-- over at the start of a longer one that they do not lie in, and days begin when that did; else it is the longest that it can
-- be.
local function calendar_end(edges, period_us, now_us, spent_us, old_us)
  if not edges or old_us >= period_us then return spent_us + old_us - 1 end
  local starts_us = window_start(edges, period_us, window_at(edges, period_us, now_us))
  if spent_us < starts_us then return starts_us end
  if old_us - 1 > day_us then return spent_us + old_us - 1 end
  return starts_us + (floor((spent_us - starts_us) / day_us) + 1) * day_us
end

local function divisor(a, b)
  while b > 0 do
    a, b = b, a % b
  end
  return a
end
