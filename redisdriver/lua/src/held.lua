-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Keys that are shared: what is known of them, and how a lease comes and goes.
-- Made only in a script that meets one.
--
-- A lock that is shared is a string still, SHARED and the stamp of the moment
-- at which the sharing began, so that whoever asks with NX is refused. It expires
-- with the last of its leases; where it is gone, so are they all. Beside it
--   shares  zset  "<owner> <label>" -> ms, its expiry
--   held    hash  "<owner> <label>" -> lease; "!" -> the stamp in the lock
--   room    zset  number of a place -> the limit of who has it, or FREE less the number
-- lease: fence(16 digits) ms(13 digits) state limit number mark, and of c and C: <number in the queue> <place>
--        as in a grant; mark is 1 when its Try said that a previous holder did not finish
-- In the grant stands SHARED for the owner, and the ! for as long as the key
-- has the mark. A lock that a person made permanent keeps all of its leases.
--
-- ours, the key at hand:
--   lock   what the lock key holds while the key is shared; nil: nobody does
--   alone  a place that was handed the key and shares it with nobody
--   n      leases; math.huge: nobody knows which
--   least  the smallest limit among them
--   newest, wrote  the largest fence, and the largest that was Exclusive
--   mark, mute     as in the grant
--   px     ms for which the lock must last;  room: there are numbers
--   grant  there is one;  stale: it must be written

-- take gives out the smallest free number.
local function take(limit)
  local back = call('ZRANGE', K.room, -1, -1, 'WITHSCORES')
  local number = 0
  if back[2] then number = tonumber(back[2]) > FREE / 2 and back[1] or call('ZCARD', K.room) end
  call('ZADD', K.room, string.format('%.0f', limit), number)
  return number
end

-- fits says whether one more can have the key, of that limit; nil: Exclusive.
local function fits(limit)
  if ours.n == 0 then return true end
  return limit ~= nil and ours.n < ours.least and (limit == 0 or ours.n < limit)
end

local function lease(text)
  local fence, since, state, limit, slot, mark, place =
    string.match(text, '^(%d+) (%d+) (%a) (%d+) (%d+) (%d) ?(.*)$')
  if not fence then counted('held', text, true) end
  return {fence = fence, since = since, state = state, limit = tonumber(limit), slot = tonumber(slot),
    mark = mark == '1', place = place, pending = state == 'c' or state == 'C'}
end

local function write(value, l)
  local limit, mark, place = string.format('%.0f', l.limit), l.mark and 1 or 0, l.place ~= '' and ' ' .. l.place or ''
  call('HSET', K.held, value, <<lease "l.fence" "l.since" "l.state" "limit" "l.slot" "mark">> .. place)
end

-- reap ends the leases that are over, or all of them, and gives those that were
-- handed off and never claimed their old places back. It is false when there
-- are more than one script should end.
local function reap(all)
  local size = 1
  for _ = 1, 11 do
    local ids, over = call('ZRANGE', K.shares, 0, size - 1, 'WITHSCORES'), {}
    for i = 1, #ids, 2 do
      if not all and tonumber(ids[i + 1]) > ms then break end
      over[#over + 1] = ids[i]
    end
    if #over == 0 or not all and call('PTTL', K.lock) == -1 then return true end
    local leases, strikes = call('HMGET', K.held, unpack(over)), nil
    local free, queue, places, patience = {}, {}, {}, 0
    call('ZREM', K.shares, unpack(over)) -- takes no memory, and after it nothing is refused for that
    call('HDEL', K.held, unpack(over))
    for i = 1, #over do
      local l = leases[i] and lease(leases[i])
      if l and l.limit > 0 then
        free[#free + 1], free[#free + 2] = FREE - l.slot, l.slot
        if l.mark or not l.pending then ours.mark = true end
      end
      if l and l.pending then
        local number, place = string.match(l.place, '^(%S+) (.*)$')
        local e = entry(over[i], number, place)
        queue[#queue + 1], queue[#queue + 2] = number, over[i]
        places[#places + 1], places[#places + 2] = <<owner "over[i]">>, unclaimed(place)
        strikes = strike(strikes or call('HGET', K.places, '!') or '', e.inbox, l.since)
        patience = math.max(patience, e.patience)
      end
    end
    if #free > 0 then call('ZADD', K.room, unpack(free)) end
    if #queue > 0 then
      call('ZADD', K.queue, unpack(queue))
      call('HSET', K.places, '!', strikes, unpack(places))
      outlast(K.queue, patience + LINGER)
      outlast(K.places, patience + LINGER)
    end
    ours.stale = true
    if #over < size then return true end
    size = 100
  end
  return false
end

local function vacate()
  call('DEL', K.lock, K.shares, K.held, K.room)
  ours.lock, ours.n, ours.least, ours.stale = nil, 0, math.huge, true
end

-- survey finds out what is known of the key. It is false when reap was.
local function survey(cur, grant, abandoned)
  local side = <<side "K.queue">>
  K.shares, K.held, K.room = 'hasp.shares:' .. side, 'hasp.held:' .. side, 'hasp.room:' .. side
  local state = grant and <<state "grant">>
  local was = state == 's' or state == 'S'
  ours = {n = 0, least = math.huge, newest = grant and <<fence "grant">>, wrote = wrote(grant), mark = abandoned,
    mute = state == 'S', px = 0, grant = grant, stale = false}
  local done
  if cur and <<shared "cur">> then
    ours.lock = cur
    if call('HGET', K.held, '!') ~= <<after "cur">> then
      ours.n = math.huge
      return true
    end
    done = reap(false)
  elseif not cur and was then
    done = reap(true)
  else
    return true
  end
  ours.n = call('ZCARD', K.shares)
  if ours.n == 0 and cur and not ours.stale then
    ours.n = math.huge -- it was never empty
  elseif ours.n == 0 then
    vacate()
  elseif ours.lock then
    ours.least, ours.room = smallest()
  end
  return done
end

-- save writes down what became of the key.
local function save()
  if ours.alone or not ours.stale and ours.px == 0 then return end
  local zero, px = string.rep('0', 16), ours.px
  local newest, most = ours.newest or zero, ours.wrote or zero
  local text = '<<.Shared>>' .. newest .. ' ' .. <<millis "stamp">> .. ' ' .. (ours.mute and 'S' or 's')
    .. (ours.mark and '!' or ' ') .. most
  if ours.lock then
    if px > 0 then later(K.lock, px) end
    if not ours.grant then px = math.max(px, call('PTTL', K.lock)) end
    if ours.stale and ours.grant then
      call('SET', K.grant, text, 'KEEPTTL')
    elseif ours.stale then
      call('SET', K.grant, text, 'PX', <<lasting "px + KEEP" "newest">>)
    end
    if px > 0 then
      later(K.grant, <<lasting "px + KEEP" "newest">>)
      outlast(K.shares, px + KEEP)
      outlast(K.held, px + KEEP)
      if ours.room then outlast(K.room, px + KEEP) end
    end
  elseif ours.grant and ours.n > 0 then -- more to reap than one script should
    call('SET', K.grant, text, 'KEEPTTL')
  elseif ours.grant and <<if .Node>>true<<else>>ours.mark<<end>> then
    remember(text, ours.mark)
  elseif ours.grant then
    call('DEL', K.grant)
  end
end

-- add gives an owner a lease, for px ms; since and place may be nil.
local function add(value, fence, state, limit, px, since, place)
  if not ours.lock then
    ours.lock = '<<.Shared>>' .. stamp
    call('SET', K.lock, ours.lock, 'PX', px)
    call('DEL', K.shares, K.held, K.room)
  end
  if ours.n == 0 then call('HSET', K.held, '!', <<after "ours.lock">>) end
  local l = {fence = fence, since = since or <<millis "stamp">>, state = state, limit = limit, slot = 0,
    mark = ours.mark, place = place or ''}
  if limit > 0 then
    l.slot = take(limit)
    ours.mark, ours.room = false, true
  end
  call('ZADD', K.shares, string.format('%.0f', ms + px), value)
  write(value, l)
  ours.n, ours.least, ours.px = ours.n + 1, math.min(ours.least, limit > 0 and limit or math.huge), math.max(ours.px, px)
  if not ours.newest or fence > ours.newest then ours.newest = fence end
  ours.mute, ours.stale = ours.mute or <<mute "state">>, true
  return l
end

-- handTo hands the key to a place that left the queue, alone or beside others. It is false
-- when there is no fence to be had.
local function handTo(e)
  if not e.limit then
    if not handOff(e, ours.newest, ours.wrote, ours.mark) then return false end
    ours.alone = e.value
    return true
  end
  local fence, state = string.rep('0', 16), 'C'
  if e.proposes == '' then fence, state = mintFor(ours.newest), 'c' end
  if not fence then return false end
  unqueue(e.value)
  add(e.value, fence, state, e.limit, tonumber(e.claim), nil, e.number .. ' ' .. e.place)
  handed = math.max(handed or 0, tonumber(e.claim))
  return true
end

-- serve hands the key to those at the front of the queue that can have it, up to me.
-- Answers what it stopped at and why: nil, nobody is left; me; a place and
-- 'shut', it does not fit; 'mute' and 'more' as of first.
local function serve(me)
  local at
  for _ = 1, 32 do
    local e, why
    e, why, at = first(me, true, fits, at)
    if not e or why or e.value == me then return e, why end
    if ours.alone or not fits(e.limit) then return e, 'shut' end
    if not handTo(e) then return e, 'mute' end
    if ours.alone then return e, 'shut' end
  end
  return nil, 'more'
end

-- serveMore is serve for those behind one that is served.
local function serveMore()
  local e, why = serve(false)
  if why == 'more' and not handed then hintLast() end
  return e, why
end

-- serveFree hands a free key to the first place in the queue, and to those behind it that
-- can have it too.
function serveFree(e, grant, abandoned, me)
  survey(nil, nil, abandoned)
  ours.newest, ours.wrote, ours.grant = grant and <<fence "grant">>, wrote(grant), call('EXISTS', K.grant) == 1
  local _, why = nil, 'mute'
  if handTo(e) then _, why = serve(me) end
  save()
  return why
end

-- holder names who is in the way of one of that limit, as refuse answers it.
function holder(limit, left)
  if ours.alone then return ours.alone, left, sub(call('GET', K.grant), 1, 59) end
  if not ours.lock then return nil, left, '' end
  local last, at = opens(limit, ours.n, ours.least)
  local text = ours.n < math.huge and last and call('HGET', K.held, last)
  if not text then return ours.lock, left, '' end
  if left >= 0 then left = math.max(1, at - ms) end
  return last, left, sub(last, 1, 27) .. string.match(text, '^%d+ %d+ %a %d+ %d+')
end
