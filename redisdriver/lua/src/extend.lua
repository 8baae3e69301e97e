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
local sub = string.sub
<<template "marker" .>>
local n = math.floor(#KEYS / 3)
<<if .Node>>
local KEEP = <<.Keep>>
<<template "node" .>>
if not votes(KEYS[#KEYS]) then return 0 end
if tonumber(ARGV[1]) > longest then return longest end
<<end>>
local linger = <<if .Node>>ARGV[1] + KEEP<<else>>ARGV[2]<<end>>
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    redis.call('PEXPIRE', key, px, 'GT')
    return
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(px) then redis.call('PEXPIRE', key, px) end
end

local held = redis.call('MGET', unpack(KEYS, 1, n))
<<if .Node>>
local grants = redis.call('MGET', unpack(KEYS, n + 1, 2 * n))
for i = 1, n do -- an earlier vote, or one that was not claimed, is not the lease
  local fence, grant = ARGV[2 + n + i], grants[i]
  if fence ~= '' and (not grant or <<fence "grant">> < fence or string.find(<<state "grant">>, '[cC]')) then
    held[i] = false
  end
end
<<end>>

-- prolong does it for one of those who share a key, see held.lua, and says
-- whether the lease stands.
local now
local function prolong(i)
  if not now then
    local clock = redis.call('TIME')
    now = tonumber(clock[1] .. sub('000000' .. clock[2], -6, -4))
  end
  local lock, side, value = KEYS[i], <<side "KEYS[2 * n + i]">>, ARGV[i + 2]
  local shares, leases = 'hasp.shares:' .. side, 'hasp.held:' .. side
  local got = redis.call('HMGET', leases, '!', value)
  local ends = got[2] and got[1] == <<after "held[i]">> and redis.call('ZSCORE', shares, value)
  if not ends or tonumber(ends) <= now and redis.call('PTTL', lock) ~= -1 then return false end
<<if .Node>>
  local fence = ARGV[2 + n + i]
  if fence ~= '' and (<<leaseFence "got[2]">> < fence or string.find(<<leaseState "got[2]">>, '[cC]')) then
    return false
  end
<<end>>
  later(lock, ARGV[1])
  if tonumber(ends) < now + ARGV[1] then redis.call('ZADD', shares, string.format('%.0f', now + ARGV[1]), value) end
  for _, key in ipairs({KEYS[n + i], shares, leases, 'hasp.room:' .. side}) do later(key, linger) end
  return true
end

local wanted = redis.call('EXISTS', unpack(KEYS, 2 * n + 1, 3 * n)) > 0
local out = {}
for i = 1, n do
  out[i] = 0
  local stands = held[i] == ARGV[i + 2]
  if stands then
    later(KEYS[i], ARGV[1])
    later(KEYS[n + i], linger)
  elseif held[i] and <<shared "held[i]">> then
    stands = prolong(i)
  end
  if stands then out[i] = wanted and redis.call('EXISTS', KEYS[2 * n + i]) == 1 and 2 or 1 end
end
return out
