-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs many leases by one TTL. A key of another type reads as not held.
-- KEYS  n locks, n grants, n lines: all in one slot where there are slots; in a
--       node at the end its record
-- ARGV  1 TTL, ms  2 TTL + LINGER, ms  3… n times "<owner> <label>"; in a node
--       then n times the fence held, 16 digits, or ""
-- Answers a list of n: 0 not held, 1 held, 2 held and others wait. Or 0: the
-- node does not vote; or the longest TTL that it allows, ms.
local n = math.floor(#KEYS / 3)
local linger = ARGV[2]
--+ local KEEP = 61000
--+ --@ node.lua
--+ if not votes(KEYS[#KEYS]) then return 0 end
--+ if tonumber(ARGV[1]) > most then return most end
--+ linger = ARGV[1] + KEEP
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    redis.call('PEXPIRE', key, px, 'GT')
    return
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(px) then redis.call('PEXPIRE', key, px) end
end

local held = redis.call('MGET', unpack(KEYS, 1, n))
--+ local grants = redis.call('MGET', unpack(KEYS, n + 1, 2 * n))
--+ for i = 1, n do -- an earlier vote, or one that was not claimed, is not the lease
--+   local fence, grant = ARGV[2 + n + i], grants[i]
--+   if fence ~= '' and (not grant or string.sub(grant, 28, 43) < fence or string.find(string.sub(grant, 59, 59), '[cC]')) then
--+     held[i] = false
--+   end
--+ end
local wanted = redis.call('EXISTS', unpack(KEYS, 2 * n + 1, 3 * n)) > 0
local out = {}
for i = 1, n do
  out[i] = 0
  if held[i] == ARGV[i + 2] then
    later(KEYS[i], ARGV[1])
    later(KEYS[n + i], linger)
    out[i] = wanted and redis.call('EXISTS', KEYS[2 * n + i]) == 1 and 2 or 1
  end
end
return out
