-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs leases of locks, fair locks and fenced locks.
-- KEYS: n locks, n times what stands about it, n times its queue (of a fair lock)
-- ARGV: ttl, keep (ms), n, and then a field and a label for each
-- Replies: for each -1 what stands beside the lock is damaged, 0 not held, 1 prolonged, 2 and somebody waits

local ttl, keep, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
-- one prolongs the lease of one owner.
local function one(lockKey, aboutKey, queueKey, field, label)
  if call('TYPE', lockKey).ok ~= 'hash' then
    return 0
  end
  if kind({ [aboutKey] = 'hash' }) then
    return -1 -- and ends no other's lease
  end
  if call('HEXISTS', lockKey, field) == 0 or not mine(aboutKey, field, label) then
    return 0
  end
  prolong(lockKey, ttl)
  outlive(aboutKey, keep)
  return (queueKey and call('EXISTS', queueKey) == 1) and 2 or 1
end

local answers = {}
for i = 1, n do
  answers[i] = one(KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[2 + 2 * i], ARGV[3 + 2 * i])
end
return answers
