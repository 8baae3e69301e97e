-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who has a lock, and who waits for it. Stands behind common.lua and rw.lua.
-- KEYS: lock, about, queue, waiters
-- ARGV: prefix of the timeouts of readers, how many waiters to name
-- Replies: {type, PTTL, {field, its value, about it, ms that it lasts, ...}, waiters, {field, what is known of it, ...}}

local lockKey, aboutKey, queueKey, waitersKey = unpack(KEYS)
local prefix, names = ARGV[1], tonumber(ARGV[2])

local is = call('TYPE', lockKey).ok
local left = call('PTTL', lockKey)
local holders, queue, n = {}, {}, 0
if is == 'hash' then
  local mode = call('HGET', lockKey, 'mode')
  local all = call('HLEN', lockKey) <= most and call('HGETALL', lockKey) or { '', '' }
  for i = 1, #all, 2 do
    local field, value = all[i], all[i + 1]
    if field ~= 'mode' or not mode then
      local ms = left
      if mode == 'read' then
        ms = lasts(prefix, field, value)
      end
      if ms ~= -2 then
        local own = string.gsub(field, ':write$', '')
        for _, v in ipairs({ string.sub(field, 1, 600), string.sub(value, 1, 20), call('HGET', aboutKey, own) or '', ms }) do
          holders[#holders + 1] = v
        end
      end
    end
  end
end
if queueKey and call('TYPE', queueKey).ok == 'list' then
  local now = clock()
  for _, field in ipairs(call('LRANGE', queueKey, 0, 9999)) do
    local said = call('HGET', waitersKey, field)
    local life = said and tonumber(string.match(said, '^%d+'))
    if not life or life > now then
      n = n + 1
      if n <= names then
        queue[#queue + 1] = string.sub(field, 1, 600)
        queue[#queue + 1] = said or ''
      end
    end
  end
end
return { is, left, holders, n, queue }
