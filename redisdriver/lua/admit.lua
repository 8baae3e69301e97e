-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Lets a node vote whose record waits. What was granted before may be
-- forgotten: its fences go on above the clock.
-- KEYS  1 mark, see fences.lua  2 record, see node.lua  3 the proposals' mark
-- ARGV  1 the record as it was seen  2 the longest TTL to allow, ms
-- Answers 1, or 0: the record is another, or of another run of the server.
local call, sub = redis.call, string.sub

--# include clock
--# include counted
--# include fences
--# include cover
--# include run
if not run or call('GET', KEYS[2]) ~= ARGV[1] or not string.find(ARGV[1], '^wait ' .. run .. ' %S+$') then return 0 end
--# include marks
if stamp > markCur then markCur = stamp end
markOld, markMid, markAt, turned = markCur, markCur, stamp, true
cover(markCur)
call('SET', KEYS[2], 'ok ' .. run .. ' ' .. ARGV[2])
return 1
