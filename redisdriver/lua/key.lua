-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The key at hand: what is known of it, and how a lease comes and goes. Included after
-- queue.lua.
--
-- A lock that is shared is a string still, SHARED and the stamp of the moment
-- at which the sharing began, so that whoever asks with NX is refused. It expires
-- with the last of its leases; where it is gone, so are they all. Beside it
--   shares  zset  "<owner> <label>" -> ms, its expiry
--   held    hash  "<owner> <label>" -> lease; "!" -> the stamp in the lock
--   room    zset  number of a slot -> the limit of who has it, or 2^42 less the number
-- lease: fence(16 digits) ms(13 digits) state limit slot mark, and of c and C: <number in the queue> <place>
--        as in a grant; mark is 1 when its Try said that a previous holder did not finish
-- In the grant stands SHARED for the owner, and the ! for as long as the key
-- has the mark. A lock that a person made permanent keeps all of its leases.
--
-- known, of the key at hand:
--   lock, grant  what these two hold; false: nothing
--   type   of the lock key, when it is no string;  left: the one that is leaving never claimed it;
--   entered: whoever did not claim it may have begun to work
--   shared the lock is shared;  cut: more leases are over than one script should end
--   n      leases; math.huge: nobody knows which
--   least  the smallest limit among them, 1 for Exclusive
--   newest, wrote  the largest fence, and the largest that was Exclusive
--   mark, mute, asks  as in the grant
--   px     ms for which a shared lock must last;  room: there are slots
--   stale  the grant must be written

-- unqueue takes a place out of the queue.
local function unqueue(value)
  call('ZREM', K.queue, value)
  call('HDEL', K.places, F.owner(value))
end

-- sound answers a grant, or nothing where it is not one.
local function sound(grant)
  if grant and string.find(grant, '^%w+ %d+ %d+ [hmcsfHMCSF]') == 1 and sub(grant, 27, 27) == ' '
    and sub(grant, 44, 44) == ' ' and sub(grant, 58, 58) == ' ' then
    return grant
  end
  return false
end

-- fits says whether one more can have the key, of that limit; nil: Exclusive.
local function fits(limit)
  return known.n == 0 or limit ~= nil and known.n < known.least and (limit == 0 or known.n < limit)
end

-- leaseOf answers the lease that an owner has, or nil.
local function leaseOf(value)
  if known.shared then
    local text = known.n < math.huge and call('HGET', K.held, value)
    if not text then return nil end
    local l = lease(text)
    l.ends = tonumber(call('ZSCORE', K.shares, value) or 0)
    l.over = l.ends <= ms and call('PTTL', K.lock) ~= -1
    return l
  elseif known.lock == value then
    local grant = known.grant
    local state = grant and F.owner(grant) == F.owner(value) and F.state(grant)
    return {fence = known.newest, state = state, mark = known.mark, place = '', pending = state == 'c' or state == 'C',
      enters = state == 'c' and F.enters(grant), unknown = not state or state == 'F' or state == 'f'}
  end
end

-- write stores the lease of one that has the key, which is its alone for px ms.
local function write(value, l, px)
  if not known.newest or l.fence > known.newest then known.newest = l.fence end
  if l.limit then
    local limit, mark = string.format('%.0f', l.limit), l.mark and 1 or 0
    local place = l.place ~= '' and ' ' .. l.place or ''
    call('HSET', K.held, value,
      F.lease(l.fence, l.since, l.state, limit, l.slot, mark) .. place)
    known.mute, known.stale = known.mute or F.mute(l.state), true
  else
    local state = l.state .. (l.mark and '!' or '')
    if l.place ~= '' then
      local most = l.state == 'c' and l.fence or known.wrote or '0000000000000000'
      state = l.state .. (l.mark and '!' or ' ') .. most .. ' ' .. l.place .. ' ' .. F.after(value)
    end
    local since = l.since or F.since(known.grant)
    known.grant = F.grant(value, l.fence, since, state)
    known.stale = false
    call('SET', K.grant, known.grant, 'PX', F.lasting(px + KEEP, l.fence))
  end
end

-- give gives an owner a lease, for px ms, that begins where it fits; since and place may be nil.
local function give(value, fence, state, limit, px, place, since)
  local l = {fence = fence, since = since or millis, state = state, limit = limit, mark = known.mark, place = place or ''}
  if not known.lock then
    known.asks = ''
    known.lock, known.shared = limit and 'F.Shared' .. stamp or value, limit ~= nil
    call('SET', K.lock, known.lock, 'PX', px)
    if limit then call('DEL', K.shares, K.held, K.room) end
  end
  if limit then
    if known.n == 0 then call('HSET', K.held, '!', F.after(known.lock)) end
    l.slot = 0
    if limit > 0 then -- the smallest free one
      local back = call('ZRANGE', K.room, -1, -1, 'WITHSCORES')
      if back[2] then l.slot = tonumber(back[2]) > F.Free / 2 and tonumber(back[1]) or call('ZCARD', K.room) end
      call('ZADD', K.room, string.format('%.0f', limit), l.slot)
      known.mark, known.room = false, true
    end
    call('ZADD', K.shares, string.format('%.0f', ms + px), value)
    known.px = math.max(known.px, px)
  end
  known.n, known.least = known.n + 1, math.min(known.least, limit and (limit > 0 and limit or math.huge) or 1)
  write(value, l, px)
  return l
end

-- vacate frees the key, of which nobody has a lease any more.
local function vacate()
  call('DEL', K.lock, K.shares, K.held, K.room, known.grant and K.lock or K.grant) -- one that is no grant would stay
  known.lock, known.shared, known.n, known.least, known.stale = false, false, 0, math.huge, true
end

-- leave gives the slot of a lease back that ended, and notes whether its owner did not finish.
local function leave(l, ending)
  local left = l.mark
  if not l.pending or l.enters then left = l.over or ending == 'unfinished' or ending == 'unused' and l.mark end
  if not l.limit then
    known.mark = left
  elseif l.limit > 0 then
    call('ZADD', K.room, F.Free - l.slot, l.slot)
    known.mark, known.stale = known.mark or left, known.stale or left
  end
end

-- survey finds out what is known of the key, and ends what is over. The place of one that
-- is leaving does not come back. One that declines says that it did not enter.
local function survey(lock, grant, leaving, declines)
  local state = grant and F.state(grant) or ''
  local most = grant and F.most(grant)
  known = {lock = lock, grant = grant, shared = lock and F.shared(lock), n = 0, least = math.huge,
    newest = grant and F.fence(grant), wrote = most == '' and F.fence(grant) or most,
    mark = grant and F.mark(grant) == '!', mute = state == 'S', px = 0, stale = false, asks = ''}
  if lock and (known.shared and string.find(state, '[sS]') or string.find(state, '[hmHM]') and F.owner(lock) == F.owner(grant)) then
    known.asks = F.asks(grant)
  end
  if known.shared and call('HGET', K.held, '!') ~= F.after(lock) then
    known.n = math.huge
    return
  elseif not lock then
    local kind = call('TYPE', K.lock).ok
    known.type = kind ~= 'none' and kind
  end
  -- It was handed on, and is not the claimer's: its time is over, or somebody else took the lock.
  local unclaimed = string.find(state, '[cC]') and (not lock or F.owner(lock) ~= F.owner(grant))
  if known.type and not unclaimed then return end
  if known.shared or string.find(state, '[sS]') or unclaimed then
    expire(leaving, declines)
  elseif not lock and string.find(state, '[hmHM]') then
    known.mark = true
  end
  if known.lock and not known.shared then known.n, known.least = 1, 1 end
end

-- save writes down what became of the key.
local function save()
  if not known.stale and known.px == 0 then return end
  local px, newest, most = known.px, known.newest or '0000000000000000', known.wrote or '0000000000000000'
  local among = known.shared or known.cut
  local state = known.mute and 'S' or 's'
  if not among then state = (known.mark or most ~= newest) and 'f' or 'F' end
  local text = among and 'F.Shared' or sub(known.grant or '', 1, 27)
  text = text .. newest .. ' ' .. millis .. ' ' .. state
  if state ~= 'F' then text = text .. (known.mark and '!' or ' ') .. most end
  if known.shared then text = text .. known.asks end
  if known.shared then
    if px > 0 then later(K.lock, px) end
    if not known.grant then px = math.max(px, call('PTTL', K.lock)) end
    if known.stale and known.grant then
      call('SET', K.grant, text, 'KEEPTTL')
    elseif known.stale then
      call('SET', K.grant, text, 'PX', F.lasting(px + KEEP, newest))
    end
    if px > 0 then
      later(K.grant, F.lasting(px + KEEP, newest))
      outlast(K.shares, px + KEEP)
      outlast(K.held, px + KEEP)
      if known.room then outlast(K.room, px + KEEP) end
    end
  elseif known.grant and (known.cut or F.node(true, known.mark)) then
    call('SET', K.grant, text, 'KEEPTTL')
  elseif known.grant then
    call('DEL', K.grant)
  end
end

-- holder names who is in the way of one of that limit: the value, the ms left as PTTL says,
-- and the first 59 bytes of the grant, with " <limit> <slot>" of one that shares the key.
local function holder(limit)
  local left = call('PTTL', K.lock)
  if not known.shared then return known.lock or '', left, known.grant and F.head(known.grant) or '' end
  local last, at = opens(limit, known.n, known.least)
  local text = known.n < math.huge and last and call('HGET', K.held, last)
  if not text then return known.lock, left, '' end
  return last, left < 0 and left or math.max(1, at - ms), sub(last, 1, 27) .. string.match(text, '^%d+ %d+ %a %d+ %d+')
end
