-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/admit.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= 9007199254740991 then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
end
local markOld, markMid, markCur, markAt
local minted -- no minted fence is larger; '' when nothing is known
local turned -- the mark is not stored as it is here: it was turned, or had gone
local function cover(fence)
  if not turned and fence <= markCur then return end
  local to = markCur
  if fence > to then to = string.format('%016.0f', fence + 1048576) end
  call('SET', KEYS[3], markOld .. ' ' .. markMid .. ' ' .. to .. ' ' .. markAt,
    'PX', string.format('%.0f', 86400000 / 2 + math.max(0, math.floor((to - stamp) / 1000))))
  markCur, turned = to, false
end
local run = string.match(call('INFO', 'server'), '\nrun_id:(' .. string.rep('%x', 40) .. ')\r')
if not run or call('GET', KEYS[2]) ~= ARGV[1] or not string.find(ARGV[1], '^wait ' .. run .. ' %S+$') then return 0 end
local mark, mints = call('GET', KEYS[3]), call('GET', KEYS[1])
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
if stamp > markCur then markCur = stamp end
markOld, markMid, markAt, turned = markCur, markCur, stamp, true
cover(markCur)
call('SET', KEYS[2], 'ok ' .. run .. ' ' .. ARGV[2])
return 1
