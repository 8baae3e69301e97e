-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The sign of life of many places, in one queue or several.
-- KEYS  for each queue: lock, grant, queue, places, shares, room, see queue.lua and key.lua;
--       in a node at the end its record
-- ARGV  for each queue: n, then n times "<owner> <label>" and its patience, ms
-- Answers one number for each place: -1 it is gone; 0 it stands; more: it
-- should try again after so many ms, because it is the first that may get the key,
-- and no hint will come when the holder goes; or because the key is free, and
-- the first does not come for it. Or the beginning of a place of another layout. Or 0: the node does not vote.
local call, sub = redis.call, string.sub

--# include clock

local caller -- nobody in particular, see batch.lua
local K -- the keys of the queue at hand, see queue.lua
--# include queue
--# include first
--# include room

--# if node
local KEEP = F.Keep
--# include node
--# include vote
if not longest then return 0 end
--# end
look()
ms = tonumber(millis)

-- beside says when the first in the queue may have a key that is shared: ms, or 1
-- where it may now; nil when nobody knows who shares it. See key.lua.
local function beside(limit)
  local n, least = call('ZCARD', K.shares), smallest()
  if limit and n < math.min(least, limit > 0 and limit or math.huge) then return 1 end
  local _, at = opens(limit, n, least)
  return at and math.max(1, at - ms)
end

-- watch says after how many ms the first in the queue should look again.
local function watch(limit)
  local cur = call('MGET', K.lock)[1]
  local left = call('PTTL', K.lock)
  if left == -2 then return 1 end -- free
  local grant = cur and call('GET', K.grant)
  local hints = grant and F.owner(grant) == F.owner(cur)
    and string.find(F.state(grant), '[hcHCs]')
  if left > 0 and cur and F.shared(cur) then left = beside(limit) or left end
  if hints and left >= 0 then return left + 1 end
  return (left < 0 or left > 100) and 100 or left + 1
end

local out, arg = {}, 1
for key = 1, #KEYS - 5, 6 do
  K = {lock = KEYS[key], grant = KEYS[key + 1], queue = KEYS[key + 2], places = KEYS[key + 3], shares = KEYS[key + 4], room = KEYS[key + 5]}
  local n, at, outlives, any = tonumber(ARGV[arg]), {}, 0, nil
  for i = arg + 1, arg + 2 * n, 2 do
    local value, patience, owner = ARGV[i], ARGV[i + 1], F.owner(ARGV[i])
    local number, place, strange = call('ZSCORE', K.queue, value), nil, nil
    if number then
      local got = call('HMGET', K.places, owner, '?')
      local head, missed, tail = string.match(got[1] or '', '^%d+ %d+( %d+ %a[PE]?%x*S?%d*)(!?)( %S+)$')
      if missed == '!' then head = string.gsub(head, 'E%x*', '', 1) end -- it may have entered: only its own Try says that it waits
      place = head
      if not head and got[1] and entry(value, number, got[1]).strange then strange = sub(got[1], 1, 40) end
      if place then
        call('HSET', K.places, owner, millis .. ' ' .. patience .. head .. tail)
        if got[2] then alive(number, got[2]) end
        at[value] = #out + 1
        any = any or at[value]
        outlives = math.max(outlives, tonumber(patience))
      end
    end
    out[#out + 1] = strange or place and 0 or -1
  end
  if outlives > 0 then
    outlast(K.queue, outlives + F.Linger)
    outlast(K.places, outlives + F.Linger)
    local e, why = first(false)
    local mine, after = e and at[e.value], e and watch(e.limit) or why == 'strange' and 0 or 1
    if mine or after == 1 then out[mine or any] = after end
  end
  arg = arg + 2 * n + 1
end
return out
