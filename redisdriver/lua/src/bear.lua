-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs one lease of an owner who is the only holder, and nothing beside the lock: a
-- cluster carries out no script with several keys while their slot moves to another master.
-- KEYS  1 lock
-- ARGV  1 "<owner> <label>"  2 TTL, ms
-- Answers 1: it stands, or 0: nobody knows.
local call = redis.call
<<template "later" .>>
if call('MGET', KEYS[1])[1] ~= ARGV[1] then return 0 end
later(KEYS[1], ARGV[2])
return 1
