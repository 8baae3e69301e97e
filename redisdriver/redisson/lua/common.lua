-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Stands before each script. A lock is Redisson's hash: a field for each holder with the count of its holds.
-- Of hasp's owners, what the hash has no room for stands beside it, in the hash `about`:
-- field -> "<granted, ms> <fence> <label>".

local call = redis.call

-- clock returns the server's time in milliseconds, and in microseconds.
local function clock()
  local t = call('TIME')
  local us = t[1] * 1000000 + t[2]
  return math.floor(us / 1000), us
end

local function text(n) return string.format('%.0f', n) end

-- prolong moves the expiry of a key to the later of what it is and ttl from now, and returns it. A key
-- without one keeps none. It always writes, so that a replica, which may be behind, refuses it.
local function prolong(key, ttl)
  local left = call('PTTL', key)
  if left ~= -1 then
    call('PEXPIRE', key, text(math.max(left, ttl)))
  end
  return math.max(left, ttl)
end

-- bound gives a lock that was just written its end. Where that is denied the lock goes again: it would never end.
local function bound(lockKey, ttl)
  local failed = redis.pcall('PEXPIRE', lockKey, ttl)
  if type(failed) == 'table' and failed.err then
    call('DEL', lockKey)
    error(failed.err, 0)
  end
end

-- outlive keeps what stands beside a lock for ttl at least.
local function outlive(key, ttl)
  if call('PTTL', key) < ttl then
    call('PEXPIRE', key, ttl)
  end
end

-- mine: the field of an owner is that of the one with this label. Where nothing stands beside the lock the
-- field decides alone: it has 130 random bits.
local function mine(aboutKey, field, label)
  local said = call('HGET', aboutKey, field)
  return not said or string.match(said, '^%d+ %d+ (.*)$') == label
end

-- note notes who was granted the lock. Whoever else had it, if shared is not given, has it no longer.
local function note(aboutKey, field, label, ms, fence, keep, shared)
  if not shared then
    call('DEL', aboutKey)
  end
  call('HSET', aboutKey, field, text(ms) .. ' ' .. fence .. ' ' .. label)
  outlive(aboutKey, keep)
end

-- bury remembers that an owner was released, for ms; '' for one of whom no Try can come any more. The DEL, which a full server allows, is
-- the first write of a script, and makes the server allow the others.
local function bury(goneKey, ms)
  call('DEL', goneKey)
  if ms ~= '' then
    call('SET', goneKey, '1', 'PX', ms)
  end
end

-- send sends a message, which a server may not allow: then those who wait find out by asking.
local function send(how, channel, message) redis.pcall(how, channel, message) end

-- holder returns somebody who has the lock, and what is known of it.
local function holder(lockKey, aboutKey)
  if call('HLEN', lockKey) > 1000 then
    return { '', '' }
  end
  for _, field in ipairs(call('HKEYS', lockKey)) do
    if field ~= 'mode' then
      local own = string.gsub(field, ':write$', '')
      return { string.sub(field, 1, 600), call('HGET', aboutKey, own) or '' }
    end
  end
  return { '', '' }
end

-- kind returns the type of the first of some keys that is neither missing nor of its type.
local function kind(keys)
  for key, want in pairs(keys) do
    local is = call('TYPE', key).ok
    if is ~= 'none' and is ~= want then
      return { -1, key, is }
    end
  end
end
