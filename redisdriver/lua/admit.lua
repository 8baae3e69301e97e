-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/admit.lua by go generate; DO NOT EDIT.
local sub = string.sub
local stamp, ms -- the server's clock, for the whole script
local function look()
  local clock = redis.call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6) -- us, 16 digits until 2286
  ms = tonumber(sub(stamp, 1, 13))
end
local MOST = 9007199254740991 -- 2^53 - 1: Lua no longer tells larger numbers from their neighbours
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= MOST then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
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
local life = string.match(redis.call('INFO', 'server'), '\nrun_id:(' .. string.rep('%x', 40) .. ')\r')
if not life or redis.call('GET', KEYS[2]) ~= ARGV[1] or not string.find(ARGV[1], '^wait ' .. life .. ' %S+$') then return 0 end
recall()
if stamp > markCur then markCur = stamp end
markOld, markMid, markAt, turned = markCur, markCur, stamp, true
cover(markCur)
redis.call('SET', KEYS[2], 'ok ' .. life .. ' ' .. ARGV[2])
return 1
