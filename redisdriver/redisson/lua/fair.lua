-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Stands behind common.lua before the scripts of fair locks. The queue is a list of fields, the next first; the sorted set `timeouts`
-- says from when on each counts as dead (ms), and each adds to the time of the one before it what it is willing to wait, which is
-- subtracted from those behind it when it goes. Java looks at the first only, and takes it out when its time has passed.
-- A waiter of hasp's has a shorter life, which it prolongs: the hash `waiters` says until when, and more:
-- field -> "<until, ms> <joined, us> <what it added, ms> <label>".
-- KEYS begin with: lock, about, queue, timeouts, waiters

local lockKey, aboutKey, queueKey, timeoutsKey, waitersKey = unpack(KEYS, 1, 5)

local most = 10000 -- places that are looked at
local few = 64 -- those that are looked at each time
local again = 1000 -- ms after which all are, once more
local soon = 50 -- ms after which a waiter asks again at the earliest, unless it is the first
local java = 300000 -- ms that Java adds, unless its caller says otherwise: fairLockWaitTimeout
local day = 86400000 -- ms after which a queue is gone that nobody cares for; Java's never expires

local function waiter(field)
  local said = call('HGET', waitersKey, field)
  if said then
    local life, joined, added, label = string.match(said, '^(%d+) (%d+) (%d+) (.*)$')
    return life and { life = tonumber(life), joined = joined, added = tonumber(added), label = label }
  end
end

local function score(field)
  local s = call('ZSCORE', timeoutsKey, field)
  return s and tonumber(s)
end

local function sooner(fields, ms)
  for _, field in ipairs(fields) do
    local s = score(field)
    if s then
      call('ZADD', timeoutsKey, text(s - ms), field)
    end
  end
end

-- last keeps both halves of the queue for a day: Java cannot do with one of them.
local function last()
  outlive(queueKey, day)
  outlive(timeoutsKey, day)
end

-- sweep takes the dead out of the first n places: those of hasp, and of the others those before anybody who lives, as Java does. It
-- reports whether there is nobody alive.
local function sweep(n, now)
  local kept, less, dead = {}, 0, 0
  for _, field in ipairs(call('LRANGE', queueKey, 0, n - 1)) do
    local w, s = waiter(field), score(field)
    local gone = #kept == 0 and s and s <= now
    if w then
      gone = w.life <= now
    end
    if gone then
      dead = dead + 1
      call('ZREM', timeoutsKey, field)
      call('HDEL', waitersKey, field)
      less = less + (w and w.added or 0)
    else
      kept[#kept + 1] = field
      if less > 0 and s then
        call('ZADD', timeoutsKey, text(s - less), field)
      end
    end
  end
  if dead > 0 then
    call('LTRIM', queueKey, dead + #kept, -1)
    if less > 0 then
      sooner(call('LRANGE', queueKey, 0, most), less)
    end
    for i = #kept, 1, -1 do
      call('LPUSH', queueKey, kept[i])
    end
    last()
  end
  return #kept == 0
end

-- forget drops what is known of waiters whom Java took out, and who are dead: some of them, if they are many.
local function forget(n, now)
  if call('HLEN', waitersKey) <= n + few then
    return
  end
  for _, field in ipairs(call('HRANDFIELD', waitersKey, few)) do
    local w = waiter(field)
    if w and w.life <= now and not call('LPOS', queueKey, field) then
      call('HDEL', waitersKey, field)
    end
  end
end

-- tidy takes the dead out of the queue. Of a long one only the first places are looked at each time.
local function tidy(now)
  local n = call('LLEN', queueKey)
  forget(n, now)
  if n == 0 then
    return
  end
  local at = n > few and tonumber(call('HGET', waitersKey, '!') or 0)
  if at and (now < at or now >= at + again) then
    sweep(most, now)
    call('HSET', waitersKey, '!', text(now))
    outlive(waitersKey, 60000)
  elseif sweep(few, now) and n > few then
    sweep(most, now)
  end
end

-- leave takes a waiter out of the queue.
local function leave(field, w)
  local at = call('LPOS', queueKey, field)
  call('ZREM', timeoutsKey, field)
  call('HDEL', waitersKey, field)
  if at then
    call('LREM', queueKey, 1, field)
    sooner(call('LRANGE', queueKey, at, at + most), w.added)
  end
end

-- place puts a waiter whom a client of Java's took out, since it counted it as dead, back to where it was: it had been the first,
-- or behind others of hasp's who were taken out, too.
local function place(field, w)
  for _, other in ipairs(call('LRANGE', queueKey, 0, few - 1)) do
    local o = waiter(other)
    if not o or tonumber(o.joined) > tonumber(w.joined) then
      call('LINSERT', queueKey, 'BEFORE', other, field)
      return
    end
  end
  call('RPUSH', queueKey, field)
end

-- due returns from when on Java may count a waiter as dead who lives for so long: what those before it may subtract is in it.
local function due(at, life)
  local base = life
  local ahead = at > 0 and call('LRANGE', queueKey, math.max(0, at - few), at - 1) or {}
  local before
  for _, field in ipairs(ahead) do
    local s = score(field)
    if s then
      local w = waiter(field)
      base = base + (w and w.added or math.max(java, before and s - before or 0))
      before = s
    end
  end
  return math.max(base, (before or 0) + 1)
end

-- stay prolongs the life of a waiter, which joins the end of the queue if it is new there.
local function stay(field, w, now, patience)
  local at = call('LPOS', queueKey, field)
  if not at then
    if w.new or w.life <= now then -- Java took it out, and it was dead
      call('RPUSH', queueKey, field)
    else
      place(field, w)
    end
    at = call('LPOS', queueKey, field)
  end
  w.life = math.max(w.life, now + patience)
  local s = due(at, w.life)
  if at > 0 then -- nobody is before the first to subtract anything
    s = math.max(s, score(field) or 0)
  end
  call('ZADD', timeoutsKey, text(s), field)
  call('HSET', waitersKey, field, text(w.life) .. ' ' .. w.joined .. ' ' .. text(w.added) .. ' ' .. w.label)
  outlive(waitersKey, w.life - now + 60000)
  last()
  return at
end

-- look returns in how many ms a waiter should look without a message: the first when the lease ends, each other when the one
-- before it counts as dead.
local function look(at, now)
  if at == 0 then
    local left = call('PTTL', lockKey)
    return left == -1 and again or math.max(0, left) + 1
  end
  local before = call('LINDEX', queueKey, at - 1)
  local w = waiter(before)
  local life = w and w.life or score(before)
  return life and math.max(soon, life - now + 1) or again
end

local led = call('TYPE', queueKey).ok == 'list' and call('LINDEX', queueKey, 0) -- who was the first when the script began

-- hint wakes the first in the queue, unless it is the one who asks: if the lock is free, since a message may have been lost, or somebody
-- before it died; and if it was not the first before, since it looks after the lease from now on. Java does not.
local function hint(how, channel, asks)
  local first = call('LINDEX', queueKey, 0)
  if first and first ~= asks and (call('EXISTS', lockKey) == 0 or first ~= led and waiter(first)) then
    send(how, channel .. ':' .. first, '0')
  end
end

local function strange()
  return kind({ [lockKey] = 'hash', [aboutKey] = 'hash', [queueKey] = 'list', [timeoutsKey] = 'zset', [waitersKey] = 'hash' })
end
