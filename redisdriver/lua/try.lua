-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- try is one attempt to hold a key for ttl ms; refused, it takes a place in
-- line when there is one to note. h is the fence that it proposes, nil to have
-- it minted; how "raise" or "restore", see driver.Request. Answers
--   fence: granted, and nobody was in doubt about it
--   {1, fence, 1 when the holder before did not release, ms the lease lasts
--       or 0: as long as was asked, number of fences}
--   {0, value of the holder or "", ms left as PTTL says, places before,
--       first 59 bytes of grant, 1 when the search for the next was cut short,
--       what a proposal must be above, or ""}
--   {2, …} as 0: refused because this owner was released
--   {3, …} as 0: refused because the proposal is not above that, or too far
--   {4} the node does not vote  {5, ms} the longest TTL that it allows
--   {-1, type} the lock key holds something that is not a lock
function try(value, GONE, as, ttl, linger, fences, place, patience, h, how)
  local owner = string.sub(value, 1, 26)
  local got = redis.call('MGET', K[1], K[2], GONE)
  local cur, grant, gone = got[1], got[2], got[3]
  local state = grant and string.sub(grant, 59, 59)
  local told = grant and string.sub(grant, 28, 43)

  -- join takes the last place, or gives the one there is a sign of life.
  local function join()
    if place == '' or gone then return end
    if not redis.call('ZSCORE', K[3], value) then
      local last = redis.call('ZRANGE', K[3], -1, -1, 'WITHSCORES')[2] or '0'
      redis.call('ZADD', K[3], string.format('%.0f', last + 1), value)
    end
    redis.call('HSET', K[4], owner, string.sub(stamp, 1, 13) .. ' ' .. place)
    outlast(K[3], patience + LINGER)
    outlast(K[4], patience + LINGER)
  end

  local function refuse(why, cut, least)
    local ahead = redis.call('ZRANK', K[3], value) or redis.call('ZCARD', K[3])
--+     least = least or h and floor(told)
    return {gone and 2 or why, cur and string.sub(cur, 1, 600) or '', redis.call('PTTL', K[1]),
      ahead, grant and string.sub(grant, 1, 59) or '', cut and 1 or 0, least or ''}
  end

  local function hold(fence, gap, n)
    record(owner, fence, as, linger)
    return {1, fence, gap, 0, n}
  end

  if cur == value and not gone then
    local mine = grant and string.sub(grant, 1, 26) == owner and state ~= 'F'
    if not mine or state == 'c' or state == 'C' then -- not claimed yet, or nobody knows
--+       if h then
--+         local n, least = allow(h, told, fences, '')
--+         if not n then return refuse(3, nil, least) end
--+         later(K[1], ttl)
--+         cover(h)
--+         return hold(h, 0, n)
--+       end
      later(K[1], ttl)
      if state == 'c' and mine and fences == 1 then return hold(told, 0, 1) end
      return hold(mint(fences, told), 0, fences)
    end
--+     if how == 'raise' and h ~= told then
--+       local least = floor(told)
--+       if h < told or not near(h, least) then return refuse(3, nil, least) end
--+       later(K[1], ttl)
--+       cover(h)
--+       grant, told = string.sub(grant, 1, 27) .. h .. string.sub(grant, 44, 58) .. as, h
--+       redis.call('SET', K[2], grant, 'KEEPTTL')
--+       linger = lasting(linger, h)
--+     end
    later(K[1], ttl)
    later(K[2], linger)
    local left = redis.call('PTTL', K[1])
--+     if left > most then left = most end
    return {1, told, 0, left, 1}
  end

  if cur or gone then
    join()
    return refuse(0)
  end

  -- Nobody holds the key, but somebody waits, or the last holder left no word.
  local kind = redis.call('TYPE', K[1]).ok
  if kind ~= 'none' then return {-1, kind} end
  local gap = state and string.find(state, '[hmHM]') or 0
  if state == 'c' or state == 'C' then restore(grant) end
  grant = nil
  local mine = redis.call('ZSCORE', K[3], value)
  local e, why = first(mine and value, true)
  if e and e[1] ~= value then
    if why then
      join()
      return refuse(0, true)
    end
    handover(e, told)
    cur, grant = e[1], redis.call('GET', K[2])
    join()
    return refuse(0)
  elseif not e and why then
    join()
    return refuse(0, true)
  end
  local fence, n
--+   if h then
--+     local least
--+     n, least = allow(h, told, fences, how)
--+     if not n then
--+       join()
--+       return refuse(3, nil, least)
--+     end
--+     cover(h)
--+     fence = h
--+   end
  if not fence then fence, n = mint(fences, told), fences end
  redis.call('ZREM', K[3], value)
  redis.call('HDEL', K[4], owner)
  redis.call('SET', K[1], value, 'PX', ttl)
  return hold(fence, gap, n)
end
