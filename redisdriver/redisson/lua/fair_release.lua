-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Release of a fair lock, or of a place in its queue.
-- KEYS: lock, about, queue, timeouts, waiters, gone
-- ARGV: field, label, for how long to remember it (ms or ''), PUBLISH or SPUBLISH, channel
-- Replies: as lock_release.lua

local field, label, remember, how, channel = unpack(ARGV)

bury(KEYS[6], remember)
local other = kind({ [aboutKey] = 'hash' })
local noQueue = kind({ [queueKey] = 'list', [timeoutsKey] = 'zset', [waitersKey] = 'hash' })
if not noQueue then
  tidy((clock()))
end
local had = 0
if call('TYPE', lockKey).ok == 'hash' and call('HEXISTS', lockKey, field) == 1 and (other or mine(aboutKey, field, label)) then
  call('HDEL', lockKey, field)
  if not other then
    call('HDEL', aboutKey, field)
  end
  had = 1
end
if noQueue then
  return noQueue
end
local w = waiter(field)
if w and w.label == label or not w and call('LPOS', queueKey, field) then
  leave(field, w or { added = 0 }) -- what was known of it may be gone
  had = 1
end
hint(how, channel)
return other or had
