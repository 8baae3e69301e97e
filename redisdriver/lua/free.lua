-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- An Exclusive request for a key that is free, and the release of one that nobody
-- waits for. All others go on behind this, in try.lua and release.lua. For a request that
-- came alone (lone) what would be functions stands here.

--# part take
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, F.grant(value, fence, millis, state), 'PX', keep)
--# end part

--# part step
-- The fence is the clock, as nearly always: the mark is behind it, and its expiry, which mint sets, was set
-- in these 1,000 seconds. Else the mark is put back, and mint does it.
if redis.REDIS_VERSION_NUM then -- since 7.0; GET beside KEEPTTL is older
  if not stamp then look() end
  local last = call('SET', KEYS[1], stamp, 'KEEPTTL', 'GET')
  if last and #last == 16 and last < stamp and last >= F.kilo(stamp) and not string.find(last, '%D') then
    fence = stamp
  elseif last then
    call('SET', KEYS[1], last, 'KEEPTTL')
  else
    call('DEL', KEYS[1])
  end
end
--# end part

local kind, at = ARGV[argsAt], argsAt
local value = F.arg('value', 'try propose tryAny release withdraw releaseAny')
local lockKey, grantKey, queueKey = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
--# if not node
--# if not lone
local cur
--# end
if kind == 'try' then
--# if lone
  inWay = call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])
--# end
  if F.lone(inWay, (inWay or call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7]))) == 0 then
    local ttl, state, keep = F.arg('ttl', 'try'), F.arg('state', 'try'), F.arg('keep', 'try')
--# if lone
    local fence
--# include step
    if fence then
--# include take
      return F.reply(fence)
    end
--# else
    local fence = mint(1)
--# include take
    return fence
--# end
  end
elseif kind == 'release' then
--# if lone
  seen = call('MGET', lockKey, grantKey) -- nothing where it is no string: not ours
  inWay = seen[1] == value and call('EXISTS', queueKey)
  if inWay == 0 and not (seen[2] and F.mayBeNewer(seen[2])) then
    call('DEL', lockKey, grantKey)
    return F.reply(1)
  end
--# else
  local got = seen or call('MGET', lockKey, grantKey)
  cur = got[1]
  if not seen and cur == value and call('EXISTS', queueKey) == 0 and not (got[2] and F.mayBeNewer(got[2])) then
    call('DEL', lockKey, grantKey)
    return 1
  end
--# end
end
--# end
--# if node
-- The same at a node, which remembers the fence of a free key, and answers at once
-- that another has the vote, or that there is none to withdraw.
if kind == 'release' or kind == 'withdraw' then
  local got = call('MGET', lockKey, grantKey)
  local cur, was = got[1], got[2]
  if call('EXISTS', queueKey) == 0 and not (was and F.mayBeNewer(was)) then
    if cur == value and (kind == 'release' or not was or F.fence(was) <= F.arg('upTo', 'withdraw')) then
      call('DEL', lockKey)
      if was then call('SET', grantKey, F.ended(was), 'KEEPTTL') end
      return F.reply(1)
    end
    local mine = cur == value or was and F.owner(was) == F.owner(value)
    local among = cur and F.shared(cur) or was and F.shared(was)
    if not mine and not among then return F.reply(0) end
  end
elseif F.lone(kind == 'propose', kind ~= 'releaseAny') then
  local ttl = F.arg('ttl', 'try propose tryAny')
--# if lone
--# include vote
--# else
  votes()
--# end
  if not longest then return F.reply({4}) end
  if tonumber(ttl) > longest then return F.reply({5, longest}) end
  local inWay, cur, was = kind ~= 'tryAny' and call('EXISTS', lockKey, queueKey, KEYS[keysAt + 7]), nil, nil
  if inWay == 0 then
    was = call('GET', grantKey)
  elseif inWay == 1 then
    local got = call('MGET', lockKey, grantKey)
    cur, was = got[1], got[2]
  end
  local taken = cur and cur ~= value and F.unshared(cur) -- and nobody waits
  if (taken or inWay == 0 and (not was or F.state(was) == 'F')) and not (was and F.mayBeNewer(was)) then
    local fence, had, least, n = kind == 'propose' and F.arg('fence', 'propose'), was and F.fence(was), nil, 1
    if fence then
--# if lone
--# include marks
      least = had
--# include floor
      n = near and fence > least
--# else
      n, least = allow(fence, had, 1)
--# end
    end
    if taken then
      local left, head = call('PTTL', lockKey), was and F.head(was) or ''
      return F.reply({0, sub(cur, 1, 600), left, 0, head, 0, least or ''})
--# if lone
    elseif not n and not turned then
--# else
    elseif not n then
      cover(markCur)
--# end
      return F.reply({3, '', -2, 0, '', 0, least})
    end
--# if lone
    if not turned and fence <= markCur then
--# else
      if fence then cover(fence) end
      fence = fence or mint(1, had)
--# end
      local state, keep = F.arg('state', 'try propose'), F.lasting(ttl + KEEP, fence)
--# include take
      return F.reply(fence)
--# if lone
    end
--# end
  end
end
--# end
