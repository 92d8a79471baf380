-- The strings of one call's keys: all are read before the first operation and written after the last.
--
-- KEYS  the keys of the operations, each once; operations know a key by its index
-- ARGV  none
-- read_keys()                                  reads all strings
-- string_of(key)                               the string as changed so far; false if the key does not exist, and empty
--                                              if it has another type: that is no record, so it will be overwritten
-- kept_until(key, until_s, need_us, spare_us)  returns until when the key is kept, seconds. If `until_s` is too early
--                                              for need_us, the expiry is set again, later by spare_us than needed
-- keep(key, head, tail)                        sets the string; head = false deletes it
-- write_keys()                                 writes every string that has changed
-- unwritten                                    functions that write_keys calls to write keys of other types
--
-- Calling Redis costs more than the arithmetic of a limit, and setting an expiry costs more than changing a string. So
-- a string has a head that changes with every charge and a tail that does not. The head holds when the key expires,
-- which is later than needed, so that most charges need not set it again.

local call = redis.call
local pack, unpack_from, sub = struct.pack, struct.unpack, string.sub

-- The time of this call, microseconds since 1970.
local now_us
-- By key: its string when the call began, or false.
local values
-- By key: the new head of its string, or false to delete it. `kept_ms` has the new time to live in milliseconds, if
-- that changes; then the entry in `heads` is the whole string.
local heads, kept_ms = {}, {}
-- Whether every key without a string is known not to exist; nil before that was asked.
local is_nothing
-- Keys that have another type, and how many of them were replaced.
local wrong, repaired = {}, 0
local unwritten = {}

-- `unpack` puts its values on Lua's stack, which has room for a few thousand.
local together = 1000

local function read_keys()
  values = call('MGET', unpack(KEYS, 1, min(#KEYS, together)))
  for from = together + 1, #KEYS, together do
    local strings = call('MGET', unpack(KEYS, from, min(from + together - 1, #KEYS)))
    for index = 1, #strings do
      values[from + index - 1] = strings[index]
    end
  end
end

-- A key without a string: false if it does not exist, and an empty record if it has another type. One EXISTS for all
-- such keys saves a TYPE for each in the usual case.
local function absent(key)
  if is_nothing == nil then
    local without = {}
    for index = 1, #KEYS do
      if not values[index] and #without < together then without[#without + 1] = KEYS[index] end
    end
    is_nothing = #without < together and call('EXISTS', unpack(without)) == 0
  end
  if is_nothing or call('TYPE', KEYS[key]).ok == 'none' then return false end
  wrong[key], values[key] = true, ''
  return ''
end

local function string_of(key)
  local head = heads[key]
  if head == nil then return values[key] or absent(key) end
  return head and (kept_ms[key] and head or head .. sub(values[key], #head + 1))
end

-- A time to live in milliseconds, within the range that PX takes.
local function lasting_ms(us)
  return max(1, min(ceil(us / 1000), 1e15))
end

-- The latest second that a record can say, in 32 bits.
local kept_last_s = 2 ^ 32 - 1

local function kept_until(key, until_s, need_us, spare_us)
  if now_us + need_us <= until_s * 1e6 then return until_s end
  local lasts_us = need_us + spare_us
  if spare_us < 4e6 then lasts_us = need_us + 4e6 end
  -- One second more, because Redis counts the expiry from the time the call began.
  kept_ms[key] = lasting_ms(lasts_us + 1e6)
  return min(floor((now_us + lasts_us) / 1e6), kept_last_s)
end

local function keep(key, head, tail)
  heads[key] = kept_ms[key] and head and head .. tail or head
end

local function write_keys()
  for index = 1, #unwritten do
    unwritten[index]()
  end
  local KEYS, heads, kept_ms, values, call = KEYS, heads, kept_ms, values, call
  for key = 1, #KEYS do
    local head = heads[key]
    if head ~= nil and wrong[key] then repaired = repaired + 1 end
    if head then
      local ms = kept_ms[key]
      if ms then
        call('SET', KEYS[key], head, 'PX', ms)
      else
        call('SETRANGE', KEYS[key], '0', head)
      end
    elseif head == false and values[key] then
      call('DEL', KEYS[key])
    end
  end
end
