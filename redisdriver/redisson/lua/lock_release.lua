-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Release of a lock or a fenced lock.
-- KEYS: lock, about, gone
-- ARGV: field, label, for how long to remember it (ms or ''), PUBLISH or SPUBLISH, channel
-- Replies: 1 released, 0 it had nothing

local lockKey, aboutKey, goneKey = unpack(KEYS)
local field, label, remember, how, channel = unpack(ARGV)

bury(goneKey, remember)
if call('TYPE', lockKey).ok ~= 'hash' or call('HEXISTS', lockKey, field) == 0 or not mine(aboutKey, field, label) then
  return 0
end
call('HDEL', lockKey, field)
call('HDEL', aboutKey, field)
if call('EXISTS', lockKey) == 0 then
  send(how, channel, '0')
end
return 1
