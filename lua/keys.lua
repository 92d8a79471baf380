-- The strings of one call's keys: read together before anything is done, written together when everything is.
--
-- KEYS  the keys of the operations, each once; operations know a key by its index
-- ARGV  none
-- read_keys()                                  reads them
-- string_of(key)                               its string, as it is by now; false: there is none. Of a key that is
--                                              something else it is empty: no record, which writes over what was there
-- kept_until(key, until_s, need_us, spare_us)  until when a key is kept, seconds, whose string is needed for so long
-- keep(key, head, tail)                        a key's string from here on; false: none
-- write_keys()                                 writes what has changed
-- unwritten                                    functions that write what is no string, called by it
--
-- To call Redis costs more than what a limit computes, and to keep a key for longer more than to change its string.
-- So a string is a head that changes with every charge and a tail that does not, and its head says until when the
-- key is kept: longer than it is needed, and set anew only where that is not enough.

local call = redis.call
local pack, unpack_from, sub = struct.pack, struct.unpack, string.sub

-- The instant of this call, microseconds since 1970.
local now_us
-- By key: its string when the call began, or false.
local values
-- By key: the head of its string from here on, or false; for how long it is to be kept from now, milliseconds, where
-- that changes, and then the head is the whole string.
local heads, kept_ms = {}, {}
-- Whether keys without a string are nothing else, once that was asked.
local is_nothing
-- Which keys are something else, and how many of a wrong type were replaced.
local wrong, repaired = {}, 0
local unwritten = {}

-- Lua's stack has room for some thousand arguments.
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

-- What a key of a type that it never has is taken for: an empty record. Its type is asked for once.
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

-- Until a key may go, milliseconds, as PX wants them.
local function lasting_ms(us)
  return max(1, min(ceil(us / 1000), 1e15))
end

local function kept_until(key, until_s, need_us, spare_us)
  if now_us + need_us <= until_s * 1e6 then return until_s end
  local lasts_us = need_us + spare_us
  if spare_us < 4e6 then lasts_us = need_us + 4e6 end
  -- A second more: the clock that keys go by stood still when the call began.
  kept_ms[key] = lasting_ms(lasts_us + 1e6)
  return min(floor((now_us + lasts_us) / 1e6), 4294967295)
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
