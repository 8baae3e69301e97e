-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs leases of read-write locks, in whichever mode.
-- KEYS: n locks, n times what stands about it, n times the timeout of the owner's hold as a reader
-- ARGV: ttl, keep (ms), n, and then a field and a label for each
-- Replies: for each 0 not held, 1 prolonged

local ttl, keep, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local answers = {}
for i = 1, n do
  local lockKey, aboutKey, timeoutKey = KEYS[i], KEYS[n + i], KEYS[2 * n + i]
  local field, label = ARGV[2 + 2 * i], ARGV[3 + 2 * i]
  answers[i] = 0
  if call('TYPE', lockKey).ok == 'hash' and mine(aboutKey, field, label) then
    if call('HEXISTS', lockKey, field .. ':write') == 1 then
      answers[i] = 1
    elseif call('HEXISTS', lockKey, field) == 1 and call('EXISTS', timeoutKey) == 1 then
      prolong(timeoutKey, ttl)
      answers[i] = 1
    end
  end
  if answers[i] == 1 then
    prolong(lockKey, ttl)
    outlive(aboutKey, keep)
  end
end
return answers
