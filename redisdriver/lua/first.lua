-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who is first in the queue: included after queue.lua.

local function entry(value, number, place)
  local contact, patience, claim, mode, how, limit, missed, inbox =
    string.match(place, '^(%d+) (%d+) (%d+) (%a)([PE]?%x*)S?(%d*)(!?) (%S+)$')
  local strange = false
  if not contact then
    local at, lasts = string.match(place, '^(%d+) (%d+) ')
    strange = F.newer(place) or at and at + lasts > ms
  end
  return {value = value, number = number, contact = tonumber(contact), patience = tonumber(patience), claim = claim,
    mode = mode, inbox = inbox, place = place, how = how, limit = tonumber(limit), missed = missed, strange = strange}
end

-- strike adds to the strikes that an inbox did not answer at that time.
local function strike(strikes, inbox, at)
  local others = {}
  for name, when in string.gmatch(strikes, '(%S+) (%d+);') do
    if name ~= inbox and #others < 50 then others[#others + 1] = name .. ' ' .. when .. ';' end
  end
  return inbox .. ' ' .. at .. ';' .. table.concat(others)
end

-- notify sends a hint to an inbox about a place in the queue, which says so much before that:
-- "+<ms> ", to look then; or as offer in serve.lua says. Answers the number of receivers, or nil when this user may
-- not publish there.
local function notify(e, says)
  local text = (says or '') .. F.about(e.value)
  local command = (e.mode == 'N' or e.mode == 'C') and 'SPUBLISH' or 'PUBLISH'
  local n = redis.pcall(command, e.inbox, text)
  if type(n) == 'table' then return nil end
  return n
end

-- struck: a contact or a strike that is ahead of the clock is of a time before
-- the clock was set back. Such a contact is no sign of life, and such a strike
-- says nothing about those that came since.
local function struck(strikes, e)
  if e.missed ~= '' then return true end
  if strikes == '' then return false end
  local _, last = string.find(strikes, e.inbox .. ' ', 1, true)
  local at = last and tonumber(string.match(strikes, '^%d+', last + 1))
  return at ~= nil and at <= ms and (e.contact <= at or e.contact > ms)
end

-- unstrike takes the strike from the inbox of the one that asks: its process lives,
-- and may only have been slow.
local function unstrike(strikes)
  if not caller then return strikes end
  local from, to = string.find(strikes, caller .. ' ', 1, true)
  if not from then return strikes end
  strikes = sub(strikes, 1, from - 1) .. string.gsub(sub(strikes, to + 1), '^%d+;', '')
  call('HSET', K.places, '!', strikes)
  call('HDEL', K.places, '?')
  return strikes
end

-- beyond answers the rank behind those that are known to be passed over, nil
-- when nobody knows; and whether me is one of them.
local function beyond(upTo, at, me)
  local number, time = string.match(upTo or '', '^(%S+) (%d+)$')
  if not number or tonumber(time) > ms or tonumber(time) + 1000 < ms then return nil end
  local mine = me and call('ZSCORE', K.queue, me)
  if mine and tonumber(mine) <= tonumber(number) then return nil, true end
  local rank = call('ZCOUNT', K.queue, '-inf', number)
  return rank > at and rank or nil
end

-- first finds the first live place that may be given the key; me is always
-- one. Places without a sign of life are taken out on the way. One that may have the key, for which
-- offer has a text, is sent a hint, and first goes on to the next when nobody listens there; without
-- offer there are no hints.
-- Second result: 'mute', the place cannot get a hint; 'more', the search was cut
-- short at its bound and the next call goes on; 'strange', K.strange is a place of another layout, which nothing
-- here may overtake or take out. Third: where in the queue the search
-- ended, from which a next one may go on when what was found has left. Fourth: the live place right behind
-- what was found first, with where it is then, if it was seen.
local function first(me, offer, from)
  local at, size, passed = from or 0, 1, nil
  for round = 1, 11 do
    local ids = call('ZRANGE', K.queue, at, at + size, 'WITHSCORES') -- one more than is looked for
    if #ids == 0 then
      if passed and round > 2 then call('HSET', K.places, '?', passed .. ' ' .. string.format('%.0f', ms)) end
      return nil
    end
    local owners = {}
    for i = 1, #ids, 2 do owners[#owners + 1] = F.owner(ids[i]) end
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
