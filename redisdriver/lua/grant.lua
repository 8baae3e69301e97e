-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Grants and handovers: included after line.lua.

-- record notes who was granted what.
local function record(owner, fence, state, px)
  redis.call('SET', K[2], owner .. ' ' .. fence .. ' ' .. string.sub(stamp, 1, 13) .. ' ' .. state, 'PX', lasting(px, fence))
end

-- remember leaves of a grant only its fence.
local function remember(grant)
  redis.call('SET', K[2], string.sub(grant, 1, 58) .. 'F', 'KEEPTTL')
end

-- handover makes a place that left the line the holder, for its claim time.
-- One that proposes brings its fence when it claims the key: until then the
-- largest fence that the key had, told, stays where it was.
local function handover(e, told)
  local owner = string.sub(e[1], 1, 26)
  local fence, state = told or string.rep('0', 16), 'C '
  if e[9] == '' then fence, state = mint(1, told), 'c ' end
  redis.call('ZREM', K[3], e[1])
  redis.call('HDEL', K[4], owner)
  redis.call('SET', K[1], e[1], 'PX', e[5])
  record(owner, fence, state .. e[2] .. ' ' .. e[8] .. ' ' .. string.sub(e[1], 28), e[5] + KEEP)
end

-- restore gives a place whose claim lapsed its old number back.
local function restore(grant)
  local number, place, label = string.match(grant, '^(%S+) (%d+ %d+ %d+ %aP? %S+) (.*)$', 61)
  local value = string.sub(grant, 1, 26) .. ' ' .. label
  local e = entry(value, number, place)
  later(K[2], lasting(KEEP, string.sub(grant, 28, 43))) -- takes no memory, and after it nothing is refused for that
  remember(grant)
  redis.call('ZADD', K[3], number, value)
  redis.call('HSET', K[4], string.sub(grant, 1, 26), place)
  strike(redis.call('HGET', K[4], '!') or '', e[7], string.sub(grant, 45, 57))
  outlast(K[3], e[4] + LINGER)
  outlast(K[4], e[4] + LINGER)
end
