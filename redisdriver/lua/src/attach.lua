-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Attaches leases to a session, see session.go: each then lasts as long as the session, and Redis is told of a
-- time that no lease takes. Leases that are attached to this session already get that time again.
-- KEYS  1 session, then n locks, as many grants, and queues
-- ARGV  1 TTL, ms: of the session, and that of the leases is no longer  2 that long time, ms  3 whether to begin the session, "1" or ""
--       4… n times "<owner> <label>"
-- Answers a list: the run of the server, "" where this user may not ask, and a number for each: 1 it is attached.
-- Nothing: there is no such session.
local call, sub = redis.call, string.sub
local KEEP = <<.Keep>> -- ms the largest fence of a key is kept after its lease, see fences.lua
<<template "later" .>>
<<template "runs" .>>
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
  if held[i] == ARGV[3 + i] and grant and <<owner "grant">> == <<owner "held[i]">> then
    local asks = <<asks "grant">>
    if asks == ' @' .. id then
      later(lock, long)
      later(key, keep)
      out[1 + i] = 1
    elseif <<state "grant">> == 'h' and asks == '' and not (waited and call('EXISTS', KEYS[1 + 2 * n + i]) == 1) then
      local left, mark, most = call('PTTL', lock), <<mark "grant">>, <<most "grant">>
      if left > 0 and left <= tonumber(ttl) then
        if mark ~= '!' then mark = ' ' end
        if most == '' then most = <<fence "grant">> end
        call('SET', key, <<head "grant">> .. mark .. most .. ' @' .. id, 'PX', keep)
        call('PEXPIRE', lock, long)
        call('ZREM', session, <<owner "grant">>)
        out[1 + i] = 1
      end
    end
  end
end
return out
