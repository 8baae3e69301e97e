-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Looks at the node record, and has the node wait where there is none of this
-- run of the server.
-- KEYS  1 record, see node.lua
-- ARGV  1 a nonce that was never used
-- Answers the record and which run of the server this is; empty texts of a server
-- that does not say which.
local call, sub = redis.call, string.sub
--# include run
if not run then return {'', ''} end
local record = call('GET', KEYS[1]) or ''
local known = string.find(record, '^ok ' .. run .. ' %d+$') or string.find(record, '^wait ' .. run .. ' %S+$')
if not known and not F.newer(record) then
  record = 'wait ' .. run .. ' ' .. ARGV[1]
  call('SET', KEYS[1], record)
end
return {record, sub(run, 1, 16)}
