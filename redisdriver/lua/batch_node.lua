-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/batch.lua by go generate; DO NOT EDIT.
local sub = string.sub
local stamp, ms -- the server's clock, for the whole script
local function look()
  local clock = redis.call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6) -- us, 16 digits until 2286
  ms = tonumber(sub(stamp, 1, 13))
end
local LINGER = 60000 -- ms a sidecar outlives what it belongs to
local KEEP = 61000 -- ms the largest fence of a key is kept after its lease, see fences.lua
local K -- the keys of the request at hand, see line.lua
local call = redis.call
local keysAt, argsAt = 4, 2 -- where in KEYS and ARGV the request at hand begins
local lastMinted, reserved
local MOST = 9007199254740991 -- 2^53 - 1: Lua no longer tells larger numbers from their neighbours
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= MOST then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
end
local life -- names this run of the server; nil until somebody asked
local longest -- ms, the longest lease; false: the node does not vote
local function votes(key)
  if longest == nil then
    local record, info = redis.call('GET', key), redis.call('INFO', 'server')
    longest = record and sub(record, 1, 3) == 'ok ' and
      string.find(info, '\nrun_id:' .. sub(record, 4, 43) .. '\r', 1, true) and
      tonumber(sub(record, 45)) or false
    life = longest and sub(record, 4, 19) or string.match(info, '\nrun_id:(' .. string.rep('%x', 16) .. ')')
    if longest and longest > KEEP then KEEP = longest end
  end
  return longest
end
local REACH = 1048576 -- us above the fences known that it may be; cur is moved ahead by as much
local markOld, markMid, markCur, markAt
local minted -- no minted fence is larger; '' when nothing is known
local turned -- the mark is not stored as it is here
local function recall()
  if not stamp then look() end
  local got = redis.call('MGET', KEYS[3], KEYS[1])
  local mark, now = got[1], tonumber(stamp)
  minted = got[2] or ''
  if minted ~= '' then minted = string.format('%016.0f', counted('mark', minted)) end
  if mark and (#mark ~= 67 or string.find(mark, '[^%d ]')) then counted('proposed', mark, true) end
  if not mark then
    markOld, markMid, markCur, markAt, turned = stamp, stamp, stamp, stamp, true
    return
  end
  markOld, markMid, markCur, markAt = sub(mark, 1, 16), sub(mark, 18, 33), sub(mark, 35, 50), sub(mark, 52)
  local age = now - markAt
  if age < 0 or age >= 20000000 then
    markOld, markMid, markAt, turned = age >= 2 * 20000000 and markCur or markMid, markCur, stamp, true
  end
end
local function cover(h)
  if not turned and h <= markCur then return end
  local to = markCur
  if h > to then to = string.format('%016.0f', h + REACH) end
  redis.call('SET', KEYS[3], markOld .. ' ' .. markMid .. ' ' .. to .. ' ' .. markAt,
    'PX', string.format('%.0f', 86400000 / 2 + math.max(0, math.floor((to - stamp) / 1000))))
  markCur, turned = to, false
end
local LEAD = 4000000 -- us above the clock that a proposal may be: driver.MaxFenceSkew
local function forgotten(told)
  if not markCur then recall() end
  return told and told > markOld and told or markOld
end
local function floor(told)
  local least = forgotten(told)
  return minted > least and minted or least
end
local function near(h, least)
  return h <= stamp or tonumber(h) <= math.min(MOST - REACH, math.max(stamp + LEAD, least + REACH))
end
local function allow(h, told, n, how, newest)
  local least = floor(told)
  local low = h <= least
  if how == 'restore' then low, n = told and h < told, 1 end
  if low or not near(h, least) then return nil, least end
  if newest and newest > least then least = newest end
  return n == 1 and 1 or math.max(1, math.min(n, h - least))
end
local function mint(n, told)
  told = forgotten(told)
  local above = told and counted('grant', told) or 0
  if not lastMinted or lastMinted + n > reserved or above > lastMinted then
    if not stamp then look() end
    local last, keep, now = call('GET', KEYS[1]), '86400000', tonumber(stamp)
    local from, where, text = now, 'clock', stamp
    if last and (#last ~= 16 or last >= stamp or string.find(last, '%D')) then -- the clock stands, or was set back
      from, where, text = counted('mark', last) + 1, 'mark', last
    end
    if above >= from then from, where, text = above + 1, 'grant', told end -- a proposal was ahead of it
    if from > now then keep = string.format('%d', (from - now) / 1000 + 86400000) end
    local to = from + (n + ARGV[1] - 2)
    if to > MOST then counted(where, text, true) end
    call('SET', KEYS[1], string.format('%d', to), 'PX', keep) -- may fail: then nothing is reserved
    lastMinted, reserved = from - 1, to
    minted = string.format('%016.0f', to)
  end
  lastMinted = lastMinted + n
  return string.format('%d', lastMinted)
end
local function lasting(px, new)
  if new > stamp then px = px + math.ceil((new - stamp) / 1000) end
  return px
end
local try, release
local caller -- the inbox of the one that asks, if it is known
local handed, post -- ms after which the next in line is to look, see line.lua; nil: it knows by itself
local function slow()
  if not stamp then look() end
  local sharing, ours, share, leave, usher, holder -- see held.lua and share.lua
local SHARED = 'SHAREDLEASESAREINHASPSHARE '
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    return redis.call('PEXPIRE', key, px, 'GT')
  end
  local left = redis.call('PTTL', key)
  return left >= 0 and left < tonumber(px) and redis.call('PEXPIRE', key, px) or 0
end
local function outlast(key, px)
  if later(key, px) == 0 and redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, px) end
end
local function entry(value, number, place)
  local contact, patience, claim, mode, proposes, limit, lapsed, inbox =
    string.match(place, '^(%d+) (%d+) (%d+) (%a)(P?)S?(%d*)(!?) (%S+)$')
  return {value, number, tonumber(contact), tonumber(patience), claim, mode, inbox, place, proposes, tonumber(limit), lapsed}
end
local function notify(e, px)
  local text = string.format('%03d', #e[1]) .. e[1] .. K[1]
  if px then text = '+' .. px .. ' ' .. text end
  local command = (e[6] == 'N' or e[6] == 'C') and 'SPUBLISH' or 'PUBLISH'
  local n = redis.pcall(command, e[7], text)
  if type(n) == 'table' then return nil end
  return n
end
local function strike(strikes, inbox, at)
  local kept = {}
  for name, when in string.gmatch(strikes, '(%S+) (%d+);') do
    if name ~= inbox and #kept < 50 then kept[#kept + 1] = name .. ' ' .. when .. ';' end
  end
  return inbox .. ' ' .. at .. ';' .. table.concat(kept)
end
local function struck(strikes, e)
  if e[11] ~= '' then return true end
  if strikes == '' then return false end
  local _, last = string.find(strikes, e[7] .. ' ', 1, true)
  local at = last and tonumber(string.match(strikes, '^%d+', last + 1))
  return at ~= nil and at <= ms and (e[3] <= at or e[3] > ms)
end
local function spare(strikes)
  if not caller or strikes == '' then return strikes end
  local from, to = string.find(strikes, caller .. ' ', 1, true)
  if not from then return strikes end
  strikes = sub(strikes, 1, from - 1) .. string.gsub(sub(strikes, to + 1), '^%d+;', '')
  redis.call('HSET', K[4], '!', strikes)
  redis.call('HDEL', K[4], '?')
  return strikes
end
local function beyond(known, at, me)
  local number, time = string.match(known or '', '^(%S+) (%d+)$')
  if not number or tonumber(time) > ms or tonumber(time) + 1000 < ms then return nil end
  local mine = me and redis.call('ZSCORE', K[3], me)
  if mine and tonumber(mine) <= tonumber(number) then return nil, true end
  local rank = redis.call('ZCOUNT', K[3], '-inf', number)
  return rank > at and rank or nil
end
local function first(me, tell, fits, from)
  local at, size, passed = from or 0, 1, nil
  for round = 1, 11 do
    local ids = redis.call('ZRANGE', K[3], at, at + size - 1, 'WITHSCORES')
    if #ids == 0 then
      if passed and round > 2 then redis.call('HSET', K[4], '?', passed .. ' ' .. string.format('%.0f', ms)) end
      return nil
    end
    local owners = {}
    for i = 1, #ids, 2 do owners[#owners + 1] = sub(ids[i], 1, 26) end
    local places = redis.call('HMGET', K[4], '!', '?', unpack(owners))
    local strikes, dead, lost, found, why = spare(places[1] or ''), {}, {}, nil, nil
    for i = 1, #owners do
      local e = places[i + 2] and entry(ids[2 * i - 1], ids[2 * i], places[i + 2])
      if ids[2 * i - 1] == me then
        found = e or {me}
      elseif not e or not e[3] or e[3] + e[4] <= ms then
        dead[#dead + 1] = ids[2 * i - 1]
        lost[#lost + 1] = owners[i]
      elseif struck(strikes, e) then
        local next, mine
        if not passed then next, mine = beyond(places[2], at, me) end
        if mine then return {me}, nil, at end
        at, passed = next or at + 1, ids[2 * i]
        if next then break end
      elseif not tell or e[6] == 'p' or fits and not fits(e[10]) then
        found = e
      else
        local n = notify(e)
        if n == 0 and (e[6] == 'c' or e[6] == 'C') then
          strikes = strike(strikes, e[7], ms)
          redis.call('HSET', K[4], '!', strikes)
          at, passed = at + 1, ids[2 * i]
        else
          found, why = e, not n and 'mute' or nil
        end
      end
      if found then break end
    end
    if #dead > 0 then
      redis.call('ZREM', K[3], unpack(dead))
      redis.call('HDEL', K[4], unpack(lost))
    end
    if found and size == 1 then return found, why, at end
    if passed and (found or round == 11) then redis.call('HSET', K[4], '?', passed .. ' ' .. string.format('%.0f', ms)) end
    if found then return found, why, at end
    size = 100
  end
  return nil, 'more'
end
local function alive(number, known)
  known = known or redis.call('HGET', K[4], '?')
  if known and tonumber(number) <= tonumber(string.match(known, '^%S+')) then redis.call('HDEL', K[4], '?') end
end
local function some(from, to)
  local ids, owners = redis.call('ZRANGE', K[3], from, to), {}
  if #ids == 0 then return ids, ids end
  for i = 1, #ids do owners[i] = sub(ids[i], 1, 26) end
  return ids, redis.call('HMGET', K[4], unpack(owners))
end
local function hail()
  local ids, places = some(-100, -1)
  local last
  for i = 1, #ids do
    if places[i] and (not last or places[i] > places[last]) then last = i end
  end
  local e = last and entry(ids[last], nil, places[last])
  if e and e[6] and e[6] ~= 'p' then notify(e) end
end
function post(px)
  local told, _, at = first(false, false)
  if told and told[3] + told[4] / 2 <= ms then
    local ids, places = some(at + 1, at + 3)
    for i = 1, #ids do
      local e = places[i] and entry(ids[i], nil, places[i])
      if e and e[3] and e[3] + e[4] / 2 > ms then
        told = e
        break
      end
    end
  end
  if told and told[6] ~= 'p' then notify(told, string.format('%d', math.min(px, 86400000))) end
end
local function lead()
  local e, why = first(false, false)
  if e and e[6] ~= 'p' then notify(e) end
  if why == 'more' then hail() end
end
local function record(owner, fence, state, px)
  redis.call('SET', K[2], owner .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. state, 'PX', lasting(px, fence))
end
local function choose(h, told, fences, how, newest)
  if h then
    local n, least = allow(h, told, fences, how, newest)
    if n then cover(h) end
    return n and h, n or least
  end
  return mint(fences, newest or told), fences
end
local function wrote(grant)
  return sub(grant, 61, 76) ~= '' and sub(grant, 61, 76) or sub(grant, 28, 43)
end
local function unfinished(grant)
  return grant ~= nil and grant ~= false and string.find(sub(grant, 59, 60), '^[hmHM]') ~= nil
    or sub(grant or '', 60, 60) == '!'
end
local function remember(grant, gap)
  local kept, most = 'F', wrote(grant)
  if gap or most ~= sub(grant, 28, 43) then kept = 'f' .. (gap and '!' or ' ') .. most end
  redis.call('SET', K[2], sub(grant, 1, 58) .. kept, 'KEEPTTL')
end
local function heirs(told)
  local ok, fence = pcall(mint, 1, told)
  if ok then return fence end
  local text = type(fence) == 'table' and fence.err or fence
  if not string.find(text, 'HASPDATA', 1, true) then error(fence, 0) end
end
local function handover(e, told, most, gap)
  local owner = sub(e[1], 1, 26)
  local none = string.rep('0', 16)
  local fence, state = told or none, 'C'
  if e[9] == '' then
    fence, state = heirs(told), 'c'
    if not fence then return false end
    most = fence
  end
  redis.call('ZREM', K[3], e[1])
  redis.call('HDEL', K[4], owner)
  redis.call('SET', K[1], e[1], 'PX', e[5])
  handed = tonumber(e[5])
  record(owner, fence, state .. (gap and '!' or ' ') .. (most or none) .. ' ' .. e[2] .. ' ' .. e[8] .. ' '
    .. sub(e[1], 28), e[5] + KEEP)
  return true
end
local function lapsed(place) return (string.gsub(place, '^(%d+ %d+ %d+ %aP?S?%d*) ', '%1! ')) end
local function restore(grant, gap)
  local number, place, label = string.match(grant, '^(%S+) (%d+ %d+ %d+ %aP?S?%d* %S+) (.*)$', 78)
  local value = sub(grant, 1, 26) .. ' ' .. label
  local e = entry(value, number, place)
  later(K[2], lasting(KEEP, sub(grant, 28, 43))) -- takes no memory, and after it nothing is refused for that
  remember(grant, gap)
  redis.call('ZADD', K[3], number, value)
  redis.call('HSET', K[4], sub(grant, 1, 26), lapsed(place),
    '!', strike(redis.call('HGET', K[4], '!') or '', e[7], sub(grant, 45, 57)))
  outlast(K[3], e[4] + LINGER)
  outlast(K[4], e[4] + LINGER)
end
local function sound(grant)
  if grant and string.find(grant, '^%w+ %d+ %d+ [hmcsfHMCSF]') == 1 and sub(grant, 27, 27) == ' '
    and sub(grant, 44, 44) == ' ' and sub(grant, 58, 58) == ' ' then
    return grant
  end
  return false
end
function try(value, GONE, as, ttl, linger, fences, place, patience, h, how, limit)
  local owner = sub(value, 1, 26)
  ours = nil
  caller = string.match(place, '%S+$')
  local got = redis.call('MGET', K[1], K[2], GONE)
  local cur, grant, gone = got[1], got[2], got[3]
  if grant and not sound(grant) then counted('grant', grant, true) end
  local state = grant and sub(grant, 59, 59)
  local told = grant and sub(grant, 28, 43)
  local function join()
    if place == '' or gone then return end
    local mine = redis.call('ZSCORE', K[3], value)
    if mine then
      alive(mine)
    else
      local last = redis.call('ZRANGE', K[3], -1, -1, 'WITHSCORES')[2] or '0'
      redis.call('ZADD', K[3], string.format('%.0f', counted('line', last) + 1), value)
    end
    redis.call('HSET', K[4], owner, sub(stamp, 1, 13) .. ' ' .. place)
    outlast(K[3], patience + LINGER)
    outlast(K[4], patience + LINGER)
  end
  local function refuse(why, cut, least)
    local ahead = redis.call('ZRANK', K[3], value) or redis.call('ZCARD', K[3])
    local left = redis.call('PTTL', K[1])
    local head = grant and sub(grant, 1, 59)
    if ours then cur, left, head = holder(limit, left) end
    least = least or h and floor(limit and (ours and ours.wrote or grant and wrote(grant)) or told)
    return {gone and 2 or why, cur and sub(cur, 1, 600) or '', left,
      ahead, head or '', cut or handed and 3 or 0, least or ''}
  end
  local function hold(fence, gap, n)
    record(owner, fence, gap and as .. '!' or as, linger)
    return {1, fence, gap and 1 or 0, 0, n}
  end
  if limit or state == 's' or state == 'S' or cur and sub(cur, 1, 27) == SHARED then
    if not share then sharing() end
    local answer = share(value, as, ttl, fences, h, how, limit, cur, grant, gone, join, refuse)
    if answer then return answer end
    return try(value, GONE, as, ttl, linger, fences, place, patience, h, how) -- it is free now
  end
  if cur == value and not gone then
    local mine = grant and sub(grant, 1, 26) == owner and state ~= 'F' and state ~= 'f'
    local gap = mine and sub(grant, 60, 60) == '!'
    if not mine or state == 'c' or state == 'C' then -- not claimed yet, or nobody knows
      if h then
        local n, least = allow(h, told, fences, '')
        if not n then return refuse(3, nil, least) end
        later(K[1], ttl)
        cover(h)
        return hold(h, gap, n)
      end
      later(K[1], ttl)
      if state == 'c' and mine and fences == 1 then return hold(told, gap, 1) end
      return hold(mint(fences, told), gap, fences)
    end
    if how == 'raise' and h ~= told then
      local least = floor(told)
      if h < told or not near(h, least) then return refuse(3, nil, least) end
      later(K[1], ttl)
      cover(h)
      grant, told = sub(grant, 1, 27) .. h .. sub(grant, 44, 58) .. as .. (gap and '!' or ''), h
      redis.call('SET', K[2], grant, 'KEEPTTL')
      linger = lasting(linger, h)
    end
    later(K[1], ttl)
    later(K[2], linger)
    local left = redis.call('PTTL', K[1])
    if left > longest then left = longest end
    return {1, told, gap and 1 or 0, left, 1}
  end
  if cur or gone then
    join()
    return refuse(0)
  end
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
function release(value, GONE, wary, unclaimed, upto, ending)
  local owner = sub(value, 1, 26)
  ours = nil
  local got = redis.call('MGET', K[1], K[2]) -- nothing where it is no string: not ours
  local grant = sound(got[2])
  local state = grant and sub(grant, 59, 59) or ''
  local pending = grant and sub(grant, 1, 26) == owner and string.find(state, '[cC]') -- never came for it
  if state == 's' or state == 'S' or got[1] and sub(got[1], 1, 27) == SHARED then
    if not share then sharing() end
    return leave(value, GONE, wary, unclaimed, upto, ending, got[1], grant)
  end
  if got[1] == value then
    if unclaimed and not pending then return 0 end
    local told = grant and sub(grant, 28, 43)
    if upto and told and told > upto and not pending then return 0 end
    local gap = grant and sub(grant, 60, 60) == '!'
    if not pending then gap = ending == 'unfinished' and grant or gap and ending == 'unused' end
    local keep = grant
    redis.call('DEL', K[1], keep and K[1] or K[2])
    if keep then remember(grant, gap) end
    if GONE then redis.call('SET', GONE, '', 'PX', wary) end
    if redis.call('EXISTS', K[3]) == 0 then return 1 end
    if not votes(KEYS[2]) then return 1 end
    local e, why = first(false, true)
    if e and not why then
      if e[10] then
        if not share then sharing() end
        why = usher(e, grant, gap, false)
      elseif not handover(e, told, grant and wrote(grant), gap) then
        why = 'mute'
      end
    end
    if why == 'more' and not handed then hail() end
    return why == 'mute' and 3 or 1
  end
  local rank, given = redis.call('ZRANK', K[3], value), pending
  if rank or given then
    redis.call('ZREM', K[3], value)
    redis.call('HDEL', K[4], owner)
  end
  if given then remember(grant, sub(grant, 60, 60) == '!') end -- or its place would come back
  if GONE then redis.pcall('SET', GONE, '', 'PX', wary) end
  local leads = rank == 0 or given
  leads = leads and votes(KEYS[2])
  if leads then lead() end
  return (rank or given) and 2 or 0
end
function sharing()
local FREE = 4398046511104 -- 2^42; no limit is above a quarter of it
local function smallest()
  local front = redis.call('ZRANGE', K[7], 0, 0, 'WITHSCORES')
  local limit = tonumber(front[2] or FREE)
  return limit < FREE / 2 and limit or math.huge, #front > 0
end
local function take(limit)
  local back = redis.call('ZRANGE', K[7], -1, -1, 'WITHSCORES')
  local number = 0
  if back[2] then number = tonumber(back[2]) > FREE / 2 and back[1] or redis.call('ZCARD', K[7]) end
  redis.call('ZADD', K[7], string.format('%.0f', limit), number)
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
  redis.call('HSET', K[6], value, l.fence .. ' ' .. l.since .. ' ' .. l.state .. ' ' .. string.format('%.0f', l.limit)
    .. ' ' .. l.slot .. ' ' .. (l.mark and 1 or 0) .. (l.place ~= '' and ' ' .. l.place or ''))
end
local function reap(all)
  local size = 1
  for _ = 1, 11 do
    local ids, over = redis.call('ZRANGE', K[5], 0, size - 1, 'WITHSCORES'), {}
    for i = 1, #ids, 2 do
      if not all and tonumber(ids[i + 1]) > ms then break end
      over[#over + 1] = ids[i]
    end
    if #over == 0 or not all and redis.call('PTTL', K[1]) == -1 then return true end
    local leases, strikes = redis.call('HMGET', K[6], unpack(over)), nil
    local free, line, places, patience = {}, {}, {}, 0
    redis.call('ZREM', K[5], unpack(over)) -- takes no memory, and after it nothing is refused for that
    redis.call('HDEL', K[6], unpack(over))
    for i = 1, #over do
      local l = leases[i] and lease(leases[i])
      if l and l.limit > 0 then
        free[#free + 1], free[#free + 2] = FREE - l.slot, l.slot
        if l.mark or not l.pending then ours.mark = true end
      end
      if l and l.pending then
        local number, place = string.match(l.place, '^(%S+) (.*)$')
        local e = entry(over[i], number, place)
        line[#line + 1], line[#line + 2] = number, over[i]
        places[#places + 1], places[#places + 2] = sub(over[i], 1, 26), lapsed(place)
        strikes = strike(strikes or redis.call('HGET', K[4], '!') or '', e[7], l.since)
        patience = math.max(patience, e[4])
      end
    end
    if #free > 0 then redis.call('ZADD', K[7], unpack(free)) end
    if #line > 0 then
      redis.call('ZADD', K[3], unpack(line))
      redis.call('HSET', K[4], '!', strikes, unpack(places))
      outlast(K[3], patience + LINGER)
      outlast(K[4], patience + LINGER)
    end
    ours.stale = true
    if #over < size then return true end
    size = 100
  end
  return false
end
local function vacate()
  redis.call('DEL', K[1], K[5], K[6], K[7])
  ours.lock, ours.n, ours.least, ours.stale = nil, 0, math.huge, true
end
local function survey(cur, grant, gap)
  local side = sub(K[3], 11)
  K[5], K[6], K[7] = 'hasp.shares:' .. side, 'hasp.held:' .. side, 'hasp.room:' .. side
  local state = grant and sub(grant, 59, 59)
  local was = state == 's' or state == 'S'
  ours = {n = 0, least = math.huge, newest = grant and sub(grant, 28, 43), wrote = grant and wrote(grant), mark = gap,
    mute = state == 'S', px = 0, grant = grant, stale = false}
  local done
  if cur and sub(cur, 1, 27) == SHARED then
    ours.lock = cur
    if redis.call('HGET', K[6], '!') ~= sub(cur, 28) then
      ours.n = math.huge
      return true
    end
    done = reap(false)
  elseif not cur and was then
    done = reap(true)
  else
    return true
  end
  ours.n = redis.call('ZCARD', K[5])
  if ours.n == 0 and cur and not ours.stale then
    ours.n = math.huge -- it was never empty
  elseif ours.n == 0 then
    vacate()
  elseif ours.lock then
    ours.least, ours.room = smallest()
  end
  return done
end
local function settle()
  if ours.alone or not ours.stale and ours.px == 0 then return end
  local zero = string.rep('0', 16)
  local newest, most = ours.newest or zero, ours.wrote or zero
  local head = SHARED .. newest .. ' ' .. sub(stamp, 1, 13) .. ' '
  if ours.lock then
    local px = ours.px
    if px > 0 then later(K[1], px) end
    if not ours.grant then px = math.max(px, redis.call('PTTL', K[1])) end
    if ours.stale then
      local text = head .. (ours.mute and 'S' or 's') .. (ours.mark and '!' or ' ') .. most
      if ours.grant then
        redis.call('SET', K[2], text, 'KEEPTTL')
      else
        redis.call('SET', K[2], text, 'PX', lasting(px + KEEP, newest))
      end
    end
    if px > 0 then
      later(K[2], lasting(px + KEEP, newest))
      outlast(K[5], px + KEEP)
      outlast(K[6], px + KEEP)
      if ours.room then outlast(K[7], px + KEEP) end
    end
  elseif ours.grant and ours.n > 0 then -- more to reap than one script should
    redis.call('SET', K[2], head .. (ours.mute and 'S' or 's') .. (ours.mark and '!' or ' ') .. most, 'KEEPTTL')
  elseif ours.grant then
    local keep = true
    if keep then
      local as = 'F'
      if ours.mark or most ~= newest then as = 'f' .. (ours.mark and '!' or ' ') .. most end
      redis.call('SET', K[2], head .. as, 'KEEPTTL')
    else
      redis.call('DEL', K[2])
    end
  end
end
local function add(value, fence, state, limit, px, since, place)
  if not ours.lock then
    ours.lock = SHARED .. stamp
    redis.call('SET', K[1], ours.lock, 'PX', px)
    redis.call('DEL', K[5], K[6], K[7])
  end
  if ours.n == 0 then redis.call('HSET', K[6], '!', sub(ours.lock, 28)) end
  local l = {fence = fence, since = since or sub(stamp, 1, 13), state = state, limit = limit, slot = 0,
    mark = ours.mark, place = place or ''}
  if limit > 0 then
    l.slot = take(limit)
    ours.mark, ours.room = false, true
  end
  redis.call('ZADD', K[5], string.format('%.0f', ms + px), value)
  write(value, l)
  ours.n, ours.least, ours.px = ours.n + 1, math.min(ours.least, limit > 0 and limit or math.huge), math.max(ours.px, px)
  if not ours.newest or fence > ours.newest then ours.newest = fence end
  ours.mute, ours.stale = ours.mute or state == 'm' or state == 'M', true
  return l
end
local function hand(e)
  if not e[10] then
    if not handover(e, ours.newest, ours.wrote, ours.mark) then return false end
    ours.alone = e[1]
    return true
  end
  local fence, state = string.rep('0', 16), 'C'
  if e[9] == '' then fence, state = heirs(ours.newest), 'c' end
  if not fence then return false end
  redis.call('ZREM', K[3], e[1])
  redis.call('HDEL', K[4], sub(e[1], 1, 26))
  add(e[1], fence, state, e[10], tonumber(e[5]), nil, e[2] .. ' ' .. e[8])
  handed = math.max(handed or 0, tonumber(e[5]))
  return true
end
local function admit(me)
  local at
  for _ = 1, 32 do
    local e, why
    e, why, at = first(me, true, fits, at)
    if not e or why or e[1] == me then return e, why end
    if ours.alone or not fits(e[10]) then return e, 'shut' end
    if not hand(e) then return e, 'mute' end
    if ours.alone then return e, 'shut' end
  end
  return nil, 'more'
end
local function letIn()
  local e, why = admit(false)
  if why == 'more' and not handed then hail() end
  return e, why
end
function usher(e, grant, gap, me)
  survey(nil, nil, gap)
  ours.newest, ours.wrote, ours.grant = grant and sub(grant, 28, 43), grant and wrote(grant), redis.call('EXISTS', K[2]) == 1
  local _, why = nil, 'mute'
  if hand(e) then _, why = admit(me) end
  settle()
  return why
end
local function opens(limit)
  local at = -1 -- all have to go
  if limit and ours.n < math.huge then
    local room = math.min(ours.least, limit > 0 and limit or math.huge)
    if ours.n >= room then at = ours.n - room end
  end
  local last = redis.call('ZRANGE', K[5], at, at, 'WITHSCORES')
  return last[1], tonumber(last[2])
end
function holder(limit, left)
  if ours.alone then return ours.alone, left, sub(redis.call('GET', K[2]), 1, 59) end
  if not ours.lock then return nil, left, '' end
  local last, at = opens(limit)
  local text = ours.n < math.huge and last and redis.call('HGET', K[6], last)
  if not text then return ours.lock, left, '' end
  if left >= 0 then left = math.max(1, at - ms) end
  return last, left, sub(last, 1, 27) .. string.match(text, '^%d+ %d+ %a %d+ %d+')
end
local function stand(value, l, as, ttl, fences, h, how, refuse)
  local ends = tonumber(redis.call('ZSCORE', K[5], value) or 0)
  if ends <= ms and redis.call('PTTL', K[1]) ~= -1 then return nil end
  if how == 'convert' and (l.pending or h and l.fence < h) then return refuse(0) end
  local n, changed = 1, l.pending
  if l.pending then
    if h then
      local least
      n, least = allow(h, ours.wrote, fences, 'shared', ours.newest)
      if not n then return refuse(3, nil, least) end
    end
    later(K[1], ttl) -- takes no memory, and after it nothing is refused for that
    if h then
      cover(h)
      l.fence, l.state = h, 'C'
    end
    if not h and not (l.state == 'c' and fences == 1) then l.fence, n = mint(fences, ours.newest), fences end
    l.state, l.place, l.pending = as, '', false
    if l.limit == 0 then l.mark = ours.mark end -- one beside it may not have finished since
    ours.mute = ours.mute or as == 'm' or as == 'M'
  else
    if how == 'raise' and h ~= l.fence then
      local least = floor(ours.wrote)
      if least < l.fence then least = l.fence end
      if h < l.fence or not near(h, least) then return refuse(3, nil, least) end
      later(K[1], ttl)
      cover(h)
      l.fence, changed = h, true
    end
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
  if left > longest then left = longest end
  return {1, l.fence, l.mark and 1 or 0, left, n, tonumber(l.slot)}
end
local function convert(value, ttl, h, limit, grant, refuse)
  local state = grant and sub(grant, 59, 59)
  local fence = grant and sub(grant, 28, 43)
  if not state or sub(grant, 1, 26) ~= sub(value, 1, 26) or not string.find(state, '[hmHM]') or h and fence < h then
    ours = nil
    return refuse(0)
  end
  later(K[1], ttl) -- takes no memory, and after it nothing is refused for that
  local left = redis.call('PTTL', K[1])
  if left < 0 then left = ttl end
  ours.lock, ours.mark = SHARED .. stamp, false
  redis.call('SET', K[1], ours.lock, 'KEEPTTL')
  redis.call('DEL', K[5], K[6], K[7])
  local l = add(value, fence, state, limit, left, sub(grant, 45, 57))
  letIn()
  settle()
  if left > longest then left = longest end
  return {1, fence, 0, left, 1, tonumber(l.slot)}
end
function share(value, as, ttl, fences, h, how, limit, cur, grant, gone, join, refuse)
  ttl = tonumber(ttl)
  local gap
  local state = grant and sub(grant, 59, 59)
  if not cur or sub(cur, 1, 27) == SHARED then gap = unfinished(grant) end
  local done = survey(cur, grant, gap)
  local alone = cur and sub(cur, 1, 27) ~= SHARED
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
        redis.call('HDEL', K[4], sub(value, 1, 26))
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
function leave(value, GONE, wary, unclaimed, upto, ending, cur, grant)
  local alone = cur and sub(cur, 1, 27) ~= SHARED
  local done = survey(cur, grant, unfinished(grant))
  local owner = sub(value, 1, 26)
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
    if ours.mark and ours.stale and sub(grant or '', 1, 27) == SHARED then -- it stays beside the peer that has the key now
      redis.call('SET', K[2], sub(grant, 1, 59) .. '!' .. sub(grant, 61), 'KEEPTTL')
    end
    ours = nil
    if rank == 0 then lead() end
    return result
  end
  if ours.n == 0 and ours.lock then vacate() end
  local e, why
  local may = done and redis.call('EXISTS', K[3]) == 1
  may = may and votes(KEYS[2])
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
end
end
local function request()
  local kind, value, a = ARGV[argsAt], ARGV[argsAt + 1], argsAt + 2
  local lock, grant, line = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
  if kind == 'd' or kind == 'b' then
    local got = call('MGET', lock, grant)
    local above = kind == 'b' and got[2] and sub(got[2], 28, 43) > ARGV[a]
    if got[1] == value and not above and call('EXISTS', line) == 0 then
      call('DEL', lock)
      if got[2] then call('SET', grant, sub(got[2], 1, 58) .. 'F', 'KEEPTTL') end
      return 1
    end
  elseif kind ~= 'r' and kind ~= 'u' and kind ~= 'x' then
    if not votes(KEYS[2]) then return {4} end
    if tonumber(ARGV[a]) > longest then return {5, longest} end
    if (kind == 'p' or kind == 'h' or kind == 'm') and call('EXISTS', lock, line, KEYS[keysAt + 4]) == 0 then
      local was = call('GET', grant)
      if not was or sub(was, 59) == 'F' then
        local told, fence, as = was and sub(was, 28, 43), ARGV[a + 1], ARGV[a + 2]
        if kind == 'p' then
          local ok, least = allow(fence, told, 1)
          if not ok then return {3, '', -2, 0, '', 0, least} end
          cover(fence)
        else
          fence, as = mint(1, told), kind
        end
        call('SET', lock, value, 'PX', ARGV[a])
        call('SET', grant, sub(value, 1, 26) .. ' ' .. fence .. ' ' .. sub(stamp, 1, 13) .. ' ' .. as,
          'PX', lasting(ARGV[a] + KEEP, fence))
        return fence
      end
    end
  end
  if not try then slow() end
  K = {lock, grant, line, KEYS[keysAt + 3]}
  local gone = KEYS[keysAt + 4]
  if kind == 'd' or kind == 'u' then return release(value, nil, nil, kind == 'u') end
  if kind == 'b' then return release(value, nil, nil, false, ARGV[a]) end
  if kind == 'r' then return release(value, gone, ARGV[a], false) end
  if kind == 'p' then return try(value, gone, ARGV[a + 2], ARGV[a], ARGV[a] + KEEP, 1, '', 0, ARGV[a + 1], '') end
  if kind == 'P' then
    return try(value, gone, ARGV[a + 2], ARGV[a], ARGV[a] + KEEP, tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5],
      ARGV[a + 1], ARGV[a + 6])
  end
  if kind == 'x' then
    local wary, upto = ARGV[a], ARGV[a + 1]
    return release(value, wary ~= '' and gone, wary, false, upto ~= '' and upto, ARGV[a + 2])
  elseif kind == 's' then
    local h, how = ARGV[a + 6], ARGV[a + 7]
    return try(value, gone, ARGV[a + 1], ARGV[a], ARGV[a] + KEEP, tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5],
      h ~= '' and h, how, tonumber(ARGV[a + 2]))
  end
  local linger = ARGV[a] + KEEP
  if kind == 'h' or kind == 'm' then return try(value, gone, kind, ARGV[a], linger, 1, '', 0) end
  return try(value, gone, string.lower(kind), ARGV[a], linger, tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4])
end
local function run()
  caller, handed = nil, nil
  local answer = request()
  if handed then post(handed) end
  return answer
end
if ARGV[1] == '1' then return {run(), life} end
local args = {h = 2, m = 2, H = 5, M = 5, p = 3, P = 7, s = 8, r = 1, d = 0, u = 0, b = 1, x = 3}
local out = {}
for i = 1, tonumber(ARGV[1]) do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[argsAt]
  keysAt = keysAt + ((kind == 'd' or kind == 'u' or kind == 'b') and 4 or 5)
  argsAt = argsAt + 2 + args[kind]
end
out[#out + 1] = life
return out
