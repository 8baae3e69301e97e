-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs leases of read-write locks, in whichever mode.
-- KEYS: n locks, n times what stands about it, n times the timeout of the owner's hold as a reader
-- ARGV: ttl, keep (ms), n, and then a field and a label for each
-- Replies: for each -1 what stands beside the lock is damaged, 0 not held, 1 prolonged

local ttl, keep, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
-- one prolongs the lease of one owner.
local function one(lockKey, aboutKey, timeoutKey, field, label)
  if call('TYPE', lockKey).ok ~= 'hash' then
    return 0
  end
  if kind({ [aboutKey] = 'hash' }) then
    return -1 -- and ends no other's lease
  end
  if not mine(aboutKey, field, label) then
    return 0
  end
  if call('HEXISTS', lockKey, field .. ':write') == 0 then
    if call('HEXISTS', lockKey, field) == 0 or call('EXISTS', timeoutKey) == 0 then
      return 0
    end
    prolong(timeoutKey, ttl)
  end
  prolong(lockKey, ttl)
  outlive(aboutKey, keep)
  return 1
end

local answers = {}
for i = 1, n do
  answers[i] = one(KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[2 + 2 * i], ARGV[3 + 2 * i])
end
return answers
