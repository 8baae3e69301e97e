-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- An Exclusive request for a key that is free, and the release of one that nobody
-- waits for. All others go on behind this, in try.lua and release.lua. .Lone: the request
-- came alone, and what would be functions stands here.

<<define "take">>
call('SET', lockKey, value, 'PX', ttl)
call('SET', grantKey, <<grant "value" "fence" (millis "stamp") "state">>, 'PX', keep)
<<end>>

<<define "step">>
-- The fence is the clock, as nearly always: the mark is behind it, and its expiry, which mint sets, was set
-- in these 1,000 seconds. Else the mark is put back, and mint does it.
if redis.REDIS_VERSION_NUM then -- since 7.0; GET beside KEEPTTL is older
  if not stamp then look() end
  local last = call('SET', KEYS[1], stamp, 'KEEPTTL', 'GET')
  if last and #last == 16 and last < stamp and <<kilo "last">> == <<kilo "stamp">> and not string.find(last, '%D') then
    fence = stamp
  elseif last then
    call('SET', KEYS[1], last, 'KEEPTTL')
  else
    call('DEL', KEYS[1])
  end
end
<<end>>

local kind, at = ARGV[argsAt], argsAt
local value = <<arg "value" "try propose tryAny release withdraw releaseAny">>
local lockKey, grantKey, queueKey = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
<<if not .Node>>
<<if not .Lone>>
local cur
<<end>>
if kind == 'try' then
<<if .Lone>>
  inWay = call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])
  if inWay == 0 then
<<else>>
  if (inWay or call('EXISTS', lockKey, grantKey, queueKey, KEYS[keysAt + 7])) == 0 then
<<end>>
    local ttl, state, keep = <<arg "ttl" "try">>, <<arg "state" "try">>, <<arg "keep" "try">>
<<if .Lone>>
    local fence
<<template "step" .>>
    if fence then
<<template "take" .>>
      return <<reply "fence" .>>
    end
<<else>>
    local fence = mint(1)
<<template "take" .>>
    return fence
<<end>>
  end
elseif kind == 'release' then
<<if .Lone>>
  seen = call('MGET', lockKey, grantKey) -- nothing where it is no string: not ours
  inWay = seen[1] == value and call('EXISTS', queueKey)
  if inWay == 0 and not (seen[2] and <<newer "seen[2]">>) then
    call('DEL', lockKey, grantKey)
    return <<reply "1" .>>
  end
<<else>>
  local got = seen or call('MGET', lockKey, grantKey)
  cur = got[1]
  if not seen and cur == value and call('EXISTS', queueKey) == 0 and not (got[2] and <<newer "got[2]">>) then
    call('DEL', lockKey, grantKey)
    return 1
  end
<<end>>
end
<<end>>
<<if .Node>>
-- The same at a node, which remembers the fence of a free key, and answers at once
-- that another has the vote, or that there is none to withdraw.
if kind == 'release' or kind == 'withdraw' then
  local got = call('MGET', lockKey, grantKey)
  local cur, was = got[1], got[2]
  if call('EXISTS', queueKey) == 0 and not (was and <<newer "was">>) then
    if cur == value and (kind == 'release' or not was or <<fence "was">> <= <<arg "upTo" "withdraw">>) then
      call('DEL', lockKey)
      if was then call('SET', grantKey, <<ended "was">>, 'KEEPTTL') end
      return <<reply "1" .>>
    end
    local mine = cur == value or was and <<owner "was">> == <<owner "value">>
    local among = cur and <<shared "cur">> or was and <<shared "was">>
    if not mine and not among then return <<reply "0" .>> end
  end
elseif kind <<if .Lone>>== 'propose'<<else>>~= 'releaseAny'<<end>> then
  local ttl = <<arg "ttl" "try propose tryAny">>
<<if .Lone>>
<<template "vote" .>>
<<else>>
  votes()
<<end>>
  if not longest then return <<reply "{4}" .>> end
  if tonumber(ttl) > longest then return <<reply "{5, longest}" .>> end
  local inWay, cur, was = kind ~= 'tryAny' and call('EXISTS', lockKey, queueKey, KEYS[keysAt + 7]), nil, nil
  if inWay == 0 then
    was = call('GET', grantKey)
  elseif inWay == 1 then
    local got = call('MGET', lockKey, grantKey)
    cur, was = got[1], got[2]
  end
  local taken = cur and cur ~= value and <<unshared "cur">> -- and nobody waits
  if (taken or inWay == 0 and (not was or <<state "was">> == 'F')) and not (was and <<newer "was">>) then
    local fence, had, least, n = kind == 'propose' and <<arg "fence" "propose">>, was and <<fence "was">>, nil, 1
    if fence then
<<if .Lone>>
<<template "marks" .>>
      least = had
<<template "floor" .>>
      n = near and fence > least
<<else>>
      n, least = allow(fence, had, 1)
<<end>>
    end
    if taken then
      local left, head = call('PTTL', lockKey), was and <<head "was">> or ''
      return <<reply (refusal "0" "sub(cur, 1, 600)" "left" "0" "head" "0" "least or ''") .>>
<<if .Lone>>
    elseif not n and not turned then
<<else>>
    elseif not n then
      cover(markCur)
<<end>>
      return <<reply (refusal "3" "''" "-2" "0" "''" "0" "least") .>>
    end
<<if .Lone>>
    if not turned and fence <= markCur then
<<else>>
      if fence then cover(fence) end
      fence = fence or mint(1, had)
<<end>>
      local state, keep = <<arg "state" "try propose">>, <<lasting "ttl + KEEP" "fence">>
<<template "take" .>>
      return <<reply "fence" .>>
<<if .Lone>>
    end
<<end>>
  end
end
<<end>>
