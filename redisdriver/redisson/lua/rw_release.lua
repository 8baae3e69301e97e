-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Release of a read-write lock, in whichever mode.
-- KEYS: lock, about, gone, timeout of this owner's hold as a reader
-- ARGV: field, label, for how long to remember it (ms or ''), prefix of timeouts, PUBLISH or SPUBLISH, channel
-- Replies: 1 released, 0 it had nothing

local lockKey, aboutKey, goneKey, timeoutKey = unpack(KEYS)
local field, label, remember, prefix, how, channel = unpack(ARGV)
local writer = field .. ':write'

bury(goneKey, remember)
local mode = call('TYPE', lockKey).ok == 'hash' and call('HGET', lockKey, 'mode')
if not mode or not mine(aboutKey, field, label) then
  return 0
end
if call('HDEL', lockKey, writer) == 1 then
  call('HDEL', aboutKey, field)
  if call('HLEN', lockKey) == 1 then
    call('DEL', lockKey)
  else
    call('HSET', lockKey, 'mode', 'read')
  end
  wake(how, channel)
  return 1
end
local alive = call('DEL', timeoutKey)
if call('HDEL', lockKey, field) == 0 then
  return 0
end
call('HDEL', aboutKey, field)
-- The lock lasts as long as the longest of those who are left.
if call('HLEN', lockKey) <= most then
  local left = -2
  local all = call('HGETALL', lockKey)
  for i = 1, #all, 2 do
    if all[i] ~= 'mode' and left ~= -1 then
      local ms = lasts(prefix, all[i], all[i + 1])
      left = ms == -1 and -1 or math.max(left, ms)
    end
  end
  if left > 0 then
    call('PEXPIRE', lockKey, left)
  elseif left ~= -1 and mode ~= 'write' then
    call('DEL', lockKey)
    tell(how, channel, '0')
  end
end
return alive
