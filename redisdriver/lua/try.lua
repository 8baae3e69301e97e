-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- try is one attempt to hold a key for ttl ms; refused, it takes a place in
-- line when there is one to note. Answers
--   fence: granted, and nobody was in doubt about it
--   {1, fence, 1 when the holder before did not release, ms the lease lasts
--       or 0: as long as was asked}
--   {0, value of the holder or "", ms left as PTTL says, places before,
--       first 59 bytes of grant, 1 when the search for the next was cut short}
--   {2, …} as 0: refused because this owner was released
--   {-1, type} the lock key holds something that is not a lock
function try(value, GONE, as, ttl, linger, fences, place, patience)
  local owner = string.sub(value, 1, 26)
  local got = redis.call('MGET', K[1], K[2], GONE)
  local cur, grant, gone = got[1], got[2], got[3]
  local state = grant and string.sub(grant, 59, 59)

  local function hold(fence, gap)
    record(owner, fence, as, linger)
    return {1, fence, gap, 0}
  end

  if cur == value and not gone then
    later(K[1], ttl)
    if not grant or string.sub(grant, 1, 26) ~= owner then return hold(mint(fences), 0) end
    local fence = string.sub(grant, 28, 43)
    if state == 'c' then return hold(fences > 1 and mint(fences) or fence, 0) end
    later(K[2], linger)
    return {1, fence, 0, redis.call('PTTL', K[1])}
  end

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

  local function refuse(cut)
    local ahead = redis.call('ZRANK', K[3], value) or redis.call('ZCARD', K[3])
    return {gone and 2 or 0, cur and string.sub(cur, 1, 600) or '', redis.call('PTTL', K[1]),
      ahead, grant and string.sub(grant, 1, 59) or '', cut and 1 or 0}
  end

  if cur or gone then
    join()
    return refuse()
  end

  -- Nobody holds the key, but somebody waits, or the last holder left no word.
  local kind = redis.call('TYPE', K[1]).ok
  if kind ~= 'none' then return {-1, kind} end
  local gap = (state == 'h' or state == 'm') and 1 or 0
  if state == 'c' then restore(grant) end
  grant = nil
  local mine = redis.call('ZSCORE', K[3], value)
  local e, why = first(mine and value, true)
  if e and e[1] ~= value then
    if why then
      join()
      return refuse(true)
    end
    handover(e)
    cur, grant = e[1], redis.call('GET', K[2])
    join()
    return refuse()
  elseif not e and why then
    join()
    return refuse(true)
  end
  local fence = mint(fences)
  redis.call('ZREM', K[3], value)
  redis.call('HDEL', K[4], owner)
  redis.call('SET', K[1], value, 'PX', ttl)
  return hold(fence, gap)
end
