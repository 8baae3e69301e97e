-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- One attempt to hold a key; joins the line when refused and asked to.
-- KEYS  1 lock  2 grant  3 line  4 places  5 mark  6 gone, see line.lua
-- ARGV  1 "<owner> <label>"  2 TTL, ms  3 TTL + LINGER, ms
--       4 state of a grant: h, or m for one that may not PUBLISH
--       5 "" or, to join, what follows contact in a place  6 its patience, ms
-- Answers
--   fence: granted, and nobody was in doubt about it
--   {1, fence, 1 when the holder before did not release, ms the lease lasts
--       or 0: as long as was asked}
--   {0, value of the holder or "", ms left as PTTL says, places before,
--       first 59 bytes of grant, 1 when the search for the next was cut short}
--   {2, …} as 0: refused because this owner was released
--   {-1, type} the lock key holds something that is not a lock
local owner = string.sub(ARGV[1], 1, 26)

if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[6]) == 0 then -- free, and never in doubt
  local clock = redis.call('TIME')
  local fence = clock[1] .. string.sub('000000' .. clock[2], -6) -- us: 16 digits until 2286
  local ms, last, keep = string.sub(fence, 1, 13), redis.call('GET', KEYS[5]), '86400000'
  if last and #last == 16 and last >= fence then -- the clock stands, or was set back
    fence = string.format('%.0f', last + 1)
    keep = math.floor(fence / 1000) - ms + 86400000
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('SET', KEYS[2], owner .. ' ' .. fence .. ' ' .. ms .. ' ' .. ARGV[4], 'PX', ARGV[3])
  redis.call('SET', KEYS[5], fence, 'PX', keep)
  return fence
end

--@ line.lua

local got = redis.call('MGET', KEYS[1], KEYS[2], KEYS[6])
local cur, grant, gone = got[1], got[2], got[3]
local state = grant and string.sub(grant, 59, 59)

local function hold(fence, gap)
  record(owner, fence, ARGV[4], ARGV[3])
  return {1, fence, gap, 0}
end

if cur == ARGV[1] and not gone then
  later(KEYS[1], ARGV[2])
  if not grant or string.sub(grant, 1, 26) ~= owner then return hold(mint(), 0) end
  local fence = string.sub(grant, 28, 43)
  if state == 'c' then return hold(fence, 0) end
  later(KEYS[2], ARGV[3])
  return {1, fence, 0, redis.call('PTTL', KEYS[1])}
end

-- join takes the last place, or gives the one there is a sign of life.
local function join()
  if ARGV[5] == '' or gone then return end
  if not redis.call('ZSCORE', KEYS[3], ARGV[1]) then
    local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2] or '0'
    redis.call('ZADD', KEYS[3], string.format('%.0f', last + 1), ARGV[1])
  end
  redis.call('HSET', KEYS[4], owner, string.format('%013.0f %s', ms, ARGV[5]))
  outlast(KEYS[3], ARGV[6] + LINGER)
  outlast(KEYS[4], ARGV[6] + LINGER)
end

local function refuse(cut)
  local ahead = redis.call('ZRANK', KEYS[3], ARGV[1]) or redis.call('ZCARD', KEYS[3])
  return {gone and 2 or 0, cur and string.sub(cur, 1, 600) or '', redis.call('PTTL', KEYS[1]),
    ahead, grant and string.sub(grant, 1, 59) or '', cut and 1 or 0}
end

if cur or gone then
  join()
  return refuse()
end

-- Nobody holds the key, but somebody waits, or the last holder left no word.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' then return {-1, kind} end
local gap = (state == 'h' or state == 'm') and 1 or 0
if state == 'c' then restore(grant) end
grant = nil
local mine = redis.call('ZSCORE', KEYS[3], ARGV[1])
local e, why = first(mine and ARGV[1], true)
if e and e[1] ~= ARGV[1] then
  if why then
    join()
    return refuse(true)
  end
  handover(e)
  cur, grant = e[1], redis.call('GET', KEYS[2])
  join()
  return refuse()
elseif not e and why then
  join()
  return refuse(true)
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], owner)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return hold(mint(), gap)
