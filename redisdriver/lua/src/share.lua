-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- stand answers one that shares the key, l being its lease: a repeated request,
-- or the claim of a handover. nil: it is over.
local function stand(value, l, as, ttl, fences, h, how, refuse)
  local ends = tonumber(redis.call('ZSCORE', K[5], value) or 0)
  if ends <= ms and redis.call('PTTL', K[1]) ~= -1 then return nil end
  if how == 'convert' and (l.pending or h and l.fence < h) then return refuse(0) end
  local n, changed = 1, l.pending
  if l.pending then
<<if .Node>>
    if h then
      local least
      n, least = allow(h, ours.wrote, fences, 'shared', ours.newest)
      if not n then return refuse(3, nil, least) end
    end
<<end>>
    later(K[1], ttl) -- takes no memory, and after it nothing is refused for that
<<if .Node>>
    if h then
      cover(h)
      l.fence, l.state = h, 'C'
    end
<<end>>
    if not h and not (l.state == 'c' and fences == 1) then l.fence, n = mint(fences, ours.newest), fences end
    l.state, l.place, l.pending = as, '', false
    if l.limit == 0 then l.mark = ours.mark end -- one beside it may not have finished since
    ours.mute = ours.mute or as == 'm' or as == 'M'
  else
<<if .Node>>
    if how == 'raise' and h ~= l.fence then
      local least = floor(ours.wrote)
      if least < l.fence then least = l.fence end
      if h < l.fence or not near(h, least) then return refuse(3, nil, least) end
      later(K[1], ttl)
      cover(h)
      l.fence, changed = h, true
    end
<<end>>
    later(K[1], ttl)
  end
  if ms + ttl > ends then
    ends = ms + ttl
    redis.call('ZADD', K[5], string.format('%.0f', ends), value)
  end
  if changed then
    write(value, l)
    if not ours.newest or l.fence > ours.newest then ours.newest = l.fence end
    ours.stale = true
  end
  ours.px = math.max(ours.px, ttl)
  if redis.call('EXISTS', K[3]) == 1 then letIn() end
  settle()
  local left = ends - ms
<<if .Node>>
  if left > longest then left = longest end
<<end>>
  return {1, l.fence, l.mark and 1 or 0, left, n, tonumber(l.slot)}
end

-- convert lets others in beside one that has the key alone.
local function convert(value, ttl, h, limit, grant, refuse)
  local state = grant and <<state "grant">>
  local fence = grant and <<fence "grant">>
  if not state or <<owner "grant">> ~= <<owner "value">> or not string.find(state, '[hmHM]') or h and fence < h then
    ours = nil
    return refuse(0)
  end
  later(K[1], ttl) -- takes no memory, and after it nothing is refused for that
  local left = redis.call('PTTL', K[1])
  if left < 0 then left = ttl end
  ours.lock, ours.mark = SHARED .. stamp, false
  redis.call('SET', K[1], ours.lock, 'KEEPTTL')
  redis.call('DEL', K[5], K[6], K[7])
  local l = add(value, fence, state, limit, left, <<since "grant">>)
  letIn()
  settle()
<<if .Node>>
  if left > longest then left = longest end
<<end>>
  return {1, fence, 0, left, 1, tonumber(l.slot)}
end

-- share is try for a key that is shared, or that one wants to share. nil: an
-- Exclusive request finds it free.
function share(value, as, ttl, fences, h, how, limit, cur, grant, gone, join, refuse)
  ttl = tonumber(ttl)
  local gap
  local state = grant and <<state "grant">>
  if not cur or <<shared "cur">> then gap = unfinished(grant) end
  local done = survey(cur, grant, gap)
  local alone = cur and <<unshared "cur">>
  if alone then
    if cur == value and not gone and how == 'convert' then return convert(value, ttl, h, limit, grant, refuse) end
    ours = nil
    if cur ~= value and how ~= 'convert' then join() end
    return refuse(0)
  end
  local text = ours.lock and ours.n < math.huge and not gone and redis.call('HGET', K[6], value)
  if text then
    local answer
    if limit then
      answer = stand(value, lease(text), as, ttl, fences, h, how, refuse)
    elseif tonumber(redis.call('ZSCORE', K[5], value) or 0) > ms or redis.call('PTTL', K[1]) == -1 then
      answer = refuse(0) -- overtaken by the request that converted the lease
    end
    if answer then
      settle()
      return answer
    end
  end
  if gone or how == 'convert' then
    settle()
    return refuse(0)
  end

  if not ours.lock then
    local kind = redis.call('TYPE', K[1]).ok
    if kind ~= 'none' then return {-1, kind} end
    if state == 'c' or state == 'C' then restore(grant, gap) end
  end
  local mine = redis.call('ZSCORE', K[3], value)
  local _, why = nil, 'more'
  if done then _, why = admit(mine and value) end
  local cut, low = why == 'more' and (handed and 3 or 2) or why == 'mute' and 1 or nil, nil
  if not why and not limit and ours.n == 0 then
    settle()
    return nil
  elseif not why and fits(limit) then
    local fence, n = choose(h, ours.wrote, fences, how == '' and 'shared' or how, ours.newest)
    if fence then
      if mine then
        redis.call('ZREM', K[3], value)
        redis.call('HDEL', K[4], <<owner "value">>)
      end
      local l = add(value, fence, as, limit, ttl)
      if redis.call('EXISTS', K[3]) == 1 then
        letIn()
        handed = handed or 0 -- whoever is first now does not know when there will be room for it
      end
      settle()
      return {1, fence, l.mark and 1 or 0, 0, n, tonumber(l.slot)}
    end
    low = n
  end
  settle()
  join()
  return refuse(low and 3 or 0, cut, low)
end

-- leave is release for a key that is shared, or was.
function leave(value, GONE, wary, unclaimed, upto, ending, cur, grant)
  local alone = cur and <<unshared "cur">>
  local done = survey(cur, grant, unfinished(grant))
  local owner = <<owner "value">>
  local text = ours.n < math.huge and (ours.lock or alone) and redis.call('HGET', K[6], value)
  local l, result, rank, ends = text and lease(text), 0, nil, nil
  if l and (unclaimed and not l.pending or upto and l.fence > upto and not l.pending) then
    settle()
    return 0
  end
  if l then
    ends = tonumber(redis.call('ZSCORE', K[5], value) or 0)
    redis.call('ZREM', K[5], value)
    redis.call('HDEL', K[6], value)
    if alone or ends <= ms and redis.call('PTTL', K[1]) ~= -1 then -- it was over
      result = l.pending and 2 or 0
    else
      result = 1
    end
    if l.limit > 0 then
      redis.call('ZADD', K[7], FREE - l.slot, l.slot)
      ours.least, ours.room = smallest()
      local left = ending == 'unfinished' or result == 0 or ending == 'unused' and l.mark
      if l.pending then left = l.mark end
      if left and not ours.mark then ours.mark, ours.stale = true, true end
    end
    ours.n = ours.n - 1
  else
    rank = redis.call('ZRANK', K[3], value)
    if rank then
      redis.call('ZREM', K[3], value)
      redis.call('HDEL', K[4], owner)
      result = 2
    end
  end
  if GONE then
    local set = l and redis.call or redis.pcall -- may fail where the server is full: a Try that comes late then keeps the key for its TTL
    set('SET', GONE, '', 'PX', wary)
  end
  if alone then
    if ours.mark and ours.stale and <<shared "grant or ''">> then -- it stays beside the peer that has the key now
      redis.call('SET', K[2], <<head "grant">> .. '!' .. sub(grant, 61), 'KEEPTTL')
    end
    ours = nil
    if rank == 0 then lead() end
    return result
  end
  if ours.n == 0 and ours.lock then vacate() end
  local e, why
  local may = done and redis.call('EXISTS', K[3]) == 1
<<if .Node>>
  may = may and votes(KEYS[2])
<<end>>
  if may then e, why = letIn() end
  if not done then hail() end -- what is over is too much for one script
  if ends and why == 'shut' and not ours.alone and not handed then
    local _, at = opens(e[10])
    if at and at < ends then handed = math.max(1, at - ms) end -- it was told to look when this lease ends
  end
  settle()
  if rank == 0 and why == 'shut' and e[6] ~= 'p' and not ours.alone then notify(e) end -- it looks after the holders now
  return why == 'mute' and result == 1 and 3 or result
end
