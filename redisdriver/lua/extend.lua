-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs many leases by one TTL. A key of another type reads as not held.
-- KEYS  n locks, then as many grants, unless these last without this renewal, and queues; then, where the leases may be
--       shared, as many shares, held and rooms, see key.lua: all in one hash slot where there are any; in a node at the end its record
-- ARGV  1 TTL, ms  2 n  3… n times "<owner> <label>"; in a node
--       then n times the fence held, 16 digits, or ""; then, where the holders ask to be told when
--       somebody joins the queue, their inbox, or "", see queue.lua; then, where they entered and claim what they were handed, the
--       state of their grants, and n times the fence of the handover, or ""
-- Answers a list of n: 0 not held, 1 held, 2 held and others wait, 3 it may be held, but is shared, and the keys for that are not
-- here; or the beginning of a grant of a later layout. Or 0: the node does not vote; or the longest TTL that it allows, ms.
local call, sub = redis.call, string.sub
local KEEP = F.Keep -- ms the largest fence of a key is kept after its lease, see fences.lua
--# include later
--# include clock
local n = tonumber(ARGV[2])
local whole = #KEYS >= 6 * n -- the keys of shared leases are here
local few = #KEYS == 2 * n -- the grants are not
local queues = few and n or 2 * n -- where the queues begin
--# if node
--# include node
--# include vote
if not longest then return 0 end
if tonumber(ARGV[1]) > longest then return longest end
--# else
if tonumber(ARGV[1]) <= F.Spare then KEEP = KEEP + F.Spare end
--# end
local ttl, keep = ARGV[1], string.format('%.0f', ARGV[1] + KEEP)

local held = call('MGET', unpack(KEYS, 1, n))
local written -- see the end
--# if node
local grants = call('MGET', unpack(KEYS, n + 1, 2 * n))
for i = 1, n do -- an earlier vote, or one that was not claimed, is not the lease
  local fence, grant = ARGV[2 + n + i], grants[i]
  if fence ~= '' and (not grant or F.fence(grant) < fence or string.find(F.state(grant), '[cC]')) then
    held[i] = false
  end
end
--# end

-- prolong does it for one of those who share a key, see key.lua, and says
-- whether the lease stands.
local function prolong(i)
  if not stamp then look() end
  ms = tonumber(millis)
  local lock, shares, leases, room, value = KEYS[i], KEYS[3 * n + i], KEYS[4 * n + i], KEYS[5 * n + i], ARGV[i + 2]
  local got = call('HMGET', leases, '!', value)
  local ends = got[2] and got[1] == F.after(held[i]) and call('ZSCORE', shares, value)
  if not ends or tonumber(ends) <= ms and call('PTTL', lock) ~= -1 then return false end
--# if node
  local fence = ARGV[2 + n + i]
  if fence ~= '' and (F.leaseFence(got[2]) < fence or string.find(F.leaseState(got[2]), '[cC]')) then
    return false
  end
--# end
  written = later(lock, ttl) == 1 or written
  if tonumber(ends) < ms + ttl then call('ZADD', shares, string.format('%.0f', ms + ttl), value) end
  for _, key in ipairs({KEYS[n + i], shares, leases, room}) do later(key, keep) end
  return true
end

local asks -- notes that whoever joins the queue of one of the keys is to tell the inbox, see queue.lua
local inbox = ARGV[F.node(2 * n, n) + 3]
--# if not node
local state = ARGV[n + 4]
local grants = few and {} or call('MGET', unpack(KEYS, n + 1, 2 * n))
--# end
if inbox and inbox ~= '' then
  function asks(i)
    local grant = grants[i] or ''
    local mark, most, others = F.mark(grant), F.most(grant), F.asks(grant)
    local states = F.shared(held[i]) and '[sS]' or '[hmHM]' -- of the grant of a lease
    local stands = F.owner(grant) == F.owner(held[i]) and string.find(F.state(grant), states)
    if not stands or string.find(others .. ' ', ' ' .. inbox .. ' ', 1, true) then return end
    local bare = string.gsub(inbox, '^~', '')
    for _, name in ipairs({bare, '~' .. bare}) do -- it asks in another way now
      local from, to = string.find(others .. ' ', ' ' .. name .. ' ', 1, true)
      if from then others = sub(others, 1, from - 1) .. sub(others, to) end
    end
    if mark ~= '!' then mark = ' ' end
    if most == '' then most = F.fence(grant) end
    others = sub(others, 1, F.Askers * (1 + #inbox))
    redis.pcall('SET', KEYS[n + i], F.head(grant) .. mark .. most .. ' ' .. inbox .. others, 'KEEPTTL') -- if not, renewals tell
  end
end

--# if not node
-- claims answers the grant of one that entered, made one like others, see offer in serve.lua; nil: it is one;
-- false: what was handed over is not what its owner entered.
local function claims(i)
  local grant = grants[i] or ''
  if F.state(grant) ~= 'c' or F.owner(grant) ~= F.owner(held[i]) then return nil end
  local fence, since, mark = F.fence(grant), F.since(grant), F.mark(grant) == '!' and '!' or ''
  local entered = ARGV[n + 4 + i]
  if entered ~= '' and entered ~= fence then return false end
  return F.grant(held[i], fence, since, state) .. mark
end
--# end

local wanted = call('EXISTS', unpack(KEYS, queues + 1, queues + n)) > 0
local out, any = {}, nil
for i = 1, n do
  local newer = grants[i] and F.newer(grants[i])
  out[i] = newer and sub(grants[i], 1, 40) or 0
  local stands = not newer and held[i] == ARGV[i + 2]
--# if not node
  local claimed = stands and state and claims(i)
  if claimed == false and state then stands = false end
--# end
  if stands then
    written = later(KEYS[i], ttl) == 1 or written
    if not few then later(KEYS[n + i], keep) end
  elseif not newer and held[i] and F.shared(held[i]) then
    if whole then stands = prolong(i) else out[i] = 3 end
  end
  if stands and not any then any = i end
--# if not node
  if stands and claimed then
    grants[i] = claimed
    call('SET', KEYS[n + i], claimed, 'KEEPTTL')
  end
--# end
  if stands and asks then asks(i) end
  if stands then out[i] = wanted and call('EXISTS', KEYS[queues + i]) == 1 and 2 or 1 end
end
-- Replicas that confirm what the connection wrote confirm what stands.
if any and not written then call('SET', KEYS[any], held[any], 'KEEPTTL') end
return out
