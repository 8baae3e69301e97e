-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- release gives up a lease, which goes to the next live place in line, or a
-- place. With GONE this owner is granted nothing more for a while. Answers
-- 1 lease, 2 place, 0 neither, 3 lease, but the next could not be told.
--
-- The first write takes no memory, and Redis then lets a script finish: a
-- server that is full still frees a key and hands it over.
function release(value, GONE, wary, unclaimed)
  local owner = string.sub(value, 1, 26)

  -- pending says that the key was handed to this owner, who never came for it.
  local function pending()
    local grant = redis.call('GET', K[2])
    return grant and string.sub(grant, 1, 26) == owner and string.sub(grant, 59, 59) == 'c'
  end

  if redis.pcall('GET', K[1]) == value then -- an error where it is no string: not ours
    if unclaimed and not pending() then return 0 end
    redis.call('DEL', K[1], K[2])
    if GONE then redis.call('SET', GONE, '', 'PX', wary) end
    if redis.call('EXISTS', K[3]) == 0 then return 1 end
    local e, why = first(false, true)
    if e and not why then handover(e) end
    return why == 'mute' and 3 or 1
  end

  local rank, lapsed = redis.call('ZRANK', K[3], value), pending()
  if lapsed then redis.call('DEL', K[2]) end -- or its place would come back
  if rank then
    redis.call('ZREM', K[3], value)
    redis.call('HDEL', K[4], owner)
  end
  if GONE then redis.pcall('SET', GONE, '', 'PX', wary) end -- may fail: a full server grants nothing
  if rank == 0 or lapsed then -- whoever is first now looks after the holder, or takes the key
    local e = first(false, false)
    if e and e[6] ~= 'p' then call(e) end
  end
  return (rank or lapsed) and 2 or 0
end
