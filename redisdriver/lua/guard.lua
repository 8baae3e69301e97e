-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Carries out commands unless the fence is smaller than that of a write before: see guard.go.
-- KEYS[1] is the newest fence, the others are what the commands use. ARGV: the fence, "write" or
-- "read", and of each command its number of words and these.
-- Fences are compared as decimal texts: Lua does not tell numbers above 2^53 from their neighbours.
local fence, newest = ARGV[1], redis.call('GET', KEYS[1])
if newest and not string.find(newest, '^[1-9]%d*$') then
  return redis.error_reply('HASPDATA guard ' .. string.sub(newest, 1, 64))
end
if newest and (#newest > #fence or #newest == #fence and newest > fence) then
  return {newest}
end
if ARGV[2] == 'write' and newest ~= fence then
  redis.call('SET', KEYS[1], fence)
end
local replies, at = {'', {}}, 3
while ARGV[at] do
  local last = at + tonumber(ARGV[at])
  replies[2][#replies[2] + 1] = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return replies
