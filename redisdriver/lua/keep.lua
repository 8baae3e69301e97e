-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/keep.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
local caller -- nobody in particular, see batch.lua
local K -- the keys of the queue at hand, see queue.lua
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
local entry, strike, notify
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
local smallest, opens
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
look()
local function beside(limit)
  local n, least = call('ZCARD', K.shares), smallest()
  if limit and n < math.min(least, limit > 0 and limit or math.huge) then return 1 end
  local _, at = opens(limit, n, least)
  return at and math.max(1, at - ms)
end
local function watch(limit)
  local cur = call('MGET', K.lock)[1]
  local left = call('PTTL', K.lock)
  if left == -2 then return 1 end -- free
  local grant = cur and call('GET', K.grant)
  local hints = grant and sub(grant, 1, 26) == sub(cur, 1, 26)
    and string.find(sub(grant, 59, 59), '[hcHCs]')
  if left > 0 and cur and sub(cur, 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then left = beside(limit) or left end
  if hints and left >= 0 then return left + 1 end
  return (left < 0 or left > 100) and 100 or left + 1
end
local out, arg = {}, 1
for key = 1, #KEYS - 5, 6 do
  K = {lock = KEYS[key], grant = KEYS[key + 1], queue = KEYS[key + 2], places = KEYS[key + 3], shares = KEYS[key + 4], room = KEYS[key + 5]}
  local n, at, outlives, any = tonumber(ARGV[arg]), {}, 0, nil
  for i = arg + 1, arg + 2 * n, 2 do
    local value, patience, owner = ARGV[i], ARGV[i + 1], sub(ARGV[i], 1, 26)
    local number, place, strange = call('ZSCORE', K.queue, value), nil, nil
    if number then
      local got = call('HMGET', K.places, owner, '?')
      local head, missed, tail = string.match(got[1] or '', '^%d+ %d+( %d+ %a[PE]?%x*S?%d*)(!?)( %S+)$')
      if missed == '!' then head = string.gsub(head, 'E%x*', '', 1) end -- it may have entered: only its own Try says that it waits
      place = head
      if not head and got[1] and entry(value, number, got[1]).strange then strange = sub(got[1], 1, 40) end
      if place then
        call('HSET', K.places, owner, sub(stamp, 1, 13) .. ' ' .. patience .. head .. tail)
        if got[2] then alive(number, got[2]) end
        at[value] = #out + 1
        any = any or at[value]
        outlives = math.max(outlives, tonumber(patience))
      end
    end
    out[#out + 1] = strange or place and 0 or -1
  end
  if outlives > 0 then
    outlast(K.queue, outlives + 60000)
    outlast(K.places, outlives + 60000)
    local e, why = first(false)
    local mine, after = e and at[e.value], e and watch(e.limit) or why == 'strange' and 0 or 1
    if mine or after == 1 then out[mine or any] = after end
  end
  arg = arg + 2 * n + 1
end
return out
