-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- release gives up a lease, which goes to the next live place in the queue, or a
-- place. With tombstone this owner is granted nothing more for so many ms; with upTo a
-- lease with a larger fence stays. ending is "unused", "unfinished", "unclaimed" (only
-- a lease that was handed off and never claimed goes), or nil: it
-- finished, see driver.End. Answers
-- 1 lease, 2 place, 0 neither, 3 lease, but the next could not get a hint.
--
-- The first write takes no memory, and Redis then lets a script finish: a
-- server that is full still frees a key and hands it over.
local function release(r)
  local value, owner = r.value, <<owner "r.value">>
  ours = nil

  local got = call('MGET', K.lock, K.grant) -- nothing where it is no string: not ours
  local cur, grant = got[1], sound(got[2])
  local state = grant and <<state "grant">> or ''
  local pending = grant and <<owner "grant">> == owner and string.find(state, '[cC]') -- never came for it

  if state == 's' or state == 'S' or cur and <<shared "cur">> then
    if not tryShared then slowShared() end
    return releaseShared(r, cur, grant)
  end

  local abandoned = grant and <<mark "grant">> == '!'
  if cur == value then
    local newest = grant and <<fence "grant">>
    if not pending then
      if r.ending == 'unclaimed' or r.upTo and newest and newest > r.upTo then return 0 end
      abandoned = r.ending == 'unfinished' and grant or abandoned and r.ending == 'unused'
    end
    local keep = grant<<if not .Node>> and (abandoned or string.find(state, '[HMC]'))<<end>>
    call('DEL', K.lock, keep and K.lock or K.grant)
    if keep then remember(grant, abandoned) end
    if r.tombstone then call('SET', K.gone, '', 'PX', r.tombstone) end
    if call('EXISTS', K.queue) == 0 then return 1 end
<<if .Node>>
    if not votes() then return 1 end
<<end>>
    local e, why = first(false, true)
    if e and not why then
      if e.limit then
        if not tryShared then slowShared() end
        why = serveFree(e, grant, abandoned, false)
      elseif not handOff(e, newest, wrote(grant), abandoned) then
        why = 'mute'
      end
    end
    if why == 'more' and not handed then hintLast() end
    return why == 'mute' and 3 or 1
  end

  local rank = call('ZRANK', K.queue, value)
  if rank or pending then unqueue(value) end
  if pending then remember(grant, abandoned) end -- or its place would come back
  -- May fail where the server is full: a Try that comes late then keeps the key for its TTL.
  if r.tombstone then redis.pcall('SET', K.gone, '', 'PX', r.tombstone) end
  if (rank == 0 or pending)<<if .Node>> and votes()<<end>> then hintFirst() end
  return (rank or pending) and 2 or 0
end
