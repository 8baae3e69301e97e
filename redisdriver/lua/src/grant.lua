-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Grants and handoffs of a key to one that has it alone: included after queue.lua.

<<define "granted">>
call('SET', grantKey, <<grant "value" "fence" "state">>, 'PX', keep)
<<end>>

<<define "take">>
call('SET', lockKey, value, 'PX', ttl)
<<template "granted" .>>
<<end>>

-- wrote is the largest fence that was granted Exclusive, as far as a grant knows.
local function wrote(grant)
  local most = grant and <<most "grant">>
  return most == '' and <<fence "grant">> or most
end

-- remember leaves of a grant only its fences, and whether somebody did not finish.
local function remember(grant, abandoned)
  local text, most = <<ended "grant">>, wrote(grant)
  if abandoned or most ~= <<fence "grant">> then text = sub(grant, 1, 58) .. 'f' .. (abandoned and '!' or ' ') .. most end
  call('SET', K.grant, text, 'KEEPTTL')
end

-- record notes who was granted what.
local function record(value, ttl, fence, state)
  local grantKey, keep = K.grant, <<lasting "ttl + KEEP" "fence">>
<<template "granted" .>>
end

-- hold makes one the holder for ttl ms.
local function hold(value, ttl, fence, state)
  local lockKey, grantKey, keep = K.lock, K.grant, <<lasting "ttl + KEEP" "fence">>
<<template "take" .>>
end

-- choose answers the fence of a new grant, and how many in a row it is the last of: the
-- proposed one, or one that is minted; or nil, and what a proposal must be above.
-- For one that shares the key least is the largest that was granted Exclusive.
local function choose(r, least, newest)
<<if .Node>>
  if r.fence then
    local n, floor = allow(r.fence, least, r.fences, r.how == 'restore' and r.how, newest)
    if n then cover(r.fence) end
    return n and r.fence, n or floor
  end
<<end>>
  return mint(r.fences, newest or least), r.fences
end

-- unfinished says of the grant of a free key whether a holder before did not
-- finish.
local function unfinished(grant)
  return grant and (string.find(<<state "grant">>, '[hmHM]') ~= nil or <<mark "grant">> == '!') or false
end

-- mintFor mints a fence for one that does not ask for it: nil when that fails
-- because of what stands in the store, which it will hear of when it asks.
local function mintFor(newest)
  local ok, fence = pcall(mint, 1, newest)
  if ok then return fence end
  local text = type(fence) == 'table' and fence.err or fence
  if not string.find(text, 'HASPDATA', 1, true) then error(fence, 0) end
end

-- unqueue takes a place out of the queue.
local function unqueue(value)
  call('ZREM', K.queue, value)
  call('HDEL', K.places, <<owner "value">>)
end

-- handOff makes a place that left the queue the holder, for its claim time.
-- One that proposes brings its fence when it claims the key: until then the
-- largest fence that the key had stays where it was, and that of those
-- who had it Exclusive, most.
local function handOff(e, newest, most, abandoned)
  local none = string.rep('0', 16)
  local fence, state = newest or none, 'C'
  if e.proposes == '' then
    fence, state = mintFor(newest), 'c'
    if not fence then return false end
    most = fence
  end
  unqueue(e.value)
  hold(e.value, e.claim, fence, state .. (abandoned and '!' or ' ') .. (most or none) .. ' ' .. e.number .. ' ' .. e.place .. ' '
    .. <<after "e.value">>)
  handed = tonumber(e.claim)
  return true
end

-- unclaimed marks a place whose claim time is over.
local function unclaimed(place) return (string.gsub(place, '^(%d+ %d+ %d+ %aP?S?%d*) ', '%1! ')) end

-- restore gives a place that did not claim the key in time its old number back.
local function restore(grant, abandoned)
  local number, place, label = string.match(grant, '^(%S+) (%d+ %d+ %d+ %aP?S?%d* %S+) (.*)$', 78)
  local value = <<owner "grant">> .. ' ' .. label
  local e = entry(value, number, place)
  local fence = <<fence "grant">>
  local px = <<lasting "KEEP" "fence">>
  later(K.grant, px) -- takes no memory, and after it nothing is refused for that
  remember(grant, abandoned)
  call('ZADD', K.queue, number, value)
  call('HSET', K.places, <<owner "grant">>, unclaimed(place),
    '!', strike(call('HGET', K.places, '!') or '', e.inbox, <<since "grant">>))
  outlast(K.queue, e.patience + LINGER)
  outlast(K.places, e.patience + LINGER)
end

-- sound answers a grant, or nothing where it is not one.
local function sound(grant)
  if grant and string.find(grant, '^%w+ %d+ %d+ [hmcsfHMCSF]') == 1 and sub(grant, 27, 27) == ' '
    and sub(grant, 44, 44) == ' ' and sub(grant, 58, 58) == ' ' then
    return grant
  end
  return false
end
