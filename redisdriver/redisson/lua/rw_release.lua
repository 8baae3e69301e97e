-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Release of a read-write lock, in whichever mode.
-- KEYS: lock, about, gone, timeout of this owner's hold as a reader
-- ARGV: field, label, for how long to remember it (ms or ''), prefix of timeouts, PUBLISH or SPUBLISH, channel
-- Replies: as lock_release.lua

local lockKey, aboutKey, goneKey, timeoutKey = unpack(KEYS)
local field, label, remember, prefix, how, channel = unpack(ARGV)
local writer = field .. ':write'

local other = kind({ [aboutKey] = 'hash' })
local mode = call('TYPE', lockKey).ok == 'hash' and call('HGET', lockKey, 'mode')
local ours = mode and (other or mine(aboutKey, field, label))
local writes = ours and call('HEXISTS', lockKey, writer) == 1
local reads = ours and not writes and call('HEXISTS', lockKey, field) == 1

-- rest returns how long the longest of the other readers' holds lasts, in ms: -2 without one, -1 for ever; nil if they are too many.
local function rest()
  if call('HLEN', lockKey) > most then
    return
  end
  local left = -2
  local all = call('HGETALL', lockKey)
  for i = 1, #all, 2 do
    if all[i] ~= 'mode' and all[i] ~= field then
      local ms = lasts(prefix, all[i], all[i + 1])
      if not ms or ms == -1 then
        return ms
      end
      left = math.max(left, ms)
    end
  end
  return left
end

-- Before the first write: while the slot moves to another master of a cluster, this may end the script.
local left = reads and rest()

bury(goneKey, remember)
if ours and not other then
  call('HDEL', aboutKey, field)
end
if writes then
  call('HDEL', lockKey, writer)
  if call('HLEN', lockKey) == 1 then
    call('DEL', lockKey)
  else
    call('HSET', lockKey, 'mode', 'read')
  end
  wake(how, channel)
  return other or 1
end
if not reads then
  return other or 0
end
local alive = call('DEL', timeoutKey)
call('HDEL', lockKey, field)
if left and left >= 0 then
  call('PEXPIRE', lockKey, math.max(left, 1)) -- as long as the longest of those who are left
elseif left == -2 and mode ~= 'write' then
  call('DEL', lockKey)
  send(how, channel, '0')
end
return other or alive
