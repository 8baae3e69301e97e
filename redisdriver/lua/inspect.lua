-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Looks at a key and changes nothing.
-- KEYS  1 lock  2 grant  3 queue  4 places, see queue.lua
--       5 shares  6 held, see key.lua
-- ARGV  1 how many waiters to name  2 how many of those that share the key
-- Answers {type of the lock, its first 600 bytes, PTTL, first 59 bytes
-- of grant, live places among the first 10,000, the first of them, each with its
-- place, leases that share the key among the first 10,000 (-1: nobody knows),
-- the first of them, each with its PTTL and lease}
local call, sub = redis.call, string.sub
--# include clock
look()
ms = tonumber(millis)
local kind = call('TYPE', KEYS[1]).ok
local value = kind == 'string' and call('GETRANGE', KEYS[1], 0, 599) or ''
local queue, shares, places, held = {}, {}, 0, 0
for at = 0, 9900, 100 do
  local ids = call('ZRANGE', KEYS[3], at, at + 99)
  if #ids == 0 then break end
  local owners = {}
  for i, id in ipairs(ids) do owners[i] = F.owner(id) end
  for i, place in ipairs(call('HMGET', KEYS[4], unpack(owners))) do
    if place and F.newer(place) then error('HASPDATA places ' .. sub(place, 1, 40), 0) end
    local contact, patience = string.match(place or '', '^(%d+) (%d+) ')
    if contact and contact + patience > ms then
      places = places + 1
      if places <= tonumber(ARGV[1]) then queue[#queue + 1], queue[#queue + 2] = ids[i], place end
    end
  end
end
local left = call('PTTL', KEYS[1])
if F.shared(value) then held = -1 end
if held < 0 and call('HGET', KEYS[6], '!') == F.after(value) then
  for at = 0, 9900, 100 do
    local ids, owners = call('ZRANGE', KEYS[5], at, at + 99, 'WITHSCORES'), {}
    if #ids == 0 then break end
    held = math.max(held, 0)
    for i = 1, #ids, 2 do owners[#owners + 1] = ids[i] end
    for i, lease in ipairs(call('HMGET', KEYS[6], unpack(owners))) do
      local ends = ids[2 * i] - ms
      if lease and (ends > 0 or left == -1) then
        held = held + 1
        if held <= tonumber(ARGV[2]) then
          shares[#shares + 1], shares[#shares + 2], shares[#shares + 3] = owners[i], left == -1 and -1 or ends, lease
        end
      end
    end
  end
end
return {kind, value, left, call('GETRANGE', KEYS[2], 0, 58), places, queue, held, shares}
