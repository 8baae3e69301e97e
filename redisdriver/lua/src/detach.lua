-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Makes a lease that is attached to a session an ordinary one, which lasts for what the session has left. Its holder
-- finds out with the next sign of life of the session. Where the session is over, so is the lease. What a person made
-- permanent stays so.
-- KEYS  1 lock  2 grant  3 session
-- Answers 1, or 0: it is not attached to that session
local call, sub = redis.call, string.sub
local KEEP = <<.Keep>>
<<template "clock" .>>
local got = call('MGET', KEYS[1], KEYS[2])
local lock, grant = got[1], got[2]
if not grant or <<asks "grant">> ~= ' @' .. sub(KEYS[3], -26) then return 0 end
look()
local session, lasts = call('PTTL', KEYS[3]), call('PTTL', KEYS[1])
local left = session == -1 and lasts or session
local stands = lock and <<owner "lock">> == <<owner "grant">>
-- what comes first takes no memory, and after it nothing is refused for that
if not stands or lasts == -1 then
  call('PEXPIRE', KEYS[2], KEEP)
elseif left == -2 then
  call('DEL', KEYS[1])
else
  call('PEXPIRE', KEYS[1], math.max(left, 1))
end
local px, fence, mark = math.max(left, 0) + KEEP, <<fence "grant">>, <<mark "grant">> == '!' and '!' or ''
call('SET', KEYS[2], <<head "grant">> .. mark, 'PX', <<lasting "px" "fence">>)
if session ~= -2 then call('ZADD', KEYS[3], 0, <<owner "grant">>) end
return 1
