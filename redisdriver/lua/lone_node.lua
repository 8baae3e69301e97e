-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/lone.lua by go generate; DO NOT EDIT.
local SHARED = 'SHAREDLEASESAREINHASPSHARE '
local call, sub, value = redis.call, string.sub, ARGV[3]
if ARGV[2] == 'b' then
  local got = call('MGET', KEYS[4], KEYS[5])
  local grant = got[2]
  if call('EXISTS', KEYS[6]) == 1 then return {false} end
  if got[1] and sub(got[1], 1, 27) == SHARED then return {false} end
  if got[1] ~= value then -- neither a lease nor a place, unless one was handed over
    if grant and (sub(grant, 1, 26) == sub(value, 1, 26) or sub(grant, 1, 27) == SHARED) then return {false} end
    return {0, ''}
  end
  if not grant or sub(grant, 28, 43) > ARGV[4] then return {false} end
  call('DEL', KEYS[4])
  call('SET', KEYS[5], sub(grant, 1, 58) .. 'F', 'KEEPTTL')
  return {1, ''}
end
local got = call('MGET', KEYS[2], KEYS[5], KEYS[3], KEYS[1], KEYS[4])
local record, was, mark, cur = got[1], got[2], got[3], got[5]
if not record or sub(record, 1, 3) ~= 'ok ' or not mark or #mark ~= 67 or got[4] or
  not string.find(call('INFO', 'server'), '\nrun_id:' .. sub(record, 4, 43) .. '\r', 1, true) or
  call('EXISTS', KEYS[6], KEYS[8]) > 0 then
  return {false}
end
local clock = call('TIME')
local stamp = clock[1] .. sub('000000' .. clock[2], -6)
local ttl, h, most = tonumber(ARGV[4]), ARGV[5], tonumber(sub(record, 45))
local age, lead = stamp - sub(mark, 52), h - stamp
local least, told = sub(mark, 1, 16), was and sub(was, 28, 43)
if told and told > least then least = told end
if not most or ttl > most or age < 0 or age >= 20000000 then return {false} end
if cur then
  if cur == value or sub(cur, 1, 27) == SHARED then return {false} end
  return {{0, sub(cur, 1, 600), call('PTTL', KEYS[4]), 0, was and sub(was, 1, 59) or '', 0, least}, sub(record, 4, 19)}
end
if lead > 4000000 or h <= least or h > sub(mark, 35, 50) or was and sub(was, 59) ~= 'F' or call('EXISTS', KEYS[4]) == 1 then
  return {false}
end
local px = ttl + math.max(61000, most)
if lead > 0 then px = px + math.ceil(lead / 1000) end
call('SET', KEYS[4], value, 'PX', ttl)
call('SET', KEYS[5], sub(value, 1, 26) .. ' ' .. h .. ' ' .. sub(stamp, 1, 13) .. ' ' .. ARGV[6], 'PX', px)
return {h, sub(record, 4, 19)}
