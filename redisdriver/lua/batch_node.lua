-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/batch.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
local KEEP = 61000 -- ms the largest fence of a key is kept after its lease, see fences.lua
local keysAt, argsAt = 4, 2 -- where in KEYS and ARGV the request at hand begins
local lastMinted, reserved
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= 9007199254740991 then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
end
local life -- names this run of the server; nil until somebody asked
local longest -- ms, the longest lease; false: the node does not vote
local stored -- the record, and behind it the marks that fences.lua reads
local markOld, markMid, markCur, markAt
local minted -- no minted fence is larger; '' when nothing is known
local turned -- the mark is not stored as it is here
if ARGV[1] == '1' then -- nothing is made for a vote that comes alone, and one that is given back
local kind, at = ARGV[argsAt], argsAt
local value = ARGV[at + 1]
local lockKey, grantKey, queueKey = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
if kind == 'release' or kind == 'withdraw' then
  local got = call('MGET', lockKey, grantKey)
  local cur, was = got[1], got[2]
  if call('EXISTS', queueKey) == 0 then
    if cur == value and (kind == 'release' or not was or sub(was, 28, 43) <= ARGV[at + 2]) then
      call('DEL', lockKey)
      if was then call('SET', grantKey, sub(was, 1, 58) .. 'F', 'KEEPTTL') end
      return {1, life}
    end
    local mine = cur == value or was and sub(was, 1, 26) == sub(value, 1, 26)
    local among = cur and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' or was and sub(was, 1, 27) == 'SHAREDLEASESAREINHASPSHARE '
    if not mine and not among then return {0, life} end
  end
elseif kind == 'propose' then
  local ttl = ARGV[at + 2]
stored = call('MGET', KEYS[2], KEYS[3], KEYS[1])
local record, info = stored[1], call('INFO', 'server')
longest = record and sub(record, 1, 3) == 'ok ' and
  string.find(info, '\nrun_id:' .. sub(record, 4, 43) .. '\r', 1, true) and
  tonumber(sub(record, 45)) or false
life = longest and sub(record, 4, 19) or string.match(info, '\nrun_id:(' .. string.rep('%x', 16) .. ')')
if longest and longest > KEEP then KEEP = longest end
  if not longest then return {{4}, life} end
  if tonumber(ttl) > longest then return {{5, longest}, life} end
  local inWay, cur, was = kind ~= 'tryAny' and call('EXISTS', lockKey, queueKey, KEYS[keysAt + 4]), nil, nil
  if inWay == 0 then
    was = call('GET', grantKey)
  elseif inWay == 1 then
    local got = call('MGET', lockKey, grantKey)
    cur, was = got[1], got[2]
  end
  local taken = cur and cur ~= value and sub(cur, 1, 27) ~= 'SHAREDLEASESAREINHASPSHARE ' -- and nobody waits
  if taken or inWay == 0 and (not was or sub(was, 59, 59) == 'F') then
    local fence, known, least, n = kind == 'propose' and ARGV[at + 4], was and sub(was, 28, 43), nil, 1
    if fence then
local mark, mints = stored[2], stored[3]
if not stamp then look() end
minted = mints and string.format('%016.0f', counted('mark', mints)) or ''
if mark and (#mark ~= 67 or string.find(mark, '[^%d ]')) then counted('proposed', mark, true) end
if mark then
  markOld, markMid, markCur, markAt = sub(mark, 1, 16), sub(mark, 18, 33), sub(mark, 35, 50), sub(mark, 52)
else
  markOld, markMid, markCur, markAt, turned = stamp, stamp, stamp, stamp, true
end
local age = stamp - markAt
if age < 0 or age >= 20000000 then
  markOld, markMid, markAt, turned = age >= 2 * 20000000 and markCur or markMid, markCur, stamp, true
end
      least = known
if not least or least < markOld then least = markOld end
if minted > least then least = minted end
local near = fence <= stamp or
  tonumber(fence) <= math.min(9007199254740991 - 1048576, math.max(stamp + 4000000, least + 1048576))
      n = near and fence > least
    end
    if taken then
      local left, head = call('PTTL', lockKey), was and sub(was, 1, 59) or ''
      return {{0, sub(cur, 1, 600), left, 0, head, 0, least or ''}, life}
    elseif not n then
      return {{3, '', -2, 0, '', 0, least}, life}
    end
    if not turned and fence <= markCur then
      local state, keep = ARGV[at + 3], ttl + KEEP + (fence > stamp and math.ceil((fence - stamp) / 1000) or 0)
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', keep)
      return {fence, life}
    end
  end
end
end
local function votes()
  if longest == nil then
stored = call('MGET', KEYS[2], KEYS[3], KEYS[1])
local record, info = stored[1], call('INFO', 'server')
longest = record and sub(record, 1, 3) == 'ok ' and
  string.find(info, '\nrun_id:' .. sub(record, 4, 43) .. '\r', 1, true) and
  tonumber(sub(record, 45)) or false
life = longest and sub(record, 4, 19) or string.match(info, '\nrun_id:(' .. string.rep('%x', 16) .. ')')
if longest and longest > KEEP then KEEP = longest end
  end
  return longest
end
local function cover(fence)
  if not turned and fence <= markCur then return end
  local to = markCur
  if fence > to then to = string.format('%016.0f', fence + 1048576) end
  call('SET', KEYS[3], markOld .. ' ' .. markMid .. ' ' .. to .. ' ' .. markAt,
    'PX', string.format('%.0f', 86400000 / 2 + math.max(0, math.floor((to - stamp) / 1000))))
  markCur, turned = to, false
end
local function recall()
  if markCur then return end
local mark, mints = stored[2], stored[3]
if not stamp then look() end
minted = mints and string.format('%016.0f', counted('mark', mints)) or ''
if mark and (#mark ~= 67 or string.find(mark, '[^%d ]')) then counted('proposed', mark, true) end
if mark then
  markOld, markMid, markCur, markAt = sub(mark, 1, 16), sub(mark, 18, 33), sub(mark, 35, 50), sub(mark, 52)
else
  markOld, markMid, markCur, markAt, turned = stamp, stamp, stamp, stamp, true
end
local age = stamp - markAt
if age < 0 or age >= 20000000 then
  markOld, markMid, markAt, turned = age >= 2 * 20000000 and markCur or markMid, markCur, stamp, true
end
end
local function allow(fence, known, n, how, newest)
  recall()
  local least = known
if not least or least < markOld then least = markOld end
if minted > least then least = minted end
local near = fence <= stamp or
  tonumber(fence) <= math.min(9007199254740991 - 1048576, math.max(stamp + 4000000, least + 1048576))
  local low = fence <= least
  if how == 'restore' then
    low, n = known and fence < known, 1
  elseif how == 'raise' then
    low = fence < known
  end
  if low or not near then return nil, least end
  local above = newest and newest > least and newest or least
  return n == 1 and 1 or math.max(1, math.min(n, fence - above)), least
end
local function mint(n, newest)
  recall()
  if not newest or newest < markOld then newest = markOld end
  local above = newest and counted('grant', newest) or 0
  if not lastMinted or lastMinted + n > reserved or above > lastMinted then
    if not stamp then look() end
    local last, keep, now = call('GET', KEYS[1]), '86400000', tonumber(stamp)
    local from, where, text = now, 'clock', stamp
    if last and (#last ~= 16 or last >= stamp or string.find(last, '%D')) then -- the clock stands, or was set back
      from, where, text = counted('mark', last) + 1, 'mark', last
    end
    if above >= from then from, where, text = above + 1, 'grant', newest end -- a proposal was ahead of it
    if from > now then keep = string.format('%d', (from - now) / 1000 + 86400000) end
    local to = from + (n + ARGV[1] - 2)
    if to > 9007199254740991 then counted(where, text, true) end
    call('SET', KEYS[1], string.format('%d', to), 'PX', keep) -- may fail: then nothing is reserved
    lastMinted, reserved = from - 1, to
    minted = string.format('%016.0f', to)
  end
  lastMinted = lastMinted + n
  return string.format('%d', lastMinted)
end
local contended
local caller -- the inbox of the one that asks, if it is known
local handed, hintLater -- ms after which the next in the queue is to look, see queue.lua; nil: it knows by itself
local function slow()
  if not stamp then look() end
  local K -- the keys of the request at hand, see queue.lua
  local slowShared, ours, tryShared, releaseShared, serveFree, holder -- see held.lua and share.lua
local LINGER = 60000 -- ms a sidecar outlives what it belongs to
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    return call('PEXPIRE', key, px, 'GT')
  end
  local left = call('PTTL', key)
  return left >= 0 and left < tonumber(px) and call('PEXPIRE', key, px) or 0
end
local function outlast(key, px)
  if later(key, px) == 0 and call('PTTL', key) == -1 then call('PEXPIRE', key, px) end
end
local function entry(value, number, place)
  local contact, patience, claim, mode, proposes, limit, missed, inbox =
    string.match(place, '^(%d+) (%d+) (%d+) (%a)(P?)S?(%d*)(!?) (%S+)$')
  return {value = value, number = number, contact = tonumber(contact), patience = tonumber(patience), claim = claim,
    mode = mode, inbox = inbox, place = place, proposes = proposes, limit = tonumber(limit), missed = missed}
end
local function notify(e, px)
  local text = string.format('%03d', #e.value) .. e.value .. K.lock
  if px then text = '+' .. px .. ' ' .. text end
  local command = (e.mode == 'N' or e.mode == 'C') and 'SPUBLISH' or 'PUBLISH'
  local n = redis.pcall(command, e.inbox, text)
  if type(n) == 'table' then return nil end
  return n
end
local function strike(strikes, inbox, at)
  local others = {}
  for name, when in string.gmatch(strikes, '(%S+) (%d+);') do
    if name ~= inbox and #others < 50 then others[#others + 1] = name .. ' ' .. when .. ';' end
  end
  return inbox .. ' ' .. at .. ';' .. table.concat(others)
end
local function struck(strikes, e)
  if e.missed ~= '' then return true end
  if strikes == '' then return false end
  local _, last = string.find(strikes, e.inbox .. ' ', 1, true)
  local at = last and tonumber(string.match(strikes, '^%d+', last + 1))
  return at ~= nil and at <= ms and (e.contact <= at or e.contact > ms)
end
local function unstrike(strikes)
  if not caller or strikes == '' then return strikes end
  local from, to = string.find(strikes, caller .. ' ', 1, true)
  if not from then return strikes end
  strikes = sub(strikes, 1, from - 1) .. string.gsub(sub(strikes, to + 1), '^%d+;', '')
  call('HSET', K.places, '!', strikes)
  call('HDEL', K.places, '?')
  return strikes
end
local function beyond(known, at, me)
  local number, time = string.match(known or '', '^(%S+) (%d+)$')
  if not number or tonumber(time) > ms or tonumber(time) + 1000 < ms then return nil end
  local mine = me and call('ZSCORE', K.queue, me)
  if mine and tonumber(mine) <= tonumber(number) then return nil, true end
  local rank = call('ZCOUNT', K.queue, '-inf', number)
  return rank > at and rank or nil
end
local function first(me, hint, fits, from)
  local at, size, passed = from or 0, 1, nil
  for round = 1, 11 do
    local ids = call('ZRANGE', K.queue, at, at + size - 1, 'WITHSCORES')
    if #ids == 0 then
      if passed and round > 2 then call('HSET', K.places, '?', passed .. ' ' .. string.format('%.0f', ms)) end
      return nil
    end
    local owners = {}
    for i = 1, #ids, 2 do owners[#owners + 1] = sub(ids[i], 1, 26) end
    local places = call('HMGET', K.places, '!', '?', unpack(owners))
    local strikes, expired, owned, found, why = unstrike(places[1] or ''), {}, {}, nil, nil
    for i = 1, #owners do
      local e = places[i + 2] and entry(ids[2 * i - 1], ids[2 * i], places[i + 2])
      if ids[2 * i - 1] == me then
        found = e or {value = me}
      elseif not e or not e.contact or e.contact + e.patience <= ms then
        expired[#expired + 1] = ids[2 * i - 1]
        owned[#owned + 1] = owners[i]
      elseif struck(strikes, e) then
        local next, mine
        if not passed then next, mine = beyond(places[2], at, me) end
        if mine then return {value = me}, nil, at end
        at, passed = next or at + 1, ids[2 * i]
        if next then break end
      elseif not hint or e.mode == 'p' or fits and not fits(e.limit) then
        found = e
      else
        local n = notify(e)
        if n == 0 and (e.mode == 'c' or e.mode == 'C') then
          strikes = strike(strikes, e.inbox, ms)
          call('HSET', K.places, '!', strikes)
          at, passed = at + 1, ids[2 * i]
        else
          found, why = e, not n and 'mute' or nil
        end
      end
      if found then break end
    end
    if #expired > 0 then
      call('ZREM', K.queue, unpack(expired))
      call('HDEL', K.places, unpack(owned))
    end
    if found and size == 1 then return found, why, at end
    if passed and (found or round == 11) then call('HSET', K.places, '?', passed .. ' ' .. string.format('%.0f', ms)) end
    if found then return found, why, at end
    size = 100
  end
  return nil, 'more'
end
local function alive(number, known)
  known = known or call('HGET', K.places, '?')
  if known and tonumber(number) <= tonumber(string.match(known, '^%S+')) then call('HDEL', K.places, '?') end
end
local function placesAt(from, to)
  local ids, owners = call('ZRANGE', K.queue, from, to), {}
  if #ids == 0 then return ids, ids end
  for i = 1, #ids do owners[i] = sub(ids[i], 1, 26) end
  return ids, call('HMGET', K.places, unpack(owners))
end
local function hintLast()
  local ids, places = placesAt(-100, -1)
  local last
  for i = 1, #ids do
    if places[i] and (not last or places[i] > places[last]) then last = i end
  end
  local e = last and entry(ids[last], nil, places[last])
  if e and e.mode and e.mode ~= 'p' then notify(e) end
end
function hintLater(px)
  local e, _, at = first(false, false)
  if e and e.contact + e.patience / 2 <= ms then
    local ids, places = placesAt(at + 1, at + 3)
    for i = 1, #ids do
      local next = places[i] and entry(ids[i], nil, places[i])
      if next and next.contact and next.contact + next.patience / 2 > ms then
        e = next
        break
      end
    end
  end
  if e and e.mode ~= 'p' then notify(e, string.format('%d', math.min(px, 86400000))) end
end
local function hintFirst()
  local e, why = first(false, false)
  if e and e.mode ~= 'p' then notify(e) end
  if why == 'more' then hintLast() end
end
local function wrote(grant)
  local most = grant and sub(grant, 61, 76)
  return most == '' and sub(grant, 28, 43) or most
end
local function remember(grant, abandoned)
  local text, most = sub(grant, 1, 58) .. 'F', wrote(grant)
  if abandoned or most ~= sub(grant, 28, 43) then text = sub(grant, 1, 58) .. 'f' .. (abandoned and '!' or ' ') .. most end
  call('SET', K.grant, text, 'KEEPTTL')
end
local function record(value, ttl, fence, state)
  local grantKey, keep = K.grant, ttl + KEEP + (fence > stamp and math.ceil((fence - stamp) / 1000) or 0)
call('SET', grantKey, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', keep)
end
local function hold(value, ttl, fence, state)
  local lockKey, grantKey, keep = K.lock, K.grant, ttl + KEEP + (fence > stamp and math.ceil((fence - stamp) / 1000) or 0)
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', keep)
end
local function choose(r, least, newest)
  if r.fence then
    local n, floor = allow(r.fence, least, r.fences, r.how == 'restore' and r.how, newest)
    if n then cover(r.fence) end
    return n and r.fence, n or floor
  end
  return mint(r.fences, newest or least), r.fences
end
local function unfinished(grant)
  return grant and (string.find(sub(grant, 59, 59), '[hmHM]') ~= nil or sub(grant, 60, 60) == '!') or false
end
local function mintFor(newest)
  local ok, fence = pcall(mint, 1, newest)
  if ok then return fence end
  local text = type(fence) == 'table' and fence.err or fence
  if not string.find(text, 'HASPDATA', 1, true) then error(fence, 0) end
end
local function unqueue(value)
  call('ZREM', K.queue, value)
  call('HDEL', K.places, sub(value, 1, 26))
end
local function handOff(e, newest, most, abandoned)
  local none = string.rep('0', 16)
  local fence, state = newest or none, 'C'
  if e.proposes == '' then
    fence, state = mintFor(newest), 'c'
    if not fence then return false end
    most = fence
  end
  unqueue(e.value)
  hold(e.value, e.claim, fence, state .. (abandoned and '!' or ' ') .. (most or none) .. ' ' .. e.number .. ' ' .. e.place .. ' '
    .. sub(e.value, 28))
  handed = tonumber(e.claim)
  return true
end
local function unclaimed(place) return (string.gsub(place, '^(%d+ %d+ %d+ %aP?S?%d*) ', '%1! ')) end
local function restore(grant, abandoned)
  local number, place, label = string.match(grant, '^(%S+) (%d+ %d+ %d+ %aP?S?%d* %S+) (.*)$', 78)
  local value = sub(grant, 1, 26) .. ' ' .. label
  local e = entry(value, number, place)
  local fence = sub(grant, 28, 43)
  local px = KEEP + (fence > stamp and math.ceil((fence - stamp) / 1000) or 0)
  later(K.grant, px) -- takes no memory, and after it nothing is refused for that
  remember(grant, abandoned)
  call('ZADD', K.queue, number, value)
  call('HSET', K.places, sub(grant, 1, 26), unclaimed(place),
    '!', strike(call('HGET', K.places, '!') or '', e.inbox, sub(grant, 45, 57)))
  outlast(K.queue, e.patience + LINGER)
  outlast(K.places, e.patience + LINGER)
end
local function sound(grant)
  if grant and string.find(grant, '^%w+ %d+ %d+ [hmcsfHMCSF]') == 1 and sub(grant, 27, 27) == ' '
    and sub(grant, 44, 44) == ' ' and sub(grant, 58, 58) == ' ' then
    return grant
  end
  return false
end
local function join(r)
  if not r.place or r.gone then return end
  local mine = call('ZSCORE', K.queue, r.value)
  if mine then
    alive(mine)
  else
    local last = call('ZRANGE', K.queue, -1, -1, 'WITHSCORES')[2] or '0'
    call('ZADD', K.queue, string.format('%.0f', counted('queue', last) + 1), r.value)
  end
  call('HSET', K.places, sub(r.value, 1, 26), sub(stamp, 1, 13) .. ' ' .. r.place)
  outlast(K.queue, r.patience + LINGER)
  outlast(K.places, r.patience + LINGER)
end
local function refuse(r, why, cut, least)
  local ahead = call('ZRANK', K.queue, r.value) or call('ZCARD', K.queue)
  local cur, left, grant = r.cur, call('PTTL', K.lock), r.grant
  local head = grant and sub(grant, 1, 59)
  if ours then cur, left, head = holder(r.limit, left) end
  if r.fence and not least then
    local newest = grant and sub(grant, 28, 43)
    if r.limit then newest = ours and ours.wrote or wrote(grant) end
    local _
    _, least = allow(r.fence, newest, 1)
  end
  cut = cut or handed and 3 or 0
  return {r.gone and 2 or why, cur and sub(cur, 1, 600) or '', left, ahead, head or '', cut, least or ''}
end
local function granted(r, fence, abandoned, n, write)
  write(r.value, r.ttl, fence, abandoned and r.state .. '!' or r.state)
  return {1, fence, abandoned and 1 or 0, 0, n}
end
local function asAgain(r, grant)
  local ttl, state = r.ttl, grant and sub(grant, 59, 59)
  local newest = grant and sub(grant, 28, 43)
  local mine = grant and sub(grant, 1, 26) == sub(r.value, 1, 26) and state ~= 'F' and state ~= 'f'
  local abandoned = mine and sub(grant, 60, 60) == '!'
  if not mine or state == 'c' or state == 'C' then -- not claimed yet, or nobody knows
    if r.fence then
      local n, least = allow(r.fence, newest, r.fences)
      if not n then return refuse(r, 3, nil, least) end
      later(K.lock, ttl)
      cover(r.fence)
      return granted(r, r.fence, abandoned, n, record)
    end
    later(K.lock, ttl)
    if state == 'c' and mine and r.fences == 1 then return granted(r, newest, abandoned, 1, record) end
    return granted(r, mint(r.fences, newest), abandoned, r.fences, record)
  end
  local keep = ttl + KEEP
  if r.how == 'raise' and r.fence ~= newest then
    local n, least = allow(r.fence, newest, 1, 'raise')
    if not n then return refuse(r, 3, nil, least) end
    later(K.lock, ttl)
    cover(r.fence)
    newest = r.fence
    call('SET', K.grant, sub(grant, 1, 27) .. newest .. sub(grant, 44, 58) .. r.state .. (abandoned and '!' or ''), 'KEEPTTL')
    keep = keep + (newest > stamp and math.ceil((newest - stamp) / 1000) or 0)
  end
  later(K.lock, ttl)
  later(K.grant, keep)
  local left = call('PTTL', K.lock)
  if left > longest then left = longest end
  return {1, newest, abandoned and 1 or 0, left, 1}
end
local function try(r)
  ours, r.fences = nil, tonumber(r.fences or 1)
  caller = r.place and string.match(r.place, '%S+$')
  local got = call('MGET', K.lock, K.grant, K.gone)
  local cur, grant = got[1], got[2]
  if grant and not sound(grant) then counted('grant', grant, true) end
  r.cur, r.grant, r.gone = cur, grant, got[3]
  local state = grant and sub(grant, 59, 59)
  if r.limit or state == 's' or state == 'S' or cur and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
    if not tryShared then slowShared() end
    return tryShared(r) or try(r) -- it is free now
  end
  if cur == r.value and not r.gone then return asAgain(r, grant) end
  if cur or r.gone then
    join(r)
    return refuse(r, 0)
  end
  local kind = call('TYPE', K.lock).ok
  if kind ~= 'none' then return {-1, kind} end
  local newest, abandoned = grant and sub(grant, 28, 43), unfinished(grant)
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
local function release(r)
  local value, owner = r.value, sub(r.value, 1, 26)
  ours = nil
  local got = call('MGET', K.lock, K.grant) -- nothing where it is no string: not ours
  local cur, grant = got[1], sound(got[2])
  local state = grant and sub(grant, 59, 59) or ''
  local pending = grant and sub(grant, 1, 26) == owner and string.find(state, '[cC]') -- never came for it
  if state == 's' or state == 'S' or cur and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
    if not tryShared then slowShared() end
    return releaseShared(r, cur, grant)
  end
  local abandoned = grant and sub(grant, 60, 60) == '!'
  if cur == value then
    local newest = grant and sub(grant, 28, 43)
    if not pending then
      if r.ending == 'unclaimed' or r.upTo and newest and newest > r.upTo then return 0 end
      abandoned = r.ending == 'unfinished' and grant or abandoned and r.ending == 'unused'
    end
    local keep = grant
    call('DEL', K.lock, keep and K.lock or K.grant)
    if keep then remember(grant, abandoned) end
    if r.tombstone then call('SET', K.gone, '', 'PX', r.tombstone) end
    if call('EXISTS', K.queue) == 0 then return 1 end
    if not votes() then return 1 end
    local e, why = first(false, true)
    if e and not why then
      if e.limit then
        if not tryShared then slowShared() end
        why = serveFree(e, grant, abandoned, false)
      elseif not handOff(e, newest, wrote(grant), abandoned) then
        why = 'mute'
      end
    end
    if why == 'more' and not handed then hintLast() end
    return why == 'mute' and 3 or 1
  end
  local rank = call('ZRANK', K.queue, value)
  if rank or pending then unqueue(value) end
  if pending then remember(grant, abandoned) end -- or its place would come back
  if r.tombstone then redis.pcall('SET', K.gone, '', 'PX', r.tombstone) end
  if (rank == 0 or pending) and votes() then hintFirst() end
  return (rank or pending) and 2 or 0
end
function slowShared()
local FREE = 4398046511104 -- 2^42; no limit is above a quarter of it
local function smallest()
  local front = call('ZRANGE', K.room, 0, 0, 'WITHSCORES')
  local limit = tonumber(front[2] or FREE)
  return limit < FREE / 2 and limit or math.huge, #front > 0
end
local function opens(limit, n, least)
  local room = limit and math.min(least, limit > 0 and limit or math.huge)
  local at = room and n < math.huge and n >= room and n - room or -1
  local last = call('ZRANGE', K.shares, at, at, 'WITHSCORES')
  return last[1], tonumber(last[2])
end
local function take(limit)
  local back = call('ZRANGE', K.room, -1, -1, 'WITHSCORES')
  local number = 0
  if back[2] then number = tonumber(back[2]) > FREE / 2 and back[1] or call('ZCARD', K.room) end
  call('ZADD', K.room, string.format('%.0f', limit), number)
  return number
end
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
  call('HSET', K.held, value, l.fence .. ' ' .. l.since .. ' ' .. l.state .. ' ' .. limit .. ' ' .. l.slot .. ' ' .. mark .. place)
end
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
        places[#places + 1], places[#places + 2] = sub(over[i], 1, 26), unclaimed(place)
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
local function survey(cur, grant, abandoned)
  local side = sub(K.queue, 12)
  K.shares, K.held, K.room = 'hasp.shares:' .. side, 'hasp.held:' .. side, 'hasp.room:' .. side
  local state = grant and sub(grant, 59, 59)
  local was = state == 's' or state == 'S'
  ours = {n = 0, least = math.huge, newest = grant and sub(grant, 28, 43), wrote = wrote(grant), mark = abandoned,
    mute = state == 'S', px = 0, grant = grant, stale = false}
  local done
  if cur and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
    ours.lock = cur
    if call('HGET', K.held, '!') ~= sub(cur, 28) then
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
local function save()
  if ours.alone or not ours.stale and ours.px == 0 then return end
  local zero, px = string.rep('0', 16), ours.px
  local newest, most = ours.newest or zero, ours.wrote or zero
  local text = 'SHAREDLEASESAREINHASPSHARE ' .. newest .. ' ' .. sub(stamp, 1, 13) .. ' ' .. (ours.mute and 'S' or 's')
    .. (ours.mark and '!' or ' ') .. most
  if ours.lock then
    if px > 0 then later(K.lock, px) end
    if not ours.grant then px = math.max(px, call('PTTL', K.lock)) end
    if ours.stale and ours.grant then
      call('SET', K.grant, text, 'KEEPTTL')
    elseif ours.stale then
      call('SET', K.grant, text, 'PX', px + KEEP + (newest > stamp and math.ceil((newest - stamp) / 1000) or 0))
    end
    if px > 0 then
      later(K.grant, px + KEEP + (newest > stamp and math.ceil((newest - stamp) / 1000) or 0))
      outlast(K.shares, px + KEEP)
      outlast(K.held, px + KEEP)
      if ours.room then outlast(K.room, px + KEEP) end
    end
  elseif ours.grant and ours.n > 0 then -- more to reap than one script should
    call('SET', K.grant, text, 'KEEPTTL')
  elseif ours.grant and true then
    remember(text, ours.mark)
  elseif ours.grant then
    call('DEL', K.grant)
  end
end
local function add(value, fence, state, limit, px, since, place)
  if not ours.lock then
    ours.lock = 'SHAREDLEASESAREINHASPSHARE ' .. stamp
    call('SET', K.lock, ours.lock, 'PX', px)
    call('DEL', K.shares, K.held, K.room)
  end
  if ours.n == 0 then call('HSET', K.held, '!', sub(ours.lock, 28)) end
  local l = {fence = fence, since = since or sub(stamp, 1, 13), state = state, limit = limit, slot = 0,
    mark = ours.mark, place = place or ''}
  if limit > 0 then
    l.slot = take(limit)
    ours.mark, ours.room = false, true
  end
  call('ZADD', K.shares, string.format('%.0f', ms + px), value)
  write(value, l)
  ours.n, ours.least, ours.px = ours.n + 1, math.min(ours.least, limit > 0 and limit or math.huge), math.max(ours.px, px)
  if not ours.newest or fence > ours.newest then ours.newest = fence end
  ours.mute, ours.stale = ours.mute or (state == 'm' or state == 'M'), true
  return l
end
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
local function serveMore()
  local e, why = serve(false)
  if why == 'more' and not handed then hintLast() end
  return e, why
end
function serveFree(e, grant, abandoned, me)
  survey(nil, nil, abandoned)
  ours.newest, ours.wrote, ours.grant = grant and sub(grant, 28, 43), wrote(grant), call('EXISTS', K.grant) == 1
  local _, why = nil, 'mute'
  if handTo(e) then _, why = serve(me) end
  save()
  return why
end
function holder(limit, left)
  if ours.alone then return ours.alone, left, sub(call('GET', K.grant), 1, 59) end
  if not ours.lock then return nil, left, '' end
  local last, at = opens(limit, ours.n, ours.least)
  local text = ours.n < math.huge and last and call('HGET', K.held, last)
  if not text then return ours.lock, left, '' end
  if left >= 0 then left = math.max(1, at - ms) end
  return last, left, sub(last, 1, 27) .. string.match(text, '^%d+ %d+ %a %d+ %d+')
end
local function shares(l, left, n)
  if left > longest then left = longest end
  return {1, l.fence, l.mark and 1 or 0, left, n, tonumber(l.slot)}
end
local function standing(r, l)
  local value, ttl = r.value, r.ttl
  local ends = tonumber(call('ZSCORE', K.shares, value) or 0)
  if ends <= ms and call('PTTL', K.lock) ~= -1 then return nil end
  if r.how == 'convert' and (l.pending or r.fence and l.fence < r.fence) then return refuse(r, 0) end
  local n, changed = 1, l.pending
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
  later(K.lock, ttl) -- takes no memory, and after it nothing is refused for that
  if r.fence and (l.pending or raised) then
    cover(r.fence)
    l.fence, l.state, changed = r.fence, l.pending and 'C' or l.state, true
  end
  if l.pending then
    if not r.fence and not (l.state == 'c' and r.fences == 1) then
      l.fence, n = mint(r.fences, ours.newest), r.fences
    end
    l.state, l.place, l.pending = r.state, '', false
    if l.limit == 0 then l.mark = ours.mark end -- one beside it may not have finished since
    ours.mute = ours.mute or (r.state == 'm' or r.state == 'M')
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
local function convert(r, grant)
  local value, state, fence = r.value, grant and sub(grant, 59, 59), grant and sub(grant, 28, 43)
  if not state or sub(grant, 1, 26) ~= sub(value, 1, 26) or not string.find(state, '[hmHM]') or r.fence and fence < r.fence then
    ours = nil
    return refuse(r, 0)
  end
  later(K.lock, r.ttl) -- takes no memory, and after it nothing is refused for that
  local left = call('PTTL', K.lock)
  if left < 0 then left = r.ttl end
  ours.lock, ours.mark = 'SHAREDLEASESAREINHASPSHARE ' .. stamp, false
  call('SET', K.lock, ours.lock, 'KEEPTTL')
  call('DEL', K.shares, K.held, K.room)
  local l = add(value, fence, state, r.limit, left, sub(grant, 45, 57))
  serveMore()
  save()
  return shares(l, left, 1)
end
function tryShared(r)
  local value, cur, grant, gone, limit = r.value, r.cur, r.grant, r.gone, tonumber(r.limit)
  r.ttl, r.limit = tonumber(r.ttl), limit
  local state = grant and sub(grant, 59, 59)
  local abandoned
  if not cur or sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then abandoned = unfinished(grant) end
  local done = survey(cur, grant, abandoned)
  if cur and sub(cur, 1, 27) ~= 'SHAREDLEASESAREINHASPSHARE ' then
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
function releaseShared(r, cur, grant)
  local value, ending = r.value, r.ending
  local alone = cur and sub(cur, 1, 27) ~= 'SHAREDLEASESAREINHASPSHARE '
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
    if ours.mark and ours.stale and grant and sub(grant, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
      call('SET', K.grant, sub(grant, 1, 59) .. '!' .. sub(grant, 61), 'KEEPTTL')
    end
    ours = nil
    if rank == 0 then hintFirst() end
    return result
  end
  if ours.n == 0 and ours.lock then vacate() end
  local e, why
  local may = done and call('EXISTS', K.queue) == 1
  may = may and votes()
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
end
function contended(kind, at)
  K = {lock = KEYS[keysAt], grant = KEYS[keysAt + 1], queue = KEYS[keysAt + 2], places = KEYS[keysAt + 3], gone = KEYS[keysAt + 4]}
  if kind == 'try' then return try({
    value = ARGV[at + 1],
    ttl = ARGV[at + 2],
    state = ARGV[at + 3],
    keep = ARGV[at + 4]}) end
  if kind == 'tryAny' then return try({
    value = ARGV[at + 1],
    ttl = ARGV[at + 2],
    state = ARGV[at + 3],
    fences = ARGV[at + 4],
    fence = ARGV[at + 5] ~= '' and ARGV[at + 5] or nil,
    how = ARGV[at + 6],
    limit = ARGV[at + 7] ~= '' and ARGV[at + 7] or nil,
    place = ARGV[at + 8] ~= '' and ARGV[at + 8] or nil,
    patience = ARGV[at + 9]}) end
  if kind == 'release' then return release({
    value = ARGV[at + 1]}) end
  if kind == 'propose' then return try({
    value = ARGV[at + 1],
    ttl = ARGV[at + 2],
    state = ARGV[at + 3],
    fence = ARGV[at + 4]}) end
  if kind == 'withdraw' then return release({
    value = ARGV[at + 1],
    upTo = ARGV[at + 2]}) end
  return release({
    value = ARGV[at + 1],
    tombstone = ARGV[at + 2] ~= '' and ARGV[at + 2] or nil,
    upTo = ARGV[at + 3] ~= '' and ARGV[at + 3] or nil,
    ending = ARGV[at + 4] ~= '' and ARGV[at + 4] or nil})
end
end
local function request()
local kind, at = ARGV[argsAt], argsAt
local value = ARGV[at + 1]
local lockKey, grantKey, queueKey = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
if kind == 'release' or kind == 'withdraw' then
  local got = call('MGET', lockKey, grantKey)
  local cur, was = got[1], got[2]
  if call('EXISTS', queueKey) == 0 then
    if cur == value and (kind == 'release' or not was or sub(was, 28, 43) <= ARGV[at + 2]) then
      call('DEL', lockKey)
      if was then call('SET', grantKey, sub(was, 1, 58) .. 'F', 'KEEPTTL') end
      return 1
    end
    local mine = cur == value or was and sub(was, 1, 26) == sub(value, 1, 26)
    local among = cur and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' or was and sub(was, 1, 27) == 'SHAREDLEASESAREINHASPSHARE '
    if not mine and not among then return 0 end
  end
elseif kind ~= 'releaseAny' then
  local ttl = ARGV[at + 2]
  votes()
  if not longest then return {4} end
  if tonumber(ttl) > longest then return {5, longest} end
  local inWay, cur, was = kind ~= 'tryAny' and call('EXISTS', lockKey, queueKey, KEYS[keysAt + 4]), nil, nil
  if inWay == 0 then
    was = call('GET', grantKey)
  elseif inWay == 1 then
    local got = call('MGET', lockKey, grantKey)
    cur, was = got[1], got[2]
  end
  local taken = cur and cur ~= value and sub(cur, 1, 27) ~= 'SHAREDLEASESAREINHASPSHARE ' -- and nobody waits
  if taken or inWay == 0 and (not was or sub(was, 59, 59) == 'F') then
    local fence, known, least, n = kind == 'propose' and ARGV[at + 4], was and sub(was, 28, 43), nil, 1
    if fence then
      n, least = allow(fence, known, 1)
    end
    if taken then
      local left, head = call('PTTL', lockKey), was and sub(was, 1, 59) or ''
      return {0, sub(cur, 1, 600), left, 0, head, 0, least or ''}
    elseif not n then
      return {3, '', -2, 0, '', 0, least}
    end
      if fence then cover(fence) end
      fence = fence or mint(1, known)
      local state, keep = ARGV[at + 3], ttl + KEEP + (fence > stamp and math.ceil((fence - stamp) / 1000) or 0)
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', keep)
      return fence
  end
end
  if not contended then slow() end
  return contended(kind, at)
end
local function run()
  caller, handed = nil, nil
  local answer = request()
  if handed then hintLater(handed) end
  return answer
end
if ARGV[1] == '1' then return {run(), life} end
local keys = {try = 5, propose = 5, tryAny = 5, release = 4, withdraw = 4, releaseAny = 5}
local fields = {try = 4, propose = 4, tryAny = 9, release = 1, withdraw = 2, releaseAny = 4}
local out = {}
for i = 1, tonumber(ARGV[1]) do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[argsAt]
  keysAt, argsAt = keysAt + keys[kind], argsAt + 1 + fields[kind]
end
out[#out + 1] = life
return out
