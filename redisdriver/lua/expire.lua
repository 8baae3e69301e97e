-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- How leases end that nobody released: of those that share a key, and of one that was
-- handed the key and did not claim it. Included after first.lua.

-- lease reads the lease of one that shares the key.
function lease(text)
  local fence, since, state, limit, slot, mark, place =
    string.match(text, '^(%d+) (%d+) (%a) (%d+) (%d+) (%d) ?(.*)$')
  if not fence then counted('held', text, true) end
  return {fence = fence, since = since, state = state, limit = tonumber(limit), slot = tonumber(slot),
    mark = mark == '1', place = place, pending = state == 'c' or state == 'C'}
end

-- restore gives those that did not claim the key in time their old places back.
local function restore(leases)
  local queue, places, patience, strikes = {}, {}, 0, call('HGET', K.places, '!') or ''
  for _, l in ipairs(leases) do
    local number, place = string.match(l.place, '^(%S+) (.*)$')
    local e = entry(l.value, number, place)
    queue[#queue + 1], queue[#queue + 2] = number, l.value
    places[#places + 1], places[#places + 2] = F.owner(l.value), string.gsub(place, '^(%d+ %d+ %d+ %a[PE]?%x*S?%d*) ', '%1! ')
    strikes = strike(strikes, e.inbox, l.since)
    patience = math.max(patience, e.patience)
  end
  call('ZADD', K.queue, unpack(queue))
  call('HSET', K.places, '!', strikes, unpack(places))
  outlast(K.queue, patience + F.Linger)
  outlast(K.places, patience + F.Linger)
end

-- reap ends the leases that are over, or all of them. It is false when there are more than
-- one script should end.
local function reap(all)
  local size = 1
  for _ = 1, 11 do
    local ids, over = call('ZRANGE', K.shares, 0, size - 1, 'WITHSCORES'), {}
    for i = 1, #ids, 2 do
      if not all and tonumber(ids[i + 1]) > ms then break end
      over[#over + 1] = ids[i]
    end
    if #over == 0 or not all and call('PTTL', K.lock) == -1 then return true end
    local leases, unclaimed = call('HMGET', K.held, unpack(over)), {}
    call('ZREM', K.shares, unpack(over)) -- takes no memory, and after it nothing is refused for that
    call('HDEL', K.held, unpack(over))
    for i = 1, #over do
      local l = leases[i] and lease(leases[i])
      if l then
        l.value, l.over = over[i], true
        leave(l)
        if l.pending then unclaimed[#unclaimed + 1] = l end
      end
    end
    if #unclaimed > 0 then restore(unclaimed) end
    known.stale = true
    if #over < size then return true end
    size = 100
  end
  return false
end

-- expire ends what is over of the key, as survey says.
function expire(leaving, declines)
  local grant = known.grant
  if not known.shared and string.find(F.state(grant), '[cC]') then
    -- takes no memory, and after it nothing is refused for that
    later(K.grant, F.lasting(KEEP, known.newest))
    local place, label = string.match(grant, '^(%S+ %d+ %d+ %d+ %a[PE]?%x*S?%d* %S+) (.*)$', 78)
    if not label then counted('grant', grant, true) end
    local value = F.owner(grant) .. ' ' .. label
    known.left, known.stale = value == leaving, true
    known.entered = F.enters(grant) and value ~= declines
    known.mark = known.mark or known.entered -- it may have begun to work
    if not known.left then restore({{value = value, since = F.since(grant), place = place}}) end
    return
  end
  known.cut = not reap(not known.shared)
  known.n = call('ZCARD', K.shares)
  if known.n == 0 and known.shared and not known.stale then
    known.n = math.huge -- it was never empty
  elseif known.n == 0 and (known.shared or not known.lock) then
    vacate()
  elseif known.shared then
    known.least, known.room = smallest()
  end
end
