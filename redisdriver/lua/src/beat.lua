-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A sign of life of a session, which prolongs all that is attached to it, see session.go.
-- KEYS  1 session, then locks that are looked at
-- ARGV  1 TTL, ms  2 whether to say which run of the server this is, "1" or ""  3… the owner that each lock had, and then owners that are not to be named again
-- Answers a list: that run, "" where this user may not ask; the owners whose leases are not attached any
-- more, until they are again; the owners whose locks are not as they were. Nothing: there is no such session.
local call, sub = redis.call, string.sub
<<template "runs" .>>
local n, asks = #KEYS - 1, ARGV[2] == '1'
if call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then return {} end
local lost = {}
if n > 0 then
  for i, value in ipairs(call('MGET', unpack(KEYS, 2))) do
    if not value or <<owner "value">> ~= ARGV[2 + i] then lost[#lost + 1] = ARGV[2 + i] end
  end
end
local named = call('ZRANGE', KEYS[1], 0, <<.Named>>)
if #named > <<.Named>> then return {} end -- too many to name: all ask for themselves
if #ARGV > 2 + n then call('ZREM', KEYS[1], unpack(ARGV, 3 + n)) end
return {asks and run() or '', named, lost}
