-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Try for a lock or a fenced lock.
-- KEYS: lock, about, gone, and of a fenced lock its token
-- ARGV: ttl, keep (ms), field, label, how many fences
-- Replies: {1, fence, how many fences, ms that it lasts} granted; {0, {holder's field, about it}, PTTL} held;
-- {2} released; {-1, key, type} a key of another type.

local lockKey, aboutKey, goneKey, tokenKey = unpack(KEYS)
local ttl, keep, field, label, fences = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local other = kind({ [lockKey] = 'hash', [aboutKey] = 'hash' })
if other then
  return other
end
if call('EXISTS', goneKey) == 1 then
  return { 2 }
end
if call('EXISTS', lockKey) == 0 then
  local fence = '0'
  if tokenKey then
    call('INCRBY', tokenKey, fences)
    fence = call('GET', tokenKey) -- its digits: Lua's numbers are too small for all of them
  end
  call('HINCRBY', lockKey, field, 1)
  bound(lockKey, ttl)
  note(aboutKey, field, label, clock(), fence, keep)
  return { 1, fence, tonumber(fences), ttl }
end
if call('HEXISTS', lockKey, field) == 1 and mine(aboutKey, field, label) then
  local said = call('HGET', aboutKey, field)
  outlive(aboutKey, keep)
  local fence = said and string.match(said, '^%d+ (%d+) ') or tokenKey and call('GET', tokenKey) -- nobody took another since
  return { 1, fence or '0', 1, prolong(lockKey, ttl) }
end
return { 0, holder(lockKey, aboutKey), call('PTTL', lockKey) }
