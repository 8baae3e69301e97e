-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- shares answers that one has the lease l, for so many ms; 0: as long as was asked.
local function shares(l, left, n)
<<if .Node>>
  if left > longest then left = longest end
<<end>>
  return {1, l.fence, l.mark and 1 or 0, left, n, tonumber(l.slot)}
end

-- standing answers one that shares the key, l being its lease: a repeated request,
-- or the claim of a handoff. nil: it is over.
local function standing(r, l)
  local value, ttl = r.value, r.ttl
  local ends = tonumber(call('ZSCORE', K.shares, value) or 0)
  if ends <= ms and call('PTTL', K.lock) ~= -1 then return nil end
  if r.how == 'convert' and (l.pending or r.fence and l.fence < r.fence) then return refuse(r, 0) end
  local n, changed = 1, l.pending
<<if .Node>>
  local raised = r.how == 'raise' and r.fence ~= l.fence
  if r.fence and (l.pending or raised) then
    local least
    if l.pending then
      n, least = allow(r.fence, ours.wrote, r.fences, nil, ours.newest)
    else
      n, least = allow(r.fence, l.fence, 1, 'raise')
    end
    if not n then return refuse(r, 3, nil, least) end
  end
<<end>>
  later(K.lock, ttl) -- takes no memory, and after it nothing is refused for that
<<if .Node>>
  if r.fence and (l.pending or raised) then
    cover(r.fence)
    l.fence, l.state, changed = r.fence, l.pending and 'C' or l.state, true
  end
<<end>>
  if l.pending then
    if <<if .Node>>not r.fence and <<end>>not (l.state == 'c' and r.fences == 1) then
      l.fence, n = mint(r.fences, ours.newest), r.fences
    end
    l.state, l.place, l.pending = r.state, '', false
    if l.limit == 0 then l.mark = ours.mark end -- one beside it may not have finished since
    ours.mute = ours.mute or <<mute "r.state">>
  end
  if ms + ttl > ends then
    ends = ms + ttl
    call('ZADD', K.shares, string.format('%.0f', ends), value)
  end
  if changed then
    write(value, l)
    if not ours.newest or l.fence > ours.newest then ours.newest = l.fence end
    ours.stale = true
  end
  ours.px = math.max(ours.px, ttl)
  if call('EXISTS', K.queue) == 1 then serveMore() end
  save()
  return shares(l, ends - ms, n)
end

-- convert lets others in beside one that has the key alone.
local function convert(r, grant)
  local value, state, fence = r.value, grant and <<state "grant">>, grant and <<fence "grant">>
  if not state or <<owner "grant">> ~= <<owner "value">> or not string.find(state, '[hmHM]') or r.fence and fence < r.fence then
    ours = nil
    return refuse(r, 0)
  end
  later(K.lock, r.ttl) -- takes no memory, and after it nothing is refused for that
  local left = call('PTTL', K.lock)
  if left < 0 then left = r.ttl end
  ours.lock, ours.mark = '<<.Shared>>' .. stamp, false
  call('SET', K.lock, ours.lock, 'KEEPTTL')
  call('DEL', K.shares, K.held, K.room)
  local l = add(value, fence, state, r.limit, left, <<since "grant">>)
  serveMore()
  save()
  return shares(l, left, 1)
end

-- tryShared is try for a key that is shared, or that one wants to share. nil: an
-- Exclusive request finds it free.
function tryShared(r)
  local value, cur, grant, gone, limit = r.value, r.cur, r.grant, r.gone, tonumber(r.limit)
  r.ttl, r.limit = tonumber(r.ttl), limit
  local state = grant and <<state "grant">>
  local abandoned
  if not cur or <<shared "cur">> then abandoned = unfinished(grant) end
  local done = survey(cur, grant, abandoned)
  if cur and <<unshared "cur">> then
    if cur == value and not gone and r.how == 'convert' then return convert(r, grant) end
    ours = nil
    if cur ~= value and r.how ~= 'convert' then join(r) end
    return refuse(r, 0)
  end
  local text = ours.lock and ours.n < math.huge and not gone and call('HGET', K.held, value)
  if text then
    local answer
    if limit then
      answer = standing(r, lease(text))
    elseif tonumber(call('ZSCORE', K.shares, value) or 0) > ms or call('PTTL', K.lock) == -1 then
      answer = refuse(r, 0) -- overtaken by the request that converted the lease
    end
    if answer then
      save()
      return answer
    end
  end
  if gone or r.how == 'convert' then
    save()
    return refuse(r, 0)
  end

  if not ours.lock then
    local kind = call('TYPE', K.lock).ok
    if kind ~= 'none' then return {-1, kind} end
    if state == 'c' or state == 'C' then restore(grant, abandoned) end
  end
  local mine = call('ZSCORE', K.queue, value)
  local _, why, low = nil, 'more', nil
  if done then _, why = serve(mine and value) end
  local cut = why == 'more' and (handed and 3 or 2) or why == 'mute' and 1 or nil
  if not why and not limit and ours.n == 0 then
    save()
    return nil
  elseif not why and fits(limit) then
    local fence, n = choose(r, ours.wrote, ours.newest)
    if fence then
      if mine then unqueue(value) end
      local l = add(value, fence, r.state, limit, r.ttl)
      if call('EXISTS', K.queue) == 1 then
        serveMore()
        handed = handed or 0 -- whoever is first now does not know when there will be room for it
      end
      save()
      return shares(l, 0, n)
    end
    low = n
  end
  save()
  join(r)
  return refuse(r, low and 3 or 0, cut, low)
end

-- releaseShared is release for a key that is shared, or was.
function releaseShared(r, cur, grant)
  local value, ending = r.value, r.ending
  local alone = cur and <<unshared "cur">>
  local done = survey(cur, grant, unfinished(grant))
  local text = ours.n < math.huge and (ours.lock or alone) and call('HGET', K.held, value)
  local l, result, rank, ends = text and lease(text), 0, nil, nil
  if l and not l.pending and (ending == 'unclaimed' or r.upTo and l.fence > r.upTo) then
    save()
    return 0
  end
  if l then
    ends = tonumber(call('ZSCORE', K.shares, value) or 0)
    call('ZREM', K.shares, value)
    call('HDEL', K.held, value)
    if alone or ends <= ms and call('PTTL', K.lock) ~= -1 then -- it was over
      result = l.pending and 2 or 0
    else
      result = 1
    end
    if l.limit > 0 then
      call('ZADD', K.room, FREE - l.slot, l.slot)
      ours.least, ours.room = smallest()
      local left = ending == 'unfinished' or result == 0 or ending == 'unused' and l.mark
      if l.pending then left = l.mark end
      if left and not ours.mark then ours.mark, ours.stale = true, true end
    end
    ours.n = ours.n - 1
  else
    rank = call('ZRANK', K.queue, value)
    if rank then
      unqueue(value)
      result = 2
    end
  end
  if r.tombstone then
    local set = l and call or redis.pcall -- may fail where the server is full: a Try that comes late then keeps the key for its TTL
    set('SET', K.gone, '', 'PX', r.tombstone)
  end
  if alone then
    if ours.mark and ours.stale and grant and <<shared "grant">> then
      -- it stays beside the peer that has the key now
      call('SET', K.grant, <<head "grant">> .. '!' .. sub(grant, 61), 'KEEPTTL')
    end
    ours = nil
    if rank == 0 then hintFirst() end
    return result
  end
  if ours.n == 0 and ours.lock then vacate() end
  local e, why
  local may = done and call('EXISTS', K.queue) == 1
<<if .Node>>
  may = may and votes()
<<end>>
  if may then e, why = serveMore() end
  if not done then hintLast() end -- what is over is too much for one script
  if ends and why == 'shut' and not ours.alone and not handed then
    local _, at = opens(e.limit, ours.n, ours.least)
    if at and at < ends then handed = math.max(1, at - ms) end -- its hint was to look when this lease ends
  end
  save()
  if rank == 0 and why == 'shut' and e.mode ~= 'p' and not ours.alone then notify(e) end -- it looks after the holders now
  return why == 'mute' and result == 1 and 3 or result
end
