-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Signs of life of some who wait for one fair lock.
-- KEYS: lock, about, queue, timeouts, waiters
-- ARGV: PUBLISH or SPUBLISH, channel, and then a field, a label and a patience (ms) for each
-- Replies: for each -1 it has no place, else in how many ms to look without a message

local how, channel = ARGV[1], ARGV[2]
call('HDEL', waitersKey, '') -- changes nothing; where a server is full, the writes behind it may go on
local now = clock()
tidy(now)
local answers = {}
for i = 3, #ARGV, 3 do
  local field, w = ARGV[i], waiter(ARGV[i])
  local answer = -1
  if w and w.label == ARGV[i + 1] and (w.life > now or call('LPOS', queueKey, field)) then
    answer = look(stay(field, w, now, tonumber(ARGV[i + 2])), now)
  end
  answers[#answers + 1] = answer
end
hint(how, channel)
return answers
