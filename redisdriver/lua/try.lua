-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- join takes the last place, or gives the one there is a sign of life. The first to wait is told of to the
-- holders that asked: from then on they know.
local function join(r)
  if not r.place or r.gone then return end
  local last = call('ZRANGE', K.queue, -1, -1, 'WITHSCORES')[2]
  if call('ZADD', K.queue, 'NX', string.format('%.0f', counted('queue', last or '0') + 1), r.value) == 0 then
    alive(call('ZSCORE', K.queue, r.value))
  else
    if not last then
      for inbox in string.gmatch(known.asks, '~?(%S+)') do
        redis.pcall('PUBLISH', inbox, '*' .. known.newest .. K.lock) -- without the right to, they learn it by a renewal
      end
    end
  end
  call('HSET', K.places, F.owner(r.value), millis .. ' ' .. r.place)
  outlast(K.queue, r.patience + F.Linger)
  outlast(K.places, r.patience + F.Linger)
end

local function refuse(r, why, cut, least)
  local ahead = call('ZRANK', K.queue, r.value) or call('ZCARD', K.queue)
  local value, left, head = holder(r.limit)
--# if node
  if r.fence and not least then
    local _
    _, least = allow(r.fence, r.limit and known.wrote or known.newest, 1)
  end
--# end
  cut = cut or handed and 3 or 0
--# if not node
  if r.place then
    return {r.gone and 2 or why, sub(value, 1, 600), left, ahead, head, cut, known.newest or '', stamp}
  end
  if string.find(known.asks, '~', 1, true) then least = 'keeps' end
--# end
  return {r.gone and 2 or why, sub(value, 1, 600), left, ahead, head, cut, least or ''}
end

-- granted answers one that has the lease l for so many ms; 0: as long as was asked.
-- waited: ms since it was handed over, which now is claimed.
local function granted(l, left, n, waited)
--# if node
  if left > longest then left = longest end
--# end
  return {1, l.fence, l.mark and 1 or 0, left, n, waited or 0, l.slot}
end

-- choose answers the fence of a grant, and how many in a row it is the last of: the
-- proposed one, or one that is minted; or nil, and what a proposal must be above.
-- l is the lease that stands, if there is one.
local function choose(r, l, how)
--# if node
  local n, floor = r.fences
  if r.fence then
    local above = r.limit and known.wrote or known.newest
    if how == 'raise' then n, above = 1, l.fence end
    n, floor = allow(r.fence, above, n, how, known.newest)
    if not n then
      cover(markCur)
      return nil, floor
    end
  end
--# end
  if l then later(K.lock, r.ttl) end -- takes no memory, and after it nothing is refused for that
--# if node
  if r.fence then
    cover(r.fence)
    return r.fence, n
  end
--# end
  return mint(r.fences, known.newest), r.fences
end

-- standing answers a holder: a repeated request, or the claim of a handoff.
local function standing(r, l)
  local value, ttl, n, left = r.value, r.ttl, 1
  local claims = l.pending or l.unknown
  local waited = l.pending and math.max(ms - tonumber(l.since or F.since(known.grant)), 1)
  local raises = r.how == 'raise' and not claims and r.fence ~= l.fence
  if raises or claims and (r.fence or r.fences > 1 or l.state ~= 'c') then
    local fence
    fence, n = choose(r, l, raises and 'raise')
    if not fence then return refuse(r, 3, nil, n) end
    l.fence = fence
  else
    later(K.lock, ttl)
  end
  if claims or raises then l.state, l.place = r.state, '' end
  if claims then l.since = millis end
  if l.pending and l.limit == 0 then l.mark = known.mark end -- one beside it may not have finished since
  if l.limit then
    left = math.max(l.ends - ms, ttl)
    if left == ttl then call('ZADD', K.shares, string.format('%.0f', ms + ttl), value) end
    if claims or raises then write(value, l) end
    known.px = math.max(known.px, ttl)
    if call('EXISTS', K.queue) == 1 then
      serveMore()
    end
  else
    left = claims and 0 or call('PTTL', K.lock)
    if claims or raises then write(value, l, math.max(ttl, left)) else later(K.grant, ttl + KEEP) end
  end
  return granted(l, left, n, waited)
end

-- convert lets others in beside one that has the key alone.
local function convert(r, l)
  later(K.lock, r.ttl) -- takes no memory, and after it nothing is refused for that
  local left = call('PTTL', K.lock)
  if left < 0 then left = r.ttl end
  known.lock, known.shared, known.n, known.least, known.mark = 'F.Shared' .. stamp, true, 0, math.huge, false
  call('SET', K.lock, known.lock, 'KEEPTTL')
  call('DEL', K.shares, K.held, K.room)
  known.asks = string.gsub(known.asks, '~', '') -- what is shared is not kept
  l = give(r.value, l.fence, l.pending and r.state or l.state, r.limit, left, nil, F.since(known.grant))
  serveMore()
  return granted(l, left, 1)
end

-- try is one attempt to hold a key, see layout.go for its fields; refused, it takes a
-- place in the queue when there is one to note. Answers
--   fence: granted, and nobody was in doubt about it
--   {1, fence, 1 when a previous holder did not finish, ms the lease lasts
--       or 0: as long as was asked, number of fences, ms since it was handed this
--       key or 0, slot if it is shared}
--   {0, value of a holder or "", ms left as PTTL says, places before,
--       first 59 bytes of grant, and " <limit> <slot>" of one that is shared,
--       1 when the next could not get a hint, 2 when the search for it was cut short,
--       3 when this request handed the key over, what a proposal must be above,
--       or ""}; of one that queues, without proposals, the key's newest fence, or "", and the clock, us; of one that does not, keeps
--       where a holder would give the key back
--   {2, …} as 0: refused because this owner was released
--   {3, …} as 0: refused because the proposal is not above that, or too far
--   {4} the node does not vote  {5, ms} the longest TTL that it allows
--   {-1, type} the lock key holds something that is not a lock
local function try(r)
  local value, converts = r.value, r.how == 'convert'
  r.limit, r.fences = tonumber(r.limit), tonumber(r.fences or 1)
  if r.limit then r.ttl = tonumber(r.ttl) end
  caller = r.place and string.match(r.place, '%S+$')
  local got = call('MGET', K.lock, K.grant, K.gone)
  if got[2] and not sound(got[2]) then counted('grant', got[2], true) end
  r.gone = got[3]
  survey(got[1], got[2], nil, not converts and value) -- only one that entered converts without a claim
  local l = not r.gone and leaseOf(value)
  if l and not l.over then
    local answer
    local same = (l.limit == nil) == (r.limit == nil)
    local unclaimed = l.unknown or l.pending and not (l.enters and r.fence == l.fence) -- who enters knows the fence
    if converts and (unclaimed or r.fence and l.fence < r.fence) or not same and not converts then
      answer = refuse(r, 0) -- overtaken, of one that asks in another mode, by the request that converted the lease
    else
      answer = (same and standing or convert)(r, l)
    end
    save()
    return answer
  end
  if r.gone or converts or known.lock and not known.shared then
    if not converts then join(r) end
    save()
    return refuse(r, 0)
  end
  if known.type then
    save()
    return {-1, known.type}
  end

  local mine, why, cut, fence, n = call('ZSCORE', K.queue, value), 'more'
  if not known.cut then why = select(2, serve(value)) end
  if not why and fits(r.limit) then
    local ok
    ok, fence, n = pcall(choose, r, nil, r.how == 'restore' and r.how)
    if not ok then
      save()
      error(fence, 0)
    end
    if fence then
      if mine then unqueue(value) end
      l = give(value, fence, r.state, r.limit, r.ttl)
      if not r.limit then
        if mine then handed = r.ttl end -- the next in the queue did not see that
      elseif call('EXISTS', K.queue) == 1 then
        serveMore()
        handed = handed or 0 -- whoever is first now does not know when there will be room for it
      end
      save()
      return granted(l, 0, n)
    end
  end
  save()
  if why == 'strange' then counted('places', K.strange, true) end
  if why == 'poor' then mint(1, known.newest) end -- says what is wrong
  if why == 'more' then cut = handed and 3 or 2 elseif why == 'mute' then cut = 1 end
  join(r)
  return refuse(r, n and 3 or 0, cut, n)
end
