-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Grants and handovers: included after line.lua.

-- record notes who was granted what.
local function record(owner, fence, state, px)
  redis.call('SET', K[2], owner .. ' ' .. fence .. ' ' .. string.sub(stamp, 1, 13) .. ' ' .. state, 'PX', px)
end

-- handover makes a place that left the line the holder, for its claim time.
local function handover(e)
  local owner = string.sub(e[1], 1, 26)
  redis.call('ZREM', K[3], e[1])
  redis.call('HDEL', K[4], owner)
  redis.call('SET', K[1], e[1], 'PX', e[5])
  record(owner, mint(1), 'c ' .. e[2] .. ' ' .. e[8] .. ' ' .. string.sub(e[1], 28), e[5] + LINGER)
end

-- restore gives a place whose claim lapsed its old number back.
local function restore(grant)
  local number, place, label = string.match(grant, '^(%S+) (%d+ %d+ %d+ %a %S+) (.*)$', 61)
  local value = string.sub(grant, 1, 26) .. ' ' .. label
  local e = entry(value, number, place)
  redis.call('DEL', K[2])
  redis.call('ZADD', K[3], number, value)
  redis.call('HSET', K[4], string.sub(grant, 1, 26), place)
  strike(redis.call('HGET', K[4], '!') or '', e[7], string.sub(grant, 45, 57))
  outlast(K[3], e[4] + LINGER)
  outlast(K[4], e[4] + LINGER)
end
