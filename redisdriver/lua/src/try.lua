-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- join takes the last place, or gives the one there is a sign of life.
local function join(r)
  if not r.place or r.gone then return end
  local mine = call('ZSCORE', K.queue, r.value)
  if mine then
    alive(mine)
  else
    local last = call('ZRANGE', K.queue, -1, -1, 'WITHSCORES')[2] or '0'
    call('ZADD', K.queue, string.format('%.0f', counted('queue', last) + 1), r.value)
  end
  call('HSET', K.places, <<owner "r.value">>, <<millis "stamp">> .. ' ' .. r.place)
  outlast(K.queue, r.patience + LINGER)
  outlast(K.places, r.patience + LINGER)
end

local function refuse(r, why, cut, least)
  local ahead = call('ZRANK', K.queue, r.value) or call('ZCARD', K.queue)
  local cur, left, grant = r.cur, call('PTTL', K.lock), r.grant
  local head = grant and <<head "grant">>
  if ours then cur, left, head = holder(r.limit, left) end
<<if .Node>>
  if r.fence and not least then
    local newest = grant and <<fence "grant">>
    if r.limit then newest = ours and ours.wrote or wrote(grant) end
    local _
    _, least = allow(r.fence, newest, 1)
  end
<<end>>
  cut = cut or handed and 3 or 0
  return <<refusal "r.gone and 2 or why" "cur and sub(cur, 1, 600) or ''" "left" "ahead" "head or ''" "cut" "least or ''">>
end

-- granted notes the grant of one that has the key alone, and answers it.
local function granted(r, fence, abandoned, n, write)
  write(r.value, r.ttl, fence, abandoned and r.state .. '!' or r.state)
  return {1, fence, abandoned and 1 or 0, 0, n}
end

-- asAgain answers the holder: a repeated request, or the claim of a handoff.
local function asAgain(r, grant)
  local ttl, state = r.ttl, grant and <<state "grant">>
  local newest = grant and <<fence "grant">>
  local mine = grant and <<owner "grant">> == <<owner "r.value">> and state ~= 'F' and state ~= 'f'
  local abandoned = mine and <<mark "grant">> == '!'
  if not mine or state == 'c' or state == 'C' then -- not claimed yet, or nobody knows
<<if .Node>>
    if r.fence then
      local n, least = allow(r.fence, newest, r.fences)
      if not n then return refuse(r, 3, nil, least) end
      later(K.lock, ttl)
      cover(r.fence)
      return granted(r, r.fence, abandoned, n, record)
    end
<<end>>
    later(K.lock, ttl)
    if state == 'c' and mine and r.fences == 1 then return granted(r, newest, abandoned, 1, record) end
    return granted(r, mint(r.fences, newest), abandoned, r.fences, record)
  end
  local keep = ttl + KEEP
<<if .Node>>
  if r.how == 'raise' and r.fence ~= newest then
    local n, least = allow(r.fence, newest, 1, 'raise')
    if not n then return refuse(r, 3, nil, least) end
    later(K.lock, ttl)
    cover(r.fence)
    newest = r.fence
    call('SET', K.grant, sub(grant, 1, 27) .. newest .. sub(grant, 44, 58) .. r.state .. (abandoned and '!' or ''), 'KEEPTTL')
    keep = <<lasting "keep" "newest">>
  end
<<end>>
  later(K.lock, ttl)
  later(K.grant, keep)
  local left = call('PTTL', K.lock)
<<if .Node>>
  if left > longest then left = longest end
<<end>>
  return {1, newest, abandoned and 1 or 0, left, 1}
end

-- try is one attempt to hold a key, see layout.go for its fields; refused, it takes a
-- place in the queue when there is one to note. Answers
--   fence: granted, and nobody was in doubt about it
--   {1, fence, 1 when a previous holder did not finish, ms the lease lasts
--       or 0: as long as was asked, number of fences, slot if it is shared}
--   {0, value of a holder or "", ms left as PTTL says, places before,
--       first 59 bytes of grant, and " <limit> <slot>" of one that is shared,
--       1 when the next could not get a hint, 2 when the search for it was cut short,
--       3 when this request handed the key over, what a proposal must be above,
--       or ""}
--   {2, …} as 0: refused because this owner was released
--   {3, …} as 0: refused because the proposal is not above that, or too far
--   {4} the node does not vote  {5, ms} the longest TTL that it allows
--   {-1, type} the lock key holds something that is not a lock
local function try(r)
  ours, r.fences = nil, tonumber(r.fences or 1)
  caller = r.place and string.match(r.place, '%S+$')
  local got = call('MGET', K.lock, K.grant, K.gone)
  local cur, grant = got[1], got[2]
  if grant and not sound(grant) then counted('grant', grant, true) end
  r.cur, r.grant, r.gone = cur, grant, got[3]
  local state = grant and <<state "grant">>

  if r.limit or state == 's' or state == 'S' or cur and <<shared "cur">> then
    if not tryShared then slowShared() end
    return tryShared(r) or try(r) -- it is free now
  end
  if cur == r.value and not r.gone then return asAgain(r, grant) end
  if cur or r.gone then
    join(r)
    return refuse(r, 0)
  end

  -- Nobody holds the key, but somebody waits, or the last holder left no word.
  local kind = call('TYPE', K.lock).ok
  if kind ~= 'none' then return {-1, kind} end
  local newest, abandoned = grant and <<fence "grant">>, unfinished(grant)
  if state == 'c' or state == 'C' then restore(grant, abandoned) end
  local mine = call('ZSCORE', K.queue, r.value)
  local me = mine and r.value
  local e, why = first(me, true)
  if e and e.value ~= r.value then
    if not why and e.limit then
      if not tryShared then slowShared() end
      serveFree(e, grant, abandoned, me)
    elseif not why then
      if not handOff(e, newest, wrote(grant), abandoned) then mint(1, newest) end
      r.cur, r.grant = e.value, call('GET', K.grant)
    end
    join(r)
    return refuse(r, 0, why and 1)
  elseif not e and why then
    join(r)
    return refuse(r, 0, 2)
  end
  local fence, n = choose(r, newest)
  if not fence then
    join(r)
    return refuse(r, 3, nil, n)
  end
  if mine then
    unqueue(r.value)
    handed = r.ttl -- the next in the queue did not see that
  end
  return granted(r, fence, abandoned, n, hold)
end
