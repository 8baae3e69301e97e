-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/keep.lua by go generate; DO NOT EDIT.
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
local caller -- nobody in particular, see batch.lua
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
local FREE = 4398046511104 -- 2^42; no limit is above a quarter of it
local function smallest()
  local front = redis.call('ZRANGE', K[7], 0, 0, 'WITHSCORES')
  local limit = tonumber(front[2] or FREE)
  return limit < FREE / 2 and limit or math.huge, #front > 0
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
if not votes(KEYS[#KEYS]) then return 0 end
look()
local function beside(limit)
  local side, at = sub(K[3], 11), -1
  local shares = 'hasp.shares:' .. side
  if limit then
    K[7] = 'hasp.room:' .. side
    local n, room = redis.call('ZCARD', shares), math.min(smallest(), limit > 0 and limit or math.huge)
    if n < room then return 1 end
    at = n - room
  end
  local last = redis.call('ZRANGE', shares, at, at, 'WITHSCORES')[2]
  return last and math.max(1, last - ms)
end
local function watch(limit)
  local cur = redis.call('MGET', K[1])[1]
  local left = redis.call('PTTL', K[1])
  if left == -2 then return 1 end -- free
  local grant = cur and redis.call('GET', K[2])
  local tells = grant and sub(grant, 1, 26) == sub(cur, 1, 26)
    and string.find(sub(grant, 59, 59), '[hcHCs]')
  if left > 0 and cur and sub(cur, 1, 27) == SHARED then left = beside(limit) or left end
  if tells and left >= 0 then return left + 1 end
  return (left < 0 or left > 100) and 100 or left + 1
end
local out, arg = {}, 1
for key = 1, #KEYS - 3, 4 do
  K = {KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]}
  local n, at, outlives, any = tonumber(ARGV[arg]), {}, 0, nil
  for i = arg + 1, arg + 2 * n, 2 do
    local value, patience, owner = ARGV[i], ARGV[i + 1], sub(ARGV[i], 1, 26)
    local number, place = redis.call('ZSCORE', K[3], value), nil
    if number then
      local got = redis.call('HMGET', K[4], owner, '?')
      local head, tail = string.match(got[1] or '', '^%d+ %d+( %d+ %aP?S?%d*)!?( %S+)$')
      place = head
      if place then
        redis.call('HSET', K[4], owner, sub(stamp, 1, 13) .. ' ' .. patience .. head .. tail)
        if got[2] then alive(number, got[2]) end
        at[value] = #out + 1
        any = any or at[value]
        outlives = math.max(outlives, tonumber(patience))
      end
    end
    out[#out + 1] = place and 0 or -1
  end
  if outlives > 0 then
    outlast(K[3], outlives + LINGER)
    outlast(K[4], outlives + LINGER)
    local e, why = first(false, false)
    local mine, after = e and at[e[1]], e and watch(e[10]) or 1
    if mine or after == 1 and (e or why) then out[mine or any] = after end
  end
  arg = arg + 2 * n + 1
end
return out
