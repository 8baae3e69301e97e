-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs leases of locks, fair locks and fenced locks.
-- KEYS: n locks, n times what stands about it, n times its queue (of a fair lock)
-- ARGV: ttl, keep (ms), n, and then a field and a label for each
-- Replies: for each 0 not held, 1 prolonged, 2 and somebody waits

local ttl, keep, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local answers = {}
for i = 1, n do
  local lockKey, aboutKey, queueKey = KEYS[i], KEYS[n + i], KEYS[2 * n + i]
  local field, label = ARGV[2 + 2 * i], ARGV[3 + 2 * i]
  answers[i] = 0
  if call('TYPE', lockKey).ok == 'hash' and call('HEXISTS', lockKey, field) == 1 and mine(aboutKey, field, label) then
    prolong(lockKey, ttl)
    outlive(aboutKey, keep)
    answers[i] = (queueKey and call('EXISTS', queueKey) == 1) and 2 or 1
  end
end
return answers
