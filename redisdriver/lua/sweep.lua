-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/sweep.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local KEEP = 61000 -- ms the grant is kept after its lease, of a node longer: see node.lua
local LINGER = 60000
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
look()
local value, grant = unpack(call('MGET', KEYS[1], KEYS[2]))
if grant and string.find(grant, '^v[1-9]') then return ARGV[2] == '' and {'newer', grant} or -1 end
local function renewed()
  if sub(value, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
    local last = call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')
    if call('HGET', KEYS[6], '!') ~= sub(value, 28) or not last[1] then return 'unknown' end
    return tonumber(last[2]) > ms and 'live' or 'dead'
  end
  if KEYS[8] then
    local longest = tonumber(string.match(call('GET', KEYS[8]) or '', '^ok %x+ (%d+)$'))
    if not longest then return 'unknown' end
    KEEP = math.max(KEEP, longest)
  end
  local left = call('PTTL', KEYS[2])
  if left > KEEP then return 'live' end
  return left >= 0 and 'dead' or 'unknown' -- it has no grant, or one that a person made permanent, too
end
local function over(place)
  if place and string.find(place, '^v[1-9]') then return false end
  local contact, patience = string.match(place or '', '^(%d+) (%d+) ')
  return not contact or contact + patience + LINGER <= ms
end
local function each(n, f)
  for at = 0, n - 100, 100 do
    local ids, owners = call('ZRANGE', KEYS[3], at, at + 99), {}
    if #ids == 0 then return false end
    for i, id in ipairs(ids) do owners[i] = sub(id, 1, 26) end
    for i, place in ipairs(call('HMGET', KEYS[4], unpack(owners))) do f(ids[i], place) end
  end
  return true
end
local function lease()
  if not value or call('PTTL', KEYS[1]) ~= -1 then return nil end
  if ARGV[1] == 'foreign' then return 'foreign' end
  local ok, who = pcall(renewed) -- something else may stand beside it
  return ok and who or 'unknown'
end
local function waits()
  local any = false
  local more = each(1000, function(_, place) any = any or not over(place) end)
  return any or more
end
local function sidecar()
  if call('PTTL', KEYS[7]) ~= -1 then return nil end
  if ARGV[1] ~= 'gone' then
    if value then return nil end
    local ok, any = pcall(waits)
    if ok and any then return nil end
  end
  local kind = call('TYPE', KEYS[7]).ok
  if kind == 'string' then
    local text = call('GET', KEYS[7])
    return string.find(text, '^v[1-9]') and 'newer' or kind, text
  end
  if kind == 'zset' then return kind, string.format('%d', call('ZCARD', KEYS[7])) end
  return kind, ''
end
if ARGV[1] == 'places' then
  if ARGV[2] == '' then
    local found = {}
    each(1000, function(id, place)
      if over(place) then found[#found + 1], found[#found + 2] = id, place or '' end
      if place and string.find(place, '^v[1-9]') then found[#found + 1], found[#found + 2] = 'newer', place end
    end)
    return found
  end
  local id = ARGV[2]
  local place = call('HMGET', KEYS[4], sub(id, 1, 26))[1]
  if (place or '') ~= ARGV[4] or not over(place) or call('ZREM', KEYS[3], id) == 0 then return -1 end
  call('HDEL', KEYS[4], sub(id, 1, 26))
  return 0
end
local what, content
if ARGV[1] == 'lease' or ARGV[1] == 'foreign' then
  what, content = lease(), value
else
  what, content = sidecar()
end
if ARGV[2] == '' then return what and {what, content} or {} end
if not what or what == 'live' or what == 'newer' or what .. ' ' .. content ~= ARGV[2] then return -1 end
if what == 'dead' or what == 'foreign' then
  call('DEL', KEYS[1])
  return 0
end
call('PEXPIRE', KEYS[7], ARGV[3]) -- whoever still needs it prolongs it
return tonumber(ARGV[3])
