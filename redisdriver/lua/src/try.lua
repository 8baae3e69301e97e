-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- try is one attempt to hold a key for ttl ms; refused, it takes a place in
-- line when there is one to note. h is the fence that it proposes, nil to have
-- it minted; how "raise", "restore" or "convert", see driver.Request; limit that
-- of one who shares the key, 0 for none, nil: Exclusive. Answers
--   fence: granted, and nobody was in doubt about it
--   {1, fence, 1 when a holder before did not finish, ms the lease lasts
--       or 0: as long as was asked, number of fences, slot if it is shared}
--   {0, value of a holder or "", ms left as PTTL says, places before,
--       first 59 bytes of grant, and " <limit> <slot>" of one that is shared,
--       1 when the next could not be told, 2 when the search for it was cut short,
--       3 when this request handed the key over, what a proposal must be above,
--       or ""}
--   {2, …} as 0: refused because this owner was released
--   {3, …} as 0: refused because the proposal is not above that, or too far
--   {4} the node does not vote  {5, ms} the longest TTL that it allows
--   {-1, type} the lock key holds something that is not a lock
function try(value, GONE, as, ttl, linger, fences, place, patience, h, how, limit)
  local owner = <<owner "value">>
  ours = nil
  caller = string.match(place, '%S+$')
  local got = redis.call('MGET', K[1], K[2], GONE)
  local cur, grant, gone = got[1], got[2], got[3]
  if grant and not sound(grant) then counted('grant', grant, true) end
  local state = grant and <<state "grant">>
  local told = grant and <<fence "grant">>

  -- join takes the last place, or gives the one there is a sign of life.
  local function join()
    if place == '' or gone then return end
    local mine = redis.call('ZSCORE', K[3], value)
    if mine then
      alive(mine)
    else
      local last = redis.call('ZRANGE', K[3], -1, -1, 'WITHSCORES')[2] or '0'
      redis.call('ZADD', K[3], string.format('%.0f', counted('line', last) + 1), value)
    end
    redis.call('HSET', K[4], owner, <<millis "stamp">> .. ' ' .. place)
    outlast(K[3], patience + LINGER)
    outlast(K[4], patience + LINGER)
  end

  local function refuse(why, cut, least)
    local ahead = redis.call('ZRANK', K[3], value) or redis.call('ZCARD', K[3])
    local left = redis.call('PTTL', K[1])
    local head = grant and <<head "grant">>
    if ours then cur, left, head = holder(limit, left) end
<<if .Node>>
    least = least or h and floor(limit and (ours and ours.wrote or grant and wrote(grant)) or told)
<<end>>
    return {gone and 2 or why, cur and sub(cur, 1, 600) or '', left,
      ahead, head or '', cut or handed and 3 or 0, least or ''}
  end

  local function hold(fence, gap, n)
    record(owner, fence, gap and as .. '!' or as, linger)
    return {1, fence, gap and 1 or 0, 0, n}
  end

  if limit or state == 's' or state == 'S' or cur and <<shared "cur">> then
    if not share then sharing() end
    local answer = share(value, as, ttl, fences, h, how, limit, cur, grant, gone, join, refuse)
    if answer then return answer end
    return try(value, GONE, as, ttl, linger, fences, place, patience, h, how) -- it is free now
  end

  if cur == value and not gone then
    local mine = grant and <<owner "grant">> == owner and state ~= 'F' and state ~= 'f'
    local gap = mine and <<mark "grant">> == '!'
    if not mine or state == 'c' or state == 'C' then -- not claimed yet, or nobody knows
<<if .Node>>
      if h then
        local n, least = allow(h, told, fences, '')
        if not n then return refuse(3, nil, least) end
        later(K[1], ttl)
        cover(h)
        return hold(h, gap, n)
      end
<<end>>
      later(K[1], ttl)
      if state == 'c' and mine and fences == 1 then return hold(told, gap, 1) end
      return hold(mint(fences, told), gap, fences)
    end
<<if .Node>>
    if how == 'raise' and h ~= told then
      local least = floor(told)
      if h < told or not near(h, least) then return refuse(3, nil, least) end
      later(K[1], ttl)
      cover(h)
      grant, told = sub(grant, 1, 27) .. h .. sub(grant, 44, 58) .. as .. (gap and '!' or ''), h
      redis.call('SET', K[2], grant, 'KEEPTTL')
      linger = lasting(linger, h)
    end
<<end>>
    later(K[1], ttl)
    later(K[2], linger)
    local left = redis.call('PTTL', K[1])
<<if .Node>>
    if left > longest then left = longest end
<<end>>
    return {1, told, gap and 1 or 0, left, 1}
  end

  if cur or gone then
    join()
    return refuse(0)
  end

  -- Nobody holds the key, but somebody waits, or the last holder left no word.
  local kind = redis.call('TYPE', K[1]).ok
  if kind ~= 'none' then return {-1, kind} end
  local gap = unfinished(grant)
  if state == 'c' or state == 'C' then restore(grant, gap) end
  local mine = redis.call('ZSCORE', K[3], value)
  local e, why = first(mine and value, true)
  if e and e[1] ~= value then
    if why then
      join()
      return refuse(0, 1)
    end
    if e[10] then
      if not share then sharing() end
      usher(e, grant, gap, mine and value)
    else
      if not handover(e, told, grant and wrote(grant), gap) then mint(1, told) end
      cur, grant = e[1], redis.call('GET', K[2])
    end
    join()
    return refuse(0)
  elseif not e and why then
    join()
    return refuse(0, 2)
  end
  local fence, n = choose(h, told, fences, how)
  if not fence then
    join()
    return refuse(3, nil, n)
  end
  if mine then
    redis.call('ZREM', K[3], value)
    redis.call('HDEL', K[4], owner)
    handed = ttl -- the next in line did not see that
  end
  redis.call('SET', K[1], value, 'PX', ttl)
  return hold(fence, gap, n)
end
