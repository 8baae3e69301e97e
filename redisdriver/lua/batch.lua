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
local keysAt, argsAt = 2, 2 -- where in KEYS and ARGV the request at hand begins
local lastMinted, reserved
local inWay, seen -- of a request that comes alone: how many keys are in its way; of a release: lock and grant
if ARGV[1] == '1' then -- nothing is made for what comes alone and nobody is in the way of
local kind, at = ARGV[argsAt], argsAt
local value = ARGV[at + 1]
local lockKey, grantKey, queueKey = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
if kind == 'try' then
  inWay = call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])
  if inWay == 0 then
    local ttl, state, keep = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    local fence
if redis.REDIS_VERSION_NUM then -- since 7.0; GET beside KEEPTTL is older
  if not stamp then look() end
  local last = call('SET', KEYS[1], stamp, 'KEEPTTL', 'GET')
  if last and #last == 16 and last < stamp and sub(last, 1, 7) == sub(stamp, 1, 7) and not string.find(last, '%D') then
    fence = stamp
  elseif last then
    call('SET', KEYS[1], last, 'KEEPTTL')
  else
    call('DEL', KEYS[1])
  end
end
    if fence then
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', keep)
      return {fence}
    end
  end
elseif kind == 'release' then
  seen = call('MGET', lockKey, grantKey) -- nothing where it is no string: not ours
  inWay = seen[1] == value and call('EXISTS', queueKey)
  if inWay == 0 and not (seen[2] and string.find(seen[2], '^v[1-9]')) then
    call('DEL', lockKey, grantKey)
    return {1}
  end
end
end
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= 9007199254740991 then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
end
local function mint(n, newest)
  local above = newest and counted('grant', newest) or 0
  if not lastMinted or lastMinted + n > reserved or above > lastMinted then
    if not stamp then look() end
    local fence
    if n == 1 and ARGV[1] == '1' and not lastMinted and (not newest or newest < stamp) then
if redis.REDIS_VERSION_NUM then -- since 7.0; GET beside KEEPTTL is older
  if not stamp then look() end
  local last = call('SET', KEYS[1], stamp, 'KEEPTTL', 'GET')
  if last and #last == 16 and last < stamp and sub(last, 1, 7) == sub(stamp, 1, 7) and not string.find(last, '%D') then
    fence = stamp
  elseif last then
    call('SET', KEYS[1], last, 'KEEPTTL')
  else
    call('DEL', KEYS[1])
  end
end
    end
    if fence then
      lastMinted = tonumber(fence)
      reserved = lastMinted
      return fence
    end
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
  end
  lastMinted = lastMinted + n
  return string.format('%d', lastMinted)
end
local contended
local caller -- the inbox of the one that asks, if it is known
local handed, hintLater -- ms after which the next in the queue is to look, see queue.lua; nil: it knows by itself
local follower -- who that is, where it was seen, see first.lua
local function slow()
  if not stamp then look() end
  local try, release
  local serving, entry, strike, notify, serve, serveMore, hintFirst, hintLast
  local sharing, lease, smallest, opens, expire
  local K, known -- the keys of the request at hand, see queue.lua, and what is known of them, see key.lua
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
local function alive(number, upTo)
  upTo = upTo or call('HGET', K.places, '?')
  if upTo and tonumber(number) <= tonumber(string.match(upTo, '^%S+')) then call('HDEL', K.places, '?') end
end
local function unqueue(value)
  call('ZREM', K.queue, value)
  call('HDEL', K.places, sub(value, 1, 26))
end
local function sound(grant)
  if grant and string.find(grant, '^%w+ %d+ %d+ [hmcsfHMCSF]') == 1 and sub(grant, 27, 27) == ' '
    and sub(grant, 44, 44) == ' ' and sub(grant, 58, 58) == ' ' then
    return grant
  end
  return false
end
local function fits(limit)
  return known.n == 0 or limit ~= nil and known.n < known.least and (limit == 0 or known.n < limit)
end
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
    local state = grant and sub(grant, 1, 26) == sub(value, 1, 26) and sub(grant, 59, 59)
    return {fence = known.newest, state = state, mark = known.mark, place = '', pending = state == 'c' or state == 'C',
      enters = state == 'c' and string.find(grant, '^%S+ %d+ %d+ %d+ %aE', 78) ~= nil, unknown = not state or state == 'F' or state == 'f'}
  end
end
local function write(value, l, px)
  if not known.newest or l.fence > known.newest then known.newest = l.fence end
  if l.limit then
    local limit, mark = string.format('%.0f', l.limit), l.mark and 1 or 0
    local place = l.place ~= '' and ' ' .. l.place or ''
    call('HSET', K.held, value,
      l.fence .. ' ' .. l.since .. ' ' .. l.state .. ' ' .. limit .. ' ' .. l.slot .. ' ' .. mark .. place)
    known.mute, known.stale = known.mute or (l.state == 'm' or l.state == 'M'), true
  else
    local state = l.state .. (l.mark and '!' or '')
    if l.place ~= '' then
      local most = l.state == 'c' and l.fence or known.wrote or '0000000000000000'
      state = l.state .. (l.mark and '!' or ' ') .. most .. ' ' .. l.place .. ' ' .. sub(value, 28)
    end
    local since = l.since or sub(known.grant, 45, 57)
    known.grant = sub(value, 1, 26) .. ' ' .. l.fence .. ' ' .. since .. ' ' .. state
    known.stale = false
    call('SET', K.grant, known.grant, 'PX', px + KEEP + (l.fence > stamp and math.ceil((l.fence - stamp) / 1000) or 0))
  end
end
local function give(value, fence, state, limit, px, place, since)
  local l = {fence = fence, since = since or sub(stamp, 1, 13), state = state, limit = limit, mark = known.mark, place = place or ''}
  if not known.lock then
    known.asks = ''
    known.lock, known.shared = limit and 'SHAREDLEASESAREINHASPSHARE ' .. stamp or value, limit ~= nil
    call('SET', K.lock, known.lock, 'PX', px)
    if limit then call('DEL', K.shares, K.held, K.room) end
  end
  if limit then
    sharing()
    if known.n == 0 then call('HSET', K.held, '!', sub(known.lock, 28)) end
    l.slot = 0
    if limit > 0 then -- the smallest free one
      local back = call('ZRANGE', K.room, -1, -1, 'WITHSCORES')
      if back[2] then l.slot = tonumber(back[2]) > 4398046511104 / 2 and tonumber(back[1]) or call('ZCARD', K.room) end
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
local function vacate()
  call('DEL', K.lock, K.shares, K.held, K.room, known.grant and K.lock or K.grant) -- one that is no grant would stay
  known.lock, known.shared, known.n, known.least, known.stale = false, false, 0, math.huge, true
end
local function leave(l, ending)
  local left = l.mark
  if not l.pending or l.enters then left = l.over or ending == 'unfinished' or ending == 'unused' and l.mark end
  if not l.limit then
    known.mark = left
  elseif l.limit > 0 then
    call('ZADD', K.room, 4398046511104 - l.slot, l.slot)
    known.mark, known.stale = known.mark or left, known.stale or left
  end
end
local function survey(lock, grant, leaving, declines)
  local state = grant and sub(grant, 59, 59) or ''
  local most = grant and sub(grant, 61, 76)
  known = {lock = lock, grant = grant, shared = lock and sub(lock, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ', n = 0, least = math.huge,
    newest = grant and sub(grant, 28, 43), wrote = most == '' and sub(grant, 28, 43) or most,
    mark = grant and sub(grant, 60, 60) == '!', mute = state == 'S', px = 0, stale = false, asks = ''}
  if lock and (known.shared and string.find(state, '[sS]') or string.find(state, '[hmHM]') and sub(lock, 1, 26) == sub(grant, 1, 26)) then
    known.asks = sub(grant, 77)
  end
  if known.shared and call('HGET', K.held, '!') ~= sub(lock, 28) then
    known.n = math.huge
    return
  elseif not lock then
    local kind = call('TYPE', K.lock).ok
    known.type = kind ~= 'none' and kind
  end
  local unclaimed = string.find(state, '[cC]') and (not lock or sub(lock, 1, 26) ~= sub(grant, 1, 26))
  if known.type and not unclaimed then return end
  if known.shared or string.find(state, '[sS]') or unclaimed then
    sharing()
    expire(leaving, declines)
  elseif not lock and string.find(state, '[hmHM]') then
    known.mark = true
  end
  if known.lock and not known.shared then known.n, known.least = 1, 1 end
end
local function save()
  if not known.stale and known.px == 0 then return end
  local px, newest, most = known.px, known.newest or '0000000000000000', known.wrote or '0000000000000000'
  local among = known.shared or known.cut
  local state = known.mute and 'S' or 's'
  if not among then state = (known.mark or most ~= newest) and 'f' or 'F' end
  local text = among and 'SHAREDLEASESAREINHASPSHARE ' or sub(known.grant or '', 1, 27)
  text = text .. newest .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state
  if state ~= 'F' then text = text .. (known.mark and '!' or ' ') .. most end
  if known.shared then text = text .. known.asks end
  if known.shared then
    if px > 0 then later(K.lock, px) end
    if not known.grant then px = math.max(px, call('PTTL', K.lock)) end
    if known.stale and known.grant then
      call('SET', K.grant, text, 'KEEPTTL')
    elseif known.stale then
      call('SET', K.grant, text, 'PX', px + KEEP + (newest > stamp and math.ceil((newest - stamp) / 1000) or 0))
    end
    if px > 0 then
      later(K.grant, px + KEEP + (newest > stamp and math.ceil((newest - stamp) / 1000) or 0))
      outlast(K.shares, px + KEEP)
      outlast(K.held, px + KEEP)
      if known.room then outlast(K.room, px + KEEP) end
    end
  elseif known.grant and (known.cut or known.mark) then
    call('SET', K.grant, text, 'KEEPTTL')
  elseif known.grant then
    call('DEL', K.grant)
  end
end
local function holder(limit)
  local left = call('PTTL', K.lock)
  if not known.shared then return known.lock or '', left, known.grant and sub(known.grant, 1, 59) or '' end
  sharing()
  local last, at = opens(limit, known.n, known.least)
  local text = known.n < math.huge and last and call('HGET', K.held, last)
  if not text then return known.lock, left, '' end
  return last, left < 0 and left or math.max(1, at - ms), sub(last, 1, 27) .. string.match(text, '^%d+ %d+ %a %d+ %d+')
end
function serving()
  if serve then return end
function entry(value, number, place)
  local contact, patience, claim, mode, how, limit, missed, inbox =
    string.match(place, '^(%d+) (%d+) (%d+) (%a)([PE]?%x*)S?(%d*)(!?) (%S+)$')
  local strange = false
  if not contact then
    local at, lasts = string.match(place, '^(%d+) (%d+) ')
    strange = string.find(place, '^v[1-9]') or at and at + lasts > ms
  end
  return {value = value, number = number, contact = tonumber(contact), patience = tonumber(patience), claim = claim,
    mode = mode, inbox = inbox, place = place, how = how, limit = tonumber(limit), missed = missed, strange = strange}
end
function strike(strikes, inbox, at)
  local others = {}
  for name, when in string.gmatch(strikes, '(%S+) (%d+);') do
    if name ~= inbox and #others < 50 then others[#others + 1] = name .. ' ' .. when .. ';' end
  end
  return inbox .. ' ' .. at .. ';' .. table.concat(others)
end
function notify(e, says)
  local text = (says or '') .. string.format('%03d', #e.value) .. e.value .. K.lock
  local command = (e.mode == 'N' or e.mode == 'C') and 'SPUBLISH' or 'PUBLISH'
  local n = redis.pcall(command, e.inbox, text)
  if type(n) == 'table' then return nil end
  return n
end
local function struck(strikes, e)
  if e.missed ~= '' then return true end
  if strikes == '' then return false end
  local _, last = string.find(strikes, e.inbox .. ' ', 1, true)
  local at = last and tonumber(string.match(strikes, '^%d+', last + 1))
  return at ~= nil and at <= ms and (e.contact <= at or e.contact > ms)
end
local function unstrike(strikes)
  if not caller then return strikes end
  local from, to = string.find(strikes, caller .. ' ', 1, true)
  if not from then return strikes end
  strikes = sub(strikes, 1, from - 1) .. string.gsub(sub(strikes, to + 1), '^%d+;', '')
  call('HSET', K.places, '!', strikes)
  call('HDEL', K.places, '?')
  return strikes
end
local function beyond(upTo, at, me)
  local number, time = string.match(upTo or '', '^(%S+) (%d+)$')
  if not number or tonumber(time) > ms or tonumber(time) + 1000 < ms then return nil end
  local mine = me and call('ZSCORE', K.queue, me)
  if mine and tonumber(mine) <= tonumber(number) then return nil, true end
  local rank = call('ZCOUNT', K.queue, '-inf', number)
  return rank > at and rank or nil
end
local function first(me, offer, from)
  local at, size, passed = from or 0, 1, nil
  for round = 1, 11 do
    local ids = call('ZRANGE', K.queue, at, at + size, 'WITHSCORES') -- one more than is looked for
    if #ids == 0 then
      if passed and round > 2 then call('HSET', K.places, '?', passed .. ' ' .. string.format('%.0f', ms)) end
      return nil
    end
    local owners = {}
    for i = 1, #ids, 2 do owners[#owners + 1] = sub(ids[i], 1, 26) end
    local places = call('HMGET', K.places, '!', '?', unpack(owners))
    local strikes, expired, owned, found, why, behind = unstrike(places[1] or ''), {}, {}, nil, nil, nil
    for i = 1, #owners do
      local e = places[i + 2] and entry(ids[2 * i - 1], ids[2 * i], places[i + 2])
      if e and e.strange then
        K.strange = e.place
        return nil, 'strange'
      elseif ids[2 * i - 1] == me then
        found = {value = me}
      elseif not e or not e.contact or e.contact + e.patience <= ms then
        expired[#expired + 1] = ids[2 * i - 1]
        owned[#owned + 1] = owners[i]
      elseif struck(strikes, e) then
        local next, mine
        if not passed then next, mine = beyond(places[2], at, me) end
        if mine then return {value = me}, nil, at end
        at, passed = next or at + 1, ids[2 * i]
        if next then break end
      elseif not offer or e.mode == 'p' then
        found = e
      else
        local says = offer(e)
        local n = says and notify(e, says)
        if n == 0 and (e.mode == 'c' or e.mode == 'C') then
          strikes = strike(strikes, e.inbox, ms)
          call('HSET', K.places, '!', strikes)
          at, passed = at + 1, ids[2 * i]
        else
          found, why = e, says and not n and 'mute' or nil
        end
      end
      if found then
        local next = offer and places[i + 3] and entry(ids[2 * i + 1], ids[2 * i + 2], places[i + 3])
        if next and next.contact and next.contact + next.patience > ms and not struck(strikes, next) then
          behind = next
          behind.at = at
        end
        break
      end
    end
    if #expired > 0 then
      call('ZREM', K.queue, unpack(expired))
      call('HDEL', K.places, unpack(owned))
    end
    if found and size == 1 then return found, why, at, behind end
    if passed and (found or round == 11) then call('HSET', K.places, '?', passed .. ' ' .. string.format('%.0f', ms)) end
    if found then return found, why, at, behind end
    size = 100
  end
  return nil, 'more'
end
local function handTo(e)
  local fence, state = known.newest or '0000000000000000', 'C'
  if e.fence then
    fence, state = e.fence, 'c'
  elseif e.how ~= 'P' then
    local ok, got = pcall(mint, 1, known.newest)
    local text = not ok and (type(got) == 'table' and got.err or got)
    if text and not string.find(text, 'HASPDATA', 1, true) then error(got, 0) end
    if text then return false end
    fence, state = got, 'c'
  end
  unqueue(e.value)
  give(e.value, fence, state, e.limit, e.claim, e.number .. ' ' .. e.place)
  handed = math.max(handed or 0, e.claim)
  return true
end
local function offer(e)
  if not fits(e.limit) then return nil end
  if sub(e.how, 1, 1) ~= 'E' then return '' end
  local ok, fence = pcall(mint, 1, known.newest)
  if not ok then return '' end -- handTo finds out why
  e.fence = fence
  return '=' .. fence .. ' ' .. stamp .. ' ' .. e.claim .. (known.mark and '! ' or ' ') .. sub(e.how, 2) .. ' '
end
function serve(me)
  local at
  for _ = 1, 32 do
    local e, why, behind
    e, why, at, behind = first(me, offer, at)
    if not e or why or e.value == me then return e, why end
    if not fits(e.limit) then return e, 'shut' end
    if not handTo(e) then return e, 'poor' end
    if not known.shared then
      follower = behind
      return e, 'shut'
    end
  end
  return nil, 'more'
end
local function placesAt(from, to)
  local ids, owners = call('ZRANGE', K.queue, from, to), {}
  if #ids == 0 then return ids, ids end
  for i = 1, #ids do owners[i] = sub(ids[i], 1, 26) end
  return ids, call('HMGET', K.places, unpack(owners))
end
function hintLast()
  local ids, places = placesAt(-100, -1)
  local last
  for i = 1, #ids do
    if places[i] and not (string.find(places[i], '^v[1-9]')) and (not last or places[i] > places[last]) then last = i end
  end
  local e = last and entry(ids[last], nil, places[last])
  if e and e.mode and e.mode ~= 'p' then notify(e) end
end
function hintLater(px)
  local e, _, at = follower, nil, follower and follower.at
  if not e then e, _, at = first(false) end
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
  if e and e.mode ~= 'p' then notify(e, '+' .. string.format('%d', math.min(px, 86400000)) .. ' ') end
end
function hintFirst()
  local e, why = first(false)
  if e and e.mode ~= 'p' then notify(e) end
  if why == 'more' then hintLast() end
end
function serveMore()
  local e, why = serve(false)
  if why == 'more' and not handed then hintLast() end
  return e, why
end
end
function sharing()
  if lease then return end
  serving()
function smallest()
  local front = call('ZRANGE', K.room, 0, 0, 'WITHSCORES')
  local limit = tonumber(front[2] or 4398046511104)
  return limit < 4398046511104 / 2 and limit or math.huge, #front > 0
end
function opens(limit, n, least)
  local room = limit and math.min(least, limit > 0 and limit or math.huge)
  local at = room and n < math.huge and n >= room and n - room or -1
  local last = call('ZRANGE', K.shares, at, at, 'WITHSCORES')
  return last[1], tonumber(last[2])
end
function lease(text)
  local fence, since, state, limit, slot, mark, place =
    string.match(text, '^(%d+) (%d+) (%a) (%d+) (%d+) (%d) ?(.*)$')
  if not fence then counted('held', text, true) end
  return {fence = fence, since = since, state = state, limit = tonumber(limit), slot = tonumber(slot),
    mark = mark == '1', place = place, pending = state == 'c' or state == 'C'}
end
local function restore(leases)
  local queue, places, patience, strikes = {}, {}, 0, call('HGET', K.places, '!') or ''
  for _, l in ipairs(leases) do
    local number, place = string.match(l.place, '^(%S+) (.*)$')
    local e = entry(l.value, number, place)
    queue[#queue + 1], queue[#queue + 2] = number, l.value
    places[#places + 1], places[#places + 2] = sub(l.value, 1, 26), string.gsub(place, '^(%d+ %d+ %d+ %a[PE]?%x*S?%d*) ', '%1! ')
    strikes = strike(strikes, e.inbox, l.since)
    patience = math.max(patience, e.patience)
  end
  call('ZADD', K.queue, unpack(queue))
  call('HSET', K.places, '!', strikes, unpack(places))
  outlast(K.queue, patience + 60000)
  outlast(K.places, patience + 60000)
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
    local leases, unclaimed = call('HMGET', K.held, unpack(over)), {}
    call('ZREM', K.shares, unpack(over)) -- takes no memory, and after it nothing is refused for that
    call('HDEL', K.held, unpack(over))
    for i = 1, #over do
      local l = leases[i] and lease(leases[i])
      if l then
        l.value, l.over = over[i], true
        leave(l)
        if l.pending then unclaimed[#unclaimed + 1] = l end
      end
    end
    if #unclaimed > 0 then restore(unclaimed) end
    known.stale = true
    if #over < size then return true end
    size = 100
  end
  return false
end
function expire(leaving, declines)
  local grant = known.grant
  if not known.shared and string.find(sub(grant, 59, 59), '[cC]') then
    later(K.grant, KEEP + (known.newest > stamp and math.ceil((known.newest - stamp) / 1000) or 0))
    local place, label = string.match(grant, '^(%S+ %d+ %d+ %d+ %a[PE]?%x*S?%d* %S+) (.*)$', 78)
    if not label then counted('grant', grant, true) end
    local value = sub(grant, 1, 26) .. ' ' .. label
    known.left, known.stale = value == leaving, true
    known.entered = string.find(grant, '^%S+ %d+ %d+ %d+ %aE', 78) ~= nil and value ~= declines
    known.mark = known.mark or known.entered -- it may have begun to work
    if not known.left then restore({{value = value, since = sub(grant, 45, 57), place = place}}) end
    return
  end
  known.cut = not reap(not known.shared)
  known.n = call('ZCARD', K.shares)
  if known.n == 0 and known.shared and not known.stale then
    known.n = math.huge -- it was never empty
  elseif known.n == 0 and (known.shared or not known.lock) then
    vacate()
  elseif known.shared then
    known.least, known.room = smallest()
  end
end
end
local function trying()
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
  call('HSET', K.places, sub(r.value, 1, 26), sub(stamp, 1, 13) .. ' ' .. r.place)
  outlast(K.queue, r.patience + 60000)
  outlast(K.places, r.patience + 60000)
end
local function refuse(r, why, cut, least)
  local ahead = call('ZRANK', K.queue, r.value) or call('ZCARD', K.queue)
  local value, left, head = holder(r.limit)
  cut = cut or handed and 3 or 0
  if r.place then
    return {r.gone and 2 or why, sub(value, 1, 600), left, ahead, head, cut, known.newest or '', stamp}
  end
  if string.find(known.asks, '~', 1, true) then least = 'keeps' end
  return {r.gone and 2 or why, sub(value, 1, 600), left, ahead, head, cut, least or ''}
end
local function granted(l, left, n, waited)
  return {1, l.fence, l.mark and 1 or 0, left, n, waited or 0, l.slot}
end
local function choose(r, l)
  if l then later(K.lock, r.ttl) end -- takes no memory, and after it nothing is refused for that
  return mint(r.fences, known.newest), r.fences
end
local function standing(r, l)
  local value, ttl, n, left = r.value, r.ttl, 1
  local claims = l.pending or l.unknown
  local waited = l.pending and math.max(ms - tonumber(l.since or sub(known.grant, 45, 57)), 1)
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
  if claims then l.since = sub(stamp, 1, 13) end
  if l.pending and l.limit == 0 then l.mark = known.mark end -- one beside it may not have finished since
  if l.limit then
    left = math.max(l.ends - ms, ttl)
    if left == ttl then call('ZADD', K.shares, string.format('%.0f', ms + ttl), value) end
    if claims or raises then write(value, l) end
    known.px = math.max(known.px, ttl)
    if call('EXISTS', K.queue) == 1 then
      serving()
      serveMore()
    end
  else
    left = claims and 0 or call('PTTL', K.lock)
    if claims or raises then write(value, l, math.max(ttl, left)) else later(K.grant, ttl + KEEP) end
  end
  return granted(l, left, n, waited)
end
local function convert(r, l)
  later(K.lock, r.ttl) -- takes no memory, and after it nothing is refused for that
  local left = call('PTTL', K.lock)
  if left < 0 then left = r.ttl end
  known.lock, known.shared, known.n, known.least, known.mark = 'SHAREDLEASESAREINHASPSHARE ' .. stamp, true, 0, math.huge, false
  call('SET', K.lock, known.lock, 'KEEPTTL')
  call('DEL', K.shares, K.held, K.room)
  known.asks = string.gsub(known.asks, '~', '') -- what is shared is not kept
  l = give(r.value, l.fence, l.pending and r.state or l.state, r.limit, left, nil, sub(known.grant, 45, 57))
  serving()
  serveMore()
  return granted(l, left, 1)
end
function try(r)
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
  serving()
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
end
local function releasing()
function release(r)
  local value, result, ends, rank = r.value, 0, nil, nil
  local got = seen or call('MGET', K.lock, K.grant)
  if got[2] and string.find(got[2], '^v[1-9]') then counted('grant', got[2], true) end
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
    if r.tell then redis.pcall('PUBLISH', r.tell, (l.fence or '') .. string.format('%03d', #value) .. value .. K.lock) end
  else
    rank = call('ZRANK', K.queue, value)
    local place = rank and not unused and call('HGET', K.places, sub(value, 1, 26))
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
  local may = not known.cut and (inWay == 1 or call('EXISTS', K.queue) == 1)
  if may then serving() end
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
end
function contended(kind, at)
  K = {lock = KEYS[keysAt], grant = KEYS[keysAt + 1], queue = KEYS[keysAt + 2], places = KEYS[keysAt + 3],
    shares = KEYS[keysAt + 4], held = KEYS[keysAt + 5], room = KEYS[keysAt + 6], gone = KEYS[keysAt + 7]}
  if kind == 'try' or kind == 'tryAny' then
    if not try then trying() end
    if kind == 'try' then return try({
    value = ARGV[at + 1],
    ttl = ARGV[at + 2],
    state = ARGV[at + 3],
    keep = ARGV[at + 4]}) end
    return try({
    value = ARGV[at + 1],
    ttl = ARGV[at + 2],
    state = ARGV[at + 3],
    fences = ARGV[at + 4],
    fence = ARGV[at + 5] ~= '' and ARGV[at + 5] or nil,
    how = ARGV[at + 6],
    limit = ARGV[at + 7] ~= '' and ARGV[at + 7] or nil,
    place = ARGV[at + 8] ~= '' and ARGV[at + 8] or nil,
    patience = ARGV[at + 9]})
  end
  if not release then releasing() end
  if kind == 'release' then return release({
    value = ARGV[at + 1]}) end
  return release({
    value = ARGV[at + 1],
    tombstone = ARGV[at + 2] ~= '' and ARGV[at + 2] or nil,
    upTo = ARGV[at + 3] ~= '' and ARGV[at + 3] or nil,
    ending = ARGV[at + 4] ~= '' and ARGV[at + 4] or nil,
    tell = ARGV[at + 5] ~= '' and ARGV[at + 5] or nil})
end
end
local function request()
local kind, at = ARGV[argsAt], argsAt
local value = ARGV[at + 1]
local lockKey, grantKey, queueKey = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
local cur
if kind == 'try' then
  if (inWay or call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])) == 0 then
    local ttl, state, keep = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    local fence = mint(1)
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', keep)
    return fence
  end
elseif kind == 'release' then
  local got = seen or call('MGET', lockKey, grantKey)
  cur = got[1]
  if not seen and cur == value and call('EXISTS', queueKey) == 0 and not (got[2] and string.find(got[2], '^v[1-9]')) then
    call('DEL', lockKey, grantKey)
    return 1
  end
end
  local reads = kind == 'tryAny' and ARGV[at + 7] == '0' and ARGV[at + 3] == 'h'
    and ARGV[at + 4] == '1' and ARGV[at + 6] == ''
  if reads and redis.REDIS_VERSION_NUM -- since 7.0, like GT
    or type(cur) == 'string' and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
    local got = call('MGET', lockKey, grantKey)
    local was = got[2]
    local sharesKey, heldKey, roomKey = KEYS[keysAt + 4], KEYS[keysAt + 5], KEYS[keysAt + 6]
    cur = got[1]
    local beside = cur and was and sub(was, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' and sub(was, 59, 60) == 's '
    if not stamp then look() end
    local new, gt, began = nil, 'NX', stamp
    if not cur and not was then
      if call('EXISTS', lockKey, queueKey, KEYS[keysAt + 7], sharesKey, roomKey) == 0 then new = mint(1) end
    elseif beside and call('EXISTS', queueKey, roomKey, reads and KEYS[keysAt + 7] or queueKey) == 0 then
      local held = call('HMGET', heldKey, '!', value)
      local sure = held[1] == sub(cur, 28) -- else nobody knows who shares it
      if sure and reads and not held[2] then
        local ends = call('ZRANGE', sharesKey, 0, 0, 'WITHSCORES')[2]
        if ends and tonumber(ends) > ms then new, gt, began = mint(1, sub(was, 28, 43)), 'GT', held[1] end
      elseif sure and not reads and held[2] and sub(held[2], 32, 32) == 'h' then
        local ends = call('ZSCORE', sharesKey, value)
        if ends and tonumber(ends) > ms then
          if call('ZCARD', sharesKey) == 1 then
            call('DEL', lockKey, sharesKey, heldKey, grantKey)
          else
            call('ZREM', sharesKey, value)
            call('HDEL', heldKey, value)
          end
          return 1
        end
      end
    end
    if new then
      local since, ttl = sub(stamp, 1, 13), ARGV[at + 2]
      local keep = ttl + KEEP
      if gt == 'GT' then
        call('SET', grantKey, sub(was, 1, 27) .. new .. sub(was, 44), 'KEEPTTL')
        call('PEXPIRE', lockKey, ttl, 'GT')
        call('PEXPIRE', grantKey, keep, 'GT')
      else
        call('SET', lockKey, 'SHAREDLEASESAREINHASPSHARE ' .. stamp, 'PX', ttl)
        call('SET', grantKey, 'SHAREDLEASESAREINHASPSHARE ' .. new .. ' ' .. since .. ' s 0000000000000000', 'PX', keep)
      end
      call('ZADD', sharesKey, string.format('%.0f', ms + ttl), value)
      call('HSET', heldKey, '!', began, value, new .. ' ' .. since .. ' ' .. 'h 0 0 0')
      call('PEXPIRE', sharesKey, keep, gt)
      call('PEXPIRE', heldKey, keep, gt)
      return {1, new, 0, 0, 1, 0}
    end
  end
  if not contended then slow() end
  return contended(kind, at)
end
local function run()
  caller, handed, follower = nil, nil, nil
  local answer = request()
  if handed then hintLater(handed) end
  return answer
end
if ARGV[1] == '1' then return {run()} end
local keys = {try = 8, propose = 8, tryAny = 8, release = 7, withdraw = 7, releaseAny = 8}
local fields = {try = 4, propose = 4, tryAny = 9, release = 1, withdraw = 2, releaseAny = 5}
local out = {}
for i = 1, tonumber(ARGV[1]) do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[argsAt]
  keysAt, argsAt = keysAt + keys[kind], argsAt + 1 + fields[kind]
end
return out
