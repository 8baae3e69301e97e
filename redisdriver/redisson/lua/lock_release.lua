-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Release of a lock or a fenced lock.
-- KEYS: lock, about, gone
-- ARGV: field, label, for how long to remember it (ms or ''), PUBLISH or SPUBLISH, channel
-- Replies: 1 released, 0 it had nothing; {-1, key, type} what stands beside the lock is of another type, and is passed over: the lock
-- goes where the field is there

local lockKey, aboutKey, goneKey = unpack(KEYS)
local field, label, remember, how, channel = unpack(ARGV)

bury(goneKey, remember)
local other = kind({ [aboutKey] = 'hash' })
if call('TYPE', lockKey).ok ~= 'hash' or call('HEXISTS', lockKey, field) == 0 or not (other or mine(aboutKey, field, label)) then
  return other or 0
end
call('HDEL', lockKey, field)
if not other then
  call('HDEL', aboutKey, field)
end
if call('EXISTS', lockKey) == 0 then
  send(how, channel, '0')
end
return other or 1
