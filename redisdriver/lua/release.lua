-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- release gives up a lease, which goes to the next live place in the queue, or a
-- place: see layout.go for its fields. Answers
-- 1 lease, 2 place, 0 neither, 3 lease, but the next could not get a hint.
--
-- The first write takes no memory, and Redis then lets a script finish: a
-- server that is full still frees a key and hands it over.
local function release(r)
  local value, result, ends, rank = r.value, 0, nil, nil
--# if node
  local got = call('MGET', K.lock, K.grant) -- nothing where it is no string: not ours
--# else
  local got = seen or call('MGET', K.lock, K.grant)
--# end
  if got[2] and F.newer(got[2]) then counted('grant', got[2], true) end
  local unused = r.ending == 'unused'
  survey(got[1], sound(got[2]), value, unused and value)
  local l = leaseOf(value)
  if l and l.enters and r.ending == 'unclaimed' then -- it may have entered, and the hint is a copy
    save()
    return 0
  end
  if l and not l.pending and (r.ending == 'unclaimed' or r.upTo and l.fence and l.fence > r.upTo) then
    save()
    return 0
  end
  if l then
    ends, result = l.ends, l.over and (l.pending and 2 or 0) or 1
    if l.limit then
      call('ZREM', K.shares, value)
      call('HDEL', K.held, value)
    end
    leave(l, r.ending)
    known.n, known.least = known.n - 1, known.room and smallest() or math.huge
    if known.n == 0 then vacate() end
    -- Without the right to publish, its holder learns it by a renewal.
    if r.tell then redis.pcall('PUBLISH', r.tell, (l.fence or '') .. F.about(value)) end
  else
    rank = call('ZRANK', K.queue, value)
    local place = rank and not unused and call('HGET', K.places, F.owner(value))
    local late = place and string.find(place, '^%d+ %d+ %d+ %aE%x*!') -- it entered, and its lease was over: that is its place from before
    if rank then unqueue(value) end
    if rank and not late or known.left and not known.entered then result = 2 end
  end
  if r.tombstone then
    local set = l and call or redis.pcall -- may fail where the server is full: a Try that comes late then keeps the key for its TTL
    set('SET', K.gone, '', 'PX', r.tombstone)
  end

  local e, why
  local alone = known.lock and not known.shared or known.type
--# if not node
  local may = not known.cut and (inWay == 1 or call('EXISTS', K.queue) == 1)
--# else
  local may = not known.cut and call('EXISTS', K.queue) == 1
  may = may and votes()
--# end
  if known.cut then
    hintLast()
  elseif may and alone then
    if rank == 0 then hintFirst() end
  elseif may then
    if not l and not rank then unqueue(value) end -- takes no memory, and after it nothing is refused for that
    local ok
    ok, e, why = pcall(serveMore)
    if not ok then
      save()
      error(e, 0)
    end
    local waits = why == 'shut' and known.shared
    if waits and ends and not handed then
      local _, at = opens(e.limit, known.n, known.least)
      if at and at < ends then handed = math.max(1, at - ms) end -- its hint was to look when this lease ends
    end
    if waits and rank == 0 and e.mode ~= 'p' then notify(e) end -- it looks after the holders now
  end
  save()
  return (why == 'mute' or why == 'poor') and result == 1 and 3 or result
end
