-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Looks at the node record, and has the node wait where there is none of this
-- run of the server.
-- KEYS  1 record, see node.lua
-- ARGV  1 a nonce that was never used
-- Answers the record and which run of the server this is; empty texts of a server
-- that does not say which.
local sub = string.sub
<<template "life" .>>
if not life then return {'', ''} end
local record = redis.call('GET', KEYS[1]) or ''
if not string.find(record, '^ok ' .. life .. ' %d+$') and not string.find(record, '^wait ' .. life .. ' %S+$') then
  record = 'wait ' .. life .. ' ' .. ARGV[1]
  redis.call('SET', KEYS[1], record)
end
return {record, sub(life, 1, 16)}
