-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/attach.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local KEEP = 61000 -- ms the largest fence of a key is kept after its lease, see fences.lua
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    return call('PEXPIRE', key, px, 'GT')
  end
  local left = call('PTTL', key)
  return left >= 0 and left < tonumber(px) and call('PEXPIRE', key, px) or 0
end
local function run()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, '\nrun_id:(' .. string.rep('%x', 40) .. ')\r') or ''
end
local session, ttl, long = KEYS[1], ARGV[1], ARGV[2]
local n = math.floor((#KEYS - 1) / 3)
local held, grants = call('MGET', unpack(KEYS, 2, n + 1)), call('MGET', unpack(KEYS, n + 2, 2 * n + 1))
if ARGV[3] == '1' then
  call('ZADD', session, 0, '!')
  call('PEXPIRE', session, ttl)
elseif later(session, ttl) == 0 and call('PTTL', session) < 0 then
  return {}
end
local id = sub(session, -26)
local keep = string.format('%.0f', long + KEEP)
local waited = call('EXISTS', unpack(KEYS, 2 * n + 2, 3 * n + 1)) > 0
local out = {run()}
for i = 1, n do
  local lock, key, grant = KEYS[1 + i], KEYS[1 + n + i], grants[i]
  out[1 + i] = 0
  if held[i] == ARGV[3 + i] and grant and sub(grant, 1, 26) == sub(held[i], 1, 26) then
    local asks = sub(grant, 77)
    if asks == ' @' .. id then
      later(lock, long)
      later(key, keep)
      out[1 + i] = 1
    elseif sub(grant, 59, 59) == 'h' and asks == '' and not (waited and call('EXISTS', KEYS[1 + 2 * n + i]) == 1) then
      local left, mark, most = call('PTTL', lock), sub(grant, 60, 60), sub(grant, 61, 76)
      if left > 0 and left <= tonumber(ttl) then
        if mark ~= '!' then mark = ' ' end
        if most == '' then most = sub(grant, 28, 43) end
        call('SET', key, sub(grant, 1, 59) .. mark .. most .. ' @' .. id, 'PX', keep)
        call('PEXPIRE', lock, long)
        call('ZREM', session, sub(grant, 1, 26))
        out[1 + i] = 1
      end
    end
  end
end
return out
