-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Gives up a lease, which goes to the next live place in line, or a place.
-- KEYS  1 lock  2 grant  3 line  4 places  5 mark  6 gone, see line.lua
-- ARGV  1 "<owner> <label>"  2 ms for which this owner is granted nothing more
--       3 "" or "u": a lease only when it was handed over and never claimed
-- Answers 1 lease, 2 place, 0 neither, 3 lease, but the next could not be told
--
-- The first write takes no memory, and Redis then lets a script finish: a
-- server that is full still frees a key and hands it over.
local cur = redis.pcall('GET', KEYS[1]) -- an error where it is no string: not ours
if cur == ARGV[1] and ARGV[3] == '' then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('SET', KEYS[6], '', 'PX', ARGV[2])
  if redis.call('EXISTS', KEYS[3]) == 0 then return 1 end
end

--@ line.lua

local owner = string.sub(ARGV[1], 1, 26)

-- pending says that the key was handed to this owner, who never came for it.
local function pending()
  local grant = redis.call('GET', KEYS[2])
  return grant and string.sub(grant, 1, 26) == owner and string.sub(grant, 59, 59) == 'c'
end

if cur == ARGV[1] then
  if ARGV[3] ~= '' then
    if not pending() then return 0 end
    redis.call('DEL', KEYS[1], KEYS[2])
    redis.call('SET', KEYS[6], '', 'PX', ARGV[2])
  end
  local e, why = first(false, true)
  if e and not why then handover(e) end
  return why == 'mute' and 3 or 1
end

local rank, lapsed = redis.call('ZRANK', KEYS[3], ARGV[1]), pending()
if lapsed then redis.call('DEL', KEYS[2]) end -- or its place would come back
if rank then
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('HDEL', KEYS[4], owner)
end
redis.pcall('SET', KEYS[6], '', 'PX', ARGV[2]) -- may fail: a full server grants nothing
if rank == 0 or lapsed then -- whoever is first now looks after the holder, or takes the key
  local e = first(false, false)
  if e and e[6] ~= 'p' then call(e) end
end
return (rank or lapsed) and 2 or 0
