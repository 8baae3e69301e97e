-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A Try for a read-write lock.
-- KEYS: lock, about, gone, timeout of this owner's hold as a reader
-- ARGV: "read", "write" or "convert", ttl, keep (ms), field, label, prefix of timeouts, PUBLISH or SPUBLISH, channel
-- Replies: as lock_try.lua

local lockKey, aboutKey, goneKey, timeoutKey = unpack(KEYS)
local how, ttl, keep, field, label = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local prefix, publish, channel = ARGV[6], ARGV[7], ARGV[8]
local writer = field .. ':write'

local other = kind({ [lockKey] = 'hash', [aboutKey] = 'hash' })
if other then
  return other
end
if call('EXISTS', goneKey) == 1 then
  return { 2 }
end
local mode = call('HGET', lockKey, 'mode')
local free = call('EXISTS', lockKey) == 0
local ours = mine(aboutKey, field, label)
local writes = ours and mode == 'write' and call('HEXISTS', lockKey, writer) == 1
local reads = ours and mode == 'read' and call('HEXISTS', lockKey, field) == 1 and call('EXISTS', timeoutKey) == 1

-- sweep takes out readers of hasp's whose lease has ended, some of many: a lock that always has readers never ends.
local function sweep()
  if call('HLEN', lockKey) <= 100 then
    return
  end
  for _, one in ipairs(call('HRANDFIELD', lockKey, 50)) do
    if string.match(one, '^%x+%-%x+%-%x+%-%x+%-%x+:46116860184273879%d%d$') and lasts(prefix, one, 1) == -2 then
      call('HDEL', lockKey, one)
      call('HDEL', aboutKey, one)
    end
  end
end

local function refused() return { 0, holder(lockKey, aboutKey), call('PTTL', lockKey) } end

if how == 'convert' and writes then
  local left = math.max(ttl, call('PTTL', lockKey))
  call('SET', timeoutKey, '1', 'PX', left) -- the hold comes first, here and below: where it is denied the lock would have no end
  call('HSET', lockKey, 'mode', 'read', field, 1)
  call('HDEL', lockKey, writer)
  outlive(aboutKey, keep)
  wake(publish, channel)
  return { 1, '0', 1, prolong(lockKey, ttl) }
end
if (how == 'convert' or how == 'read') and reads then
  local left = prolong(timeoutKey, ttl) -- which may be less than the lock lasts, as somebody else's
  prolong(lockKey, left)
  outlive(aboutKey, keep)
  return { 1, '0', 1, left }
end
if how == 'write' and writes then
  outlive(aboutKey, keep)
  return { 1, '0', 1, prolong(lockKey, ttl) }
end
if how == 'read' and not writes and (free or mode == 'read' and (ours or call('HEXISTS', lockKey, field) == 0)) then
  call('SET', timeoutKey, '1', 'PX', ttl)
  call('HSET', lockKey, 'mode', 'read', field, 1)
  if free then
    bound(lockKey, ttl)
  else
    prolong(lockKey, ttl)
    pcall(sweep) -- while the slot moves to another master of a cluster, it may not look
  end
  note(aboutKey, field, label, clock(), '0', keep, not free)
  return { 1, '0', 1, ttl }
end
if how == 'write' and free then
  call('HSET', lockKey, 'mode', 'write', writer, 1)
  bound(lockKey, ttl)
  note(aboutKey, field, label, clock(), '0', keep)
  return { 1, '0', 1, ttl }
end
return refused()
