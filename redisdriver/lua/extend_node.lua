-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/extend.lua by go generate; DO NOT EDIT.
local sub = string.sub
local SHARED = 'SHAREDLEASESAREINHASPSHARE '
local n = math.floor(#KEYS / 3)
local KEEP = 61000
local life -- names this run of the server; nil until somebody asked
local longest -- ms, the longest lease; false: the node does not vote
local function votes(key)
  if longest == nil then
    local record, info = redis.call('GET', key), redis.call('INFO', 'server')
    longest = record and sub(record, 1, 3) == 'ok ' and
      string.find(info, '\nrun_id:' .. sub(record, 4, 43) .. '\r', 1, true) and
      tonumber(sub(record, 45)) or false
    life = longest and sub(record, 4, 19) or string.match(info, '\nrun_id:(' .. string.rep('%x', 16) .. ')')
    if longest and longest > KEEP then KEEP = longest end
  end
  return longest
end
if not votes(KEYS[#KEYS]) then return 0 end
if tonumber(ARGV[1]) > longest then return longest end
local linger = ARGV[1] + KEEP
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    redis.call('PEXPIRE', key, px, 'GT')
    return
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(px) then redis.call('PEXPIRE', key, px) end
end
local held = redis.call('MGET', unpack(KEYS, 1, n))
local grants = redis.call('MGET', unpack(KEYS, n + 1, 2 * n))
for i = 1, n do -- an earlier vote, or one that was not claimed, is not the lease
  local fence, grant = ARGV[2 + n + i], grants[i]
  if fence ~= '' and (not grant or sub(grant, 28, 43) < fence or string.find(sub(grant, 59, 59), '[cC]')) then
    held[i] = false
  end
end
local now
local function prolong(i)
  if not now then
    local clock = redis.call('TIME')
    now = tonumber(clock[1] .. sub('000000' .. clock[2], -6, -4))
  end
  local lock, side, value = KEYS[i], sub(KEYS[2 * n + i], 11), ARGV[i + 2]
  local shares, leases = 'hasp.shares:' .. side, 'hasp.held:' .. side
  local got = redis.call('HMGET', leases, '!', value)
  local ends = got[2] and got[1] == sub(held[i], 28) and redis.call('ZSCORE', shares, value)
  if not ends or tonumber(ends) <= now and redis.call('PTTL', lock) ~= -1 then return false end
  local fence = ARGV[2 + n + i]
  if fence ~= '' and (sub(got[2], 1, 16) < fence or string.find(sub(got[2], 32, 32), '[cC]')) then
    return false
  end
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
  elseif held[i] and sub(held[i], 1, 27) == SHARED then
    stands = prolong(i)
  end
  if stands then out[i] = wanted and redis.call('EXISTS', KEYS[2 * n + i]) == 1 and 2 or 1 end
end
return out
