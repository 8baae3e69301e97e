-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/detach.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local KEEP = 61000
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
local got = call('MGET', KEYS[1], KEYS[2])
local lock, grant = got[1], got[2]
if not grant or sub(grant, 77) ~= ' @' .. sub(KEYS[3], -26) then return 0 end
look()
local session, lasts = call('PTTL', KEYS[3]), call('PTTL', KEYS[1])
local left = session == -1 and lasts or session
local stands = lock and sub(lock, 1, 26) == sub(grant, 1, 26)
if not stands or lasts == -1 then
  call('PEXPIRE', KEYS[2], KEEP)
elseif left == -2 then
  call('DEL', KEYS[1])
else
  call('PEXPIRE', KEYS[1], math.max(left, 1))
end
local px, fence, mark = math.max(left, 0) + KEEP, sub(grant, 28, 43), sub(grant, 60, 60) == '!' and '!' or ''
call('SET', KEYS[2], sub(grant, 1, 59) .. mark, 'PX', px + (fence > stamp and math.ceil((fence - stamp) / 1000) or 0))
if session ~= -2 then call('ZADD', KEYS[3], 0, sub(grant, 1, 26)) end
return 1
