-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Looks at what may be left over of a key, or removes it if it is as it was seen.
-- KEYS  1 lock  2 grant  3 queue  4 places, see queue.lua
--       5 shares  6 held, see key.lua
--       7 the key of Redis that is looked at  8 of a node, its record
-- ARGV  1 what may be left over: lease, foreign, places, sidecar, or gone
--       2 the state that was seen, "": look only; of places, the owner's "<owner> <label>"
--       3 how long what is not removed at once is kept, ms  4 of places: the place
-- Answers {what it is, its state}, or nothing where nothing is left over; of places
-- a list of both; {'newer', text} of a later layout, which is never removed. Removes: ms for which it is kept, 0: it is gone; -1: it is not
-- as it was seen, or somebody renews it.
local call, sub = redis.call, string.sub
local KEEP = F.Keep -- ms the grant is kept after its lease, of a node longer: see node.lua
local LINGER = F.Linger
--# include clock
look()
ms = tonumber(millis)
local value, grant = unpack(call('MGET', KEYS[1], KEYS[2]))
if grant and F.newer(grant) then return ARGV[2] == '' and {'newer', grant} or -1 end

-- renewed answers who renews a lease without an expiry: a renewal prolongs what stands beside it.
local function renewed()
  if F.shared(value) then
    local last = call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')
    if call('HGET', KEYS[6], '!') ~= F.after(value) or not last[1] then return 'unknown' end
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

-- over says whether the waiter of a place has been gone for a while.
local function over(place)
  if place and F.newer(place) then return false end
  local contact, patience = string.match(place or '', '^(%d+) (%d+) ')
  return not contact or contact + patience + LINGER <= ms
end

-- each calls a function for up to n places in the queue.
local function each(n, f)
  for at = 0, n - 100, 100 do
    local ids, owners = call('ZRANGE', KEYS[3], at, at + 99), {}
    if #ids == 0 then return false end
    for i, id in ipairs(ids) do owners[i] = F.owner(id) end
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

-- waits says whether somebody may wait for the key.
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
    return F.newer(text) and 'newer' or kind, text
  end
  if kind == 'zset' then return kind, string.format('%d', call('ZCARD', KEYS[7])) end
  return kind, ''
end

if ARGV[1] == 'places' then
  if ARGV[2] == '' then
    local found = {}
    each(1000, function(id, place)
      if over(place) then found[#found + 1], found[#found + 2] = id, place or '' end
      if place and F.newer(place) then found[#found + 1], found[#found + 2] = 'newer', place end
    end)
    return found
  end
  local id = ARGV[2]
  local place = call('HMGET', KEYS[4], F.owner(id))[1]
  if (place or '') ~= ARGV[4] or not over(place) or call('ZREM', KEYS[3], id) == 0 then return -1 end
  call('HDEL', KEYS[4], F.owner(id))
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
