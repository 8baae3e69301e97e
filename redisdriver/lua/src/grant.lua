-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Grants and handovers: included after line.lua.

-- record notes who was granted what.
local function record(owner, fence, state, px)
  redis.call('SET', K[2], owner .. ' ' .. fence .. ' ' .. <<millis "stamp">> .. ' ' .. state, 'PX', lasting(px, fence))
end

-- choose answers the fence of a new grant, and how many in a row it is the last of: the
-- proposed one, h, or one that is minted; or nil, and what a proposal must be above.
-- For one that shares the key told is the largest that was granted Exclusive.
local function choose(<<if .Node>>h<<else>>_<<end>>, told, fences, <<if .Node>>how<<else>>_<<end>>, newest)
<<if .Node>>
  if h then
    local n, least = allow(h, told, fences, how, newest)
    if n then cover(h) end
    return n and h, n or least
  end
<<end>>
  return mint(fences, newest or told), fences
end

-- wrote is the largest fence that was granted Exclusive, as far as a grant knows.
local function wrote(grant)
  return <<wrote "grant">> ~= '' and <<wrote "grant">> or <<fence "grant">>
end

-- unfinished says of the grant of a free key whether a holder before did not
-- finish.
local function unfinished(grant)
  return grant ~= nil and grant ~= false and string.find(sub(grant, 59, 60), '^[hmHM]') ~= nil
    or <<mark "grant or ''">> == '!'
end

-- remember leaves of a grant only its fences, and whether somebody did not finish.
local function remember(grant, gap)
  local kept, most = 'F', wrote(grant)
  if gap or most ~= <<fence "grant">> then kept = 'f' .. (gap and '!' or ' ') .. most end
  redis.call('SET', K[2], sub(grant, 1, 58) .. kept, 'KEEPTTL')
end

-- heirs mints a fence for one that was told, and does not ask for it: nil when
-- that fails because of what stands in the store, which it will be told when it asks.
local function heirs(told)
  local ok, fence = pcall(mint, 1, told)
  if ok then return fence end
  local text = type(fence) == 'table' and fence.err or fence
  if not string.find(text, 'HASPDATA', 1, true) then error(fence, 0) end
end

-- handover makes a place that left the line the holder, for its claim time.
-- One that proposes brings its fence when it claims the key: until then the
-- largest fence that the key had, told, stays where it was, and that of those
-- who had it Exclusive, most.
local function handover(e, told, most, gap)
  local owner = <<owner "e[1]">>
  local none = string.rep('0', 16)
  local fence, state = told or none, 'C'
  if e[9] == '' then
    fence, state = heirs(told), 'c'
    if not fence then return false end
    most = fence
  end
  redis.call('ZREM', K[3], e[1])
  redis.call('HDEL', K[4], owner)
  redis.call('SET', K[1], e[1], 'PX', e[5])
  handed = tonumber(e[5])
  record(owner, fence, state .. (gap and '!' or ' ') .. (most or none) .. ' ' .. e[2] .. ' ' .. e[8] .. ' '
    .. <<after "e[1]">>, e[5] + KEEP)
  return true
end

-- lapsed marks a place whose claim lapsed.
local function lapsed(place) return (string.gsub(place, '^(%d+ %d+ %d+ %aP?S?%d*) ', '%1! ')) end

-- restore gives a place whose claim lapsed its old number back.
local function restore(grant, gap)
  local number, place, label = string.match(grant, '^(%S+) (%d+ %d+ %d+ %aP?S?%d* %S+) (.*)$', 78)
  local value = <<owner "grant">> .. ' ' .. label
  local e = entry(value, number, place)
  later(K[2], lasting(KEEP, <<fence "grant">>)) -- takes no memory, and after it nothing is refused for that
  remember(grant, gap)
  redis.call('ZADD', K[3], number, value)
  redis.call('HSET', K[4], <<owner "grant">>, lapsed(place),
    '!', strike(redis.call('HGET', K[4], '!') or '', e[7], <<since "grant">>))
  outlast(K[3], e[4] + LINGER)
  outlast(K[4], e[4] + LINGER)
end

-- sound answers a grant, or nothing where it is not one.
local function sound(grant)
  if grant and string.find(grant, '^%w+ %d+ %d+ [hmcsfHMCSF]') == 1 and sub(grant, 27, 27) == ' '
    and sub(grant, 44, 44) == ' ' and sub(grant, 58, 58) == ' ' then
    return grant
  end
  return false
end
