-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Looks at a key and changes nothing.
-- KEYS  1 lock  2 grant  3 line  4 places, see line.lua
-- ARGV  1 how many waiters to name
-- Answers {type of the lock, its first 600 bytes, PTTL, first 59 bytes of
-- grant, live places among the first 10,000, and then the first of them}
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GETRANGE', KEYS[1], 0, 599) or ''
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local out = {kind, value, redis.call('PTTL', KEYS[1]), redis.call('GETRANGE', KEYS[2], 0, 58), 0}
for at = 0, 9900, 100 do
  local ids = redis.call('ZRANGE', KEYS[3], at, at + 99)
  if #ids == 0 then break end
  local owners = {}
  for i, id in ipairs(ids) do owners[i] = string.sub(id, 1, 26) end
  for i, place in ipairs(redis.call('HMGET', KEYS[4], unpack(owners))) do
    local contact, patience = string.match(place or '', '^(%d+) (%d+) ')
    if contact and contact + patience > now then
      out[5] = out[5] + 1
      if out[5] <= tonumber(ARGV[1]) then out[#out + 1] = ids[i] end
    end
  end
end
return out
