-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- One step of a semaphore whose permits expire. A permit is 16 bytes, and its score in the set of permits says
-- when its lease ends, in ms since 1970; that of one without end is `never`.
-- KEYS: free permits, permits, gone
-- ARGV: what to do, PUBLISH or SPUBLISH, channel, n; or the lease (ms, 0: without end) and permits; or for how long to
-- remember a release (ms or '') and permits
-- Replies: {1 done or 0 not, a number: see there, another}; {2} released; {-1, key, type} a key of another type;
-- {-2, key, text} one that has no number; {-3, key, sum} there would be too many

local key, held, goneKey = unpack(KEYS)
local op, how, channel, n = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local never = 922337203685477 -- Redisson's

local foreign = kind({ [held] = 'zset' })
if foreign then
  return foreign
end
local had, other = count(key)
if other then
  return other
end
local now = clock()

local function first()
  return tonumber(call('ZRANGE', held, 0, 0, 'WITHSCORES')[2])
end

local function ends()
  return text(n == 0 and never or now + n)
end

-- may fails where this user may not change the number, and changes nothing. The number and the set change together, or not at all.
local function may() call('INCRBY', key, '0') end

-- Permits whose lease has ended are free again.
if (first() or never) <= now then
  begin(key)
  may()
  had = add(key, call('ZREMRANGEBYSCORE', held, '-inf', text(now)), how, channel)
end
local free = had or 0

if op == 'free' then -- how many are free, and how many are held
  return { 1, free, call('ZCARD', held) }
elseif op == 'acquire' then -- when refused: in how many ms a lease ends, or -1
  if call('EXISTS', goneKey) == 1 then
    return { 2 }
  elseif free < #ARGV - 4 then
    local at = first() or never
    return { 0, at < never and at - now or -1 }
  end
  may()
  local left = call('PTTL', key)
  if left >= 0 then
    begin(key) -- who may do this may do so below
  end
  for i = 5, #ARGV do
    call('ZADD', held, ends(), ARGV[i])
  end
  call('INCRBY', key, text(4 - #ARGV))
  if left >= 0 then
    call('PEXPIRE', held, math.max(left, 1))
  end
  return { 1, 0 }
elseif op == 'release' then -- all of them, or none
  bury(goneKey, ARGV[4])
  for i = 5, #ARGV do
    if not call('ZSCORE', held, ARGV[i]) then
      return { 0, 0 }
    end
  end
  may()
  local released = 0
  for i = 5, #ARGV do
    released = released + call('ZREM', held, ARGV[i])
  end
  return { 1, add(key, released, how, channel) }
end

if op == 'left' then -- how many ms, or -1 for one without end
  local at = tonumber(call('ZSCORE', held, ARGV[5]))
  if not at then
    return { 0, 0 }
  end
  return { 1, at < never and at - now or -1 }
elseif op == 'update' then
  if not call('ZSCORE', held, ARGV[5]) then
    return { 0, 0 }
  end
  begin(key)
  call('ZADD', held, ends(), ARGV[5])
  return { 1, 0 }
elseif op == 'add' then
  local many = beyond(key, free + n) or beyond(key, free + n + call('ZCARD', held))
  if many then
    return many
  end
  return { 1, add(key, n, how, channel) }
elseif op == 'set' then
  if had then
    return { 0, free }
  end
  return { 1, add(key, n, how, channel) }
elseif op == 'total' then
  return { 1, add(key, n - call('ZCARD', held) - free, how, channel) }
end
