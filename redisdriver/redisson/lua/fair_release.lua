-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Release of a fair lock, or of a place in its queue.
-- KEYS: lock, about, queue, timeouts, waiters, gone
-- ARGV: field, label, for how long to remember it (ms or ''), PUBLISH or SPUBLISH, channel
-- Replies: 1 released, 0 it had nothing

local field, label, remember, how, channel = unpack(ARGV)

bury(KEYS[6], remember)
if strange() then
  return 0
end
tidy((clock()))
local had = 0
if call('HEXISTS', lockKey, field) == 1 and mine(aboutKey, field, label) then
  call('HDEL', lockKey, field)
  call('HDEL', aboutKey, field)
  had = 1
end
local w = waiter(field)
if w and w.label == label or not w and call('LPOS', queueKey, field) then
  leave(field, w or { added = 0 }) -- what was known of it may be gone
  had = 1
end
hint(how, channel)
return had
