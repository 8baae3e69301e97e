-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs what one owner has who is the only holder: the lock, or the grant beside it. A cluster
-- carries out no script with several keys while their slot moves to another master.
-- KEYS  1 lock, or grant
-- ARGV  1 what it begins with: "<owner> <label>", or the owner alone  2 how long that is, -1: it is all of it
--       3 for how long it must last, ms
-- Answers 1: it stands, or 0: nobody knows.
local call = redis.call
--# include later
local value = call('MGET', KEYS[1])[1] or ''
if string.sub(value, 1, ARGV[2]) ~= ARGV[1] then return 0 end
if later(KEYS[1], ARGV[3]) == 0 then call('SET', KEYS[1], value, 'KEEPTTL') end -- as in extend.lua
return 1
