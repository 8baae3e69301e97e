-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/inspect.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
look()
local kind = call('TYPE', KEYS[1]).ok
local value = kind == 'string' and call('GETRANGE', KEYS[1], 0, 599) or ''
local queue, shares, places, held = {}, {}, 0, 0
for at = 0, 9900, 100 do
  local ids = call('ZRANGE', KEYS[3], at, at + 99)
  if #ids == 0 then break end
  local owners = {}
  for i, id in ipairs(ids) do owners[i] = sub(id, 1, 26) end
  for i, place in ipairs(call('HMGET', KEYS[4], unpack(owners))) do
    if place and string.find(place, '^v[1-9]') then error('HASPDATA places ' .. sub(place, 1, 40), 0) end
    local contact, patience = string.match(place or '', '^(%d+) (%d+) ')
    if contact and contact + patience > ms then
      places = places + 1
      if places <= tonumber(ARGV[1]) then queue[#queue + 1], queue[#queue + 2] = ids[i], place end
    end
  end
end
local left = call('PTTL', KEYS[1])
if sub(value, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then held = -1 end
if held < 0 and call('HGET', KEYS[6], '!') == sub(value, 28) then
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
