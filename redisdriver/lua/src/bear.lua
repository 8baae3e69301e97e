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
<<template "later" .>>
if string.sub(call('MGET', KEYS[1])[1] or '', 1, ARGV[2]) ~= ARGV[1] then return 0 end
later(KEYS[1], ARGV[3])
return 1
