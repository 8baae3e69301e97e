-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- release gives up a lease, which goes to the next live place in line, or a
-- place. With GONE this owner is granted nothing more for a while; with upto a
-- lease with a larger fence stays. ending is "unused", "unfinished", or nil: it
-- finished, see driver.End. Answers
-- 1 lease, 2 place, 0 neither, 3 lease, but the next could not be told.
--
-- The first write takes no memory, and Redis then lets a script finish: a
-- server that is full still frees a key and hands it over.
function release(value, GONE, wary, unclaimed, upto, ending)
  local owner = <<owner "value">>
  ours = nil

  local got = redis.call('MGET', K[1], K[2]) -- nothing where it is no string: not ours
  local grant = sound(got[2])
  local state = grant and <<state "grant">> or ''
  local pending = grant and <<owner "grant">> == owner and string.find(state, '[cC]') -- never came for it

  if state == 's' or state == 'S' or got[1] and <<shared "got[1]">> then
    if not share then sharing() end
    return leave(value, GONE, wary, unclaimed, upto, ending, got[1], grant)
  end

  if got[1] == value then
    if unclaimed and not pending then return 0 end
    local told = grant and <<fence "grant">>
    if upto and told and told > upto and not pending then return 0 end
    local gap = grant and <<mark "grant">> == '!'
    if not pending then gap = ending == 'unfinished' and grant or gap and ending == 'unused' end
    local keep = grant<<if not .Node>> and (gap or string.find(state, '[HMC]'))<<end>>
    redis.call('DEL', K[1], keep and K[1] or K[2])
    if keep then remember(grant, gap) end
    if GONE then redis.call('SET', GONE, '', 'PX', wary) end
    if redis.call('EXISTS', K[3]) == 0 then return 1 end
<<if .Node>>
    if not votes(KEYS[2]) then return 1 end
<<end>>
    local e, why = first(false, true)
    if e and not why then
      if e[10] then
        if not share then sharing() end
        why = usher(e, grant, gap, false)
      elseif not handover(e, told, grant and wrote(grant), gap) then
        why = 'mute'
      end
    end
    if why == 'more' and not handed then hail() end
    return why == 'mute' and 3 or 1
  end

  local rank, given = redis.call('ZRANK', K[3], value), pending
  if rank or given then
    redis.call('ZREM', K[3], value)
    redis.call('HDEL', K[4], owner)
  end
  if given then remember(grant, <<mark "grant">> == '!') end -- or its place would come back
  -- May fail where the server is full: a Try that comes late then keeps the key for its TTL.
  if GONE then redis.pcall('SET', GONE, '', 'PX', wary) end
  local leads = rank == 0 or given
<<if .Node>>
  leads = leads and votes(KEYS[2])
<<end>>
  if leads then lead() end
  return (rank or given) and 2 or 0
end
