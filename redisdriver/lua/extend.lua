-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/extend.lua by go generate; DO NOT EDIT.
local sub = string.sub
local SHARED = 'SHAREDLEASESAREINHASPSHARE '
local n = math.floor(#KEYS / 3)
local linger = ARGV[2]
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    redis.call('PEXPIRE', key, px, 'GT')
    return
  end
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(px) then redis.call('PEXPIRE', key, px) end
end
local held = redis.call('MGET', unpack(KEYS, 1, n))
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
