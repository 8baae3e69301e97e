-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Carries out requests, one after the other, each as if it were alone.
-- KEYS  1 mark, in a node 2 its record, 3 the proposals' mark; then for each
--       request lock, grant, queue, places, shares, held, room and, of some kinds, gone: see
--       queue.lua and key.lua
-- ARGV  1 the number of requests, then for each its kind, and the kind's fields: see
--       layout.go, which names them
-- Answers a list, see try.lua and release.lua; nil for a request that failed in
-- company. What is wrong with it says the failure of the script that it is alone in: its answer
-- comes without the list, which costs the server a buffer.
-- A node adds which run of the server this is, when it had to know.
--
-- A request that nobody is in the way of takes the fast path. What costs there
-- is each call, each function made, and each number that becomes a text.
local call, sub = redis.call, string.sub

--# include clock

local KEEP = F.Keep -- ms the largest fence of a key is kept after its lease, see fences.lua

local keysAt, argsAt = F.node(4, 2), 2 -- where in KEYS and ARGV the request at hand begins
local lastMinted, reserved

--# if node
--# include counted
--# include node
--# include fences
--# end

--# if not node
local inWay, seen -- of a request that comes alone: how many keys are in its way; of a release: lock and grant
--# end

if ARGV[1] == '1' then -- nothing is made for what comes alone and nobody is in the way of
--# include free lone
end
--# if not node
--# include counted
--# else
--# include votes
--# include cover
--# include allow
--# end

-- mint returns the last of n fences above all that were granted for any key; newest
-- is the largest that is known of this one. The mark is moved first, for
-- all requests at once, and outlives the fences that it covers by a day, less 1,000 s: see free.lua.
local function mint(n, newest)
--# if node
  recall()
  if not newest or newest < markOld then newest = markOld end
--# end
  local above = newest and counted('grant', newest) or 0
  if not lastMinted or lastMinted + n > reserved or above > lastMinted then
    if not stamp then look() end
--# if not node
    local fence
    if n == 1 and ARGV[1] == '1' and not lastMinted and (not newest or newest < stamp) then
--# include step
    end
    if fence then
      lastMinted = tonumber(fence)
      reserved = lastMinted
      return fence
    end
--# end
    local last, keep, now = call('GET', KEYS[1]), 'F.Day', tonumber(stamp)
    local from, where, text = now, 'clock', stamp
    if last and (#last ~= 16 or last >= stamp or string.find(last, '%D')) then -- the clock stands, or was set back
      from, where, text = counted('mark', last) + 1, 'mark', last
    end
    if above >= from then from, where, text = above + 1, 'grant', newest end -- a proposal was ahead of it
    if from > now then keep = string.format('%d', (from - now) / 1000 + F.Day) end
    local to = from + (n + ARGV[1] - 2)
    if to > F.Most then counted(where, text, true) end
    call('SET', KEYS[1], string.format('%d', to), 'PX', keep) -- may fail: then nothing is reserved
    lastMinted, reserved = from - 1, to
--# if node
    minted = string.format('%016.0f', to)
--# end
  end
  lastMinted = lastMinted + n
  return string.format('%d', lastMinted)
end

local contended
local caller -- the inbox of the one that asks, if it is known
local handed, hintLater -- ms after which the next in the queue is to look, see queue.lua; nil: it knows by itself
local follower -- who that is, where it was seen, see first.lua

-- slow makes what a request needs when others are in its way.
local function slow()
  if not stamp then look() end
  ms = tonumber(millis)
  local lease, expire -- see expire.lua
  local K, known -- the keys of the request at hand, see queue.lua, and what is known of them, see key.lua
--# include queue
--# include room
--# include first
--# include key
--# include serve
--# include expire
--# include try
--# include release

-- contended carries out the request at hand.
function contended(kind, at)
  K = {lock = KEYS[keysAt], grant = KEYS[keysAt + 1], queue = KEYS[keysAt + 2], places = KEYS[keysAt + 3],
    shares = KEYS[keysAt + 4], held = KEYS[keysAt + 5], room = KEYS[keysAt + 6], gone = KEYS[keysAt + 7]}
  if kind == 'try' or kind == 'tryAny' or kind == 'propose' then
    if kind == 'try' then return try(F.fields('try')) end
--# if node
    if kind == 'propose' then return try(F.fields('propose')) end
--# end
    return try(F.fields('tryAny'))
  end
  if kind == 'release' then return release(F.fields('release')) end
--# if node
  if kind == 'withdraw' then return release(F.fields('withdraw')) end
--# end
  return release(F.fields('releaseAny'))
end
end

local function request()
--# include free
--# if not node
--# include freeshared
--# end
  if not contended then slow() end
  return contended(kind, at)
end

-- run carries out one request, and has the next in the queue look after what became
-- of it.
local function run()
  caller, handed, follower = nil, nil, nil
  local answer = request()
  if handed then hintLater(handed) end
  return answer
end

--# if node
if ARGV[1] == '1' then return {run(), life} end
--# else
if ARGV[1] == '1' then return run() end
--# end

-- how many a request of each kind has
local keys = {F.sizes('keys')}
local fields = {F.sizes('fields')}
local out = {}
for i = 1, tonumber(ARGV[1]) do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[argsAt]
  keysAt, argsAt = keysAt + keys[kind], argsAt + 1 + fields[kind]
end
--# if node
out[#out + 1] = life
--# end
return out
