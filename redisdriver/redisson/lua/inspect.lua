-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who has a lock, and who waits for it. Stands behind common.lua and rw.lua.
-- KEYS: lock, about, queue, waiters
-- ARGV: prefix of the timeouts of readers, how many waiters to name
-- Replies: {type, 1 if it may be a lock, PTTL, holders, {field, about it, ms that it lasts, ...}, waiters, {field, what is known of
-- it, ...}}

local lockKey, aboutKey, queueKey, waitersKey = unpack(KEYS)
local prefix, names = ARGV[1], tonumber(ARGV[2])

local is = call('TYPE', lockKey).ok
local left = call('PTTL', lockKey)
local lock, holders, queue, n = 1, {}, {}, 0
-- owner: a field is of the form of Redisson's, and a hash with another is no lock: its values may be of any size.
local function owner(field) return string.match(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') end

-- add adds a holder; only the first that was granted the lock, where none are to be named.
local count, first = 0, nil
local function add(field, about, ms)
  count = count + 1
  local since = tonumber(string.match(about, '^%d+')) or 0
  if names == 0 and count > 1 then
    if since >= first then
      return
    end
    holders = {}
  end
  first = since
  for _, v in ipairs({ string.sub(field, 1, 600), about, ms }) do
    holders[#holders + 1] = v
  end
end

if is == 'hash' then
  local mode = call('HGET', lockKey, 'mode')
  local many = call('HLEN', lockKey) > most
  for _, field in ipairs(many and call('HRANDFIELD', lockKey, 10) or call('HKEYS', lockKey)) do
    local own = string.gsub(field, ':write$', '')
    if field == 'mode' and (mode == 'read' or mode == 'write') then
      own = nil
    elseif not owner(own) then
      lock, holders, count = 0, {}, 0
      add(field, '', left)
      break
    end
    if own and not many then
      local ms = left
      if mode == 'read' and call('HSTRLEN', lockKey, field) <= 20 then
        ms = lasts(prefix, field, call('HGET', lockKey, field)) or left
      end
      if ms ~= -2 then
        add(field, call('HGET', aboutKey, own) or '', ms)
      end
    end
  end
  if many and lock == 1 then
    add('', '', left)
  end
end
if queueKey and call('TYPE', queueKey).ok == 'list' then
  -- Of those who are only counted, the dead far behind count, too.
  local now, part, last = clock(), 1000, names == 0 and 1000 or 10000
  for from = 0, last - 1, part do
    local fields = call('LRANGE', queueKey, from, from + part - 1)
    local known = #fields > 0 and call('HMGET', waitersKey, unpack(fields)) or {}
    for i, field in ipairs(fields) do
      local said = known[i]
      local life = said and tonumber(string.match(said, '^%d+'))
      if not life or life > now then
        n = n + 1
        if n <= names then
          queue[#queue + 1] = string.sub(field, 1, 600)
          queue[#queue + 1] = said or ''
        end
      end
    end
    if #fields < part then
      break
    end
  end
  if names == 0 then
    n = n + math.max(0, call('LLEN', queueKey) - last)
  end
end
return { is, lock, left, count, holders, n, queue }
