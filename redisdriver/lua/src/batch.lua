-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Carries out requests, one after the other, each as if it were alone.
-- KEYS  1 mark, in a node 2 its record, 3 the proposals' mark; then for each
--       request lock, grant, line, places and, but for d, u and b, gone: see line.lua
-- ARGV  1 the number of requests, then for each its kind, "<owner> <label>" and
--       h m  Try, for a grant of that state: TTL, ms; TTL + LINGER
--       H M  Try that may join the line, as h m and: fences; "" or, to join,
--            what follows contact in a place; its patience, ms
--       p    Try with a proposed fence: TTL, ms; the fence, 16 digits; the
--            state, H or M
--       P    as p and: fences; "" or, to join, as H; its patience, ms; "",
--            "raise" or "restore"
--       s    Try of one that shares the key: TTL, ms; the state, h, m, H or M;
--            its limit, or 0; fences; "" or, to join, as H; its patience, ms;
--            "" or the fence, 16 digits; "", "raise", "restore" or "convert"
--       r    Release: ms for which this owner is granted nothing more
--       d    Release of an owner that nothing is asked for any more
--       u    as d, but a lease only when it was handed over and never claimed
--       b    as d, but leaves a lease with a larger fence: the fence, 16 digits
--       x    Release of one that did not finish: as r, or "" as d; as b, or "";
--            "unused" or "unfinished"
-- Answers a list, see try.lua and release.lua; nil for a request that failed in
-- company. What is wrong with it says the failure of the script that it is alone in.
-- A node adds which run of the server this is, when it had to know.
--
-- A request that nobody is in the way of takes the fast path. What costs there
-- is each call, each function made, and each number that becomes a text.
local sub = string.sub

<<template "clock" .>>
<<template "spans" .>>

local call = redis.call
local keysAt, argsAt = <<if .Node>>4<<else>>2<<end>>, 2 -- where in KEYS and ARGV the request at hand begins
local lastMinted, reserved

<<template "number" .>>
<<if .Node>>
<<template "node" .>>
<<template "fences" .>>
<<template "allow" .>>
<<end>>

-- mint returns the last of n fences above all that were granted for any key;
-- told is the largest that is known of this one. The mark is moved first, for
-- all requests at once, and outlives the fences that it covers by a day.
local function mint(n, told)
<<if .Node>>
  told = forgotten(told)
<<end>>
  local above = told and counted('grant', told) or 0
  if not lastMinted or lastMinted + n > reserved or above > lastMinted then
    if not stamp then look() end
    local last, keep, now = call('GET', KEYS[1]), '<<.Day>>', tonumber(stamp)
    local from, where, text = now, 'clock', stamp
    if last and (#last ~= 16 or last >= stamp or string.find(last, '%D')) then -- the clock stands, or was set back
      from, where, text = counted('mark', last) + 1, 'mark', last
    end
    if above >= from then from, where, text = above + 1, 'grant', told end -- a proposal was ahead of it
    if from > now then keep = string.format('%d', (from - now) / 1000 + <<.Day>>) end
    local to = from + (n + ARGV[1] - 2)
    if to > MOST then counted(where, text, true) end
    call('SET', KEYS[1], string.format('%d', to), 'PX', keep) -- may fail: then nothing is reserved
    lastMinted, reserved = from - 1, to
<<if .Node>>
    minted = string.format('%016.0f', to)
<<end>>
  end
  lastMinted = lastMinted + n
  return string.format('%d', lastMinted)
end

<<if .Node>>
<<template "lasting" .>>
<<end>>

local try, release
local caller -- the inbox of the one that asks, if it is known
local handed, post -- ms after which the next in line is to look, see line.lua; nil: it knows by itself

-- slow creates what a request needs when others are in its way.
local function slow()
  if not stamp then look() end
  local sharing, ours, share, leave, usher, holder -- see held.lua and share.lua
<<if not .Node>>
<<template "lasting" .>>
<<end>>
<<template "marker" .>>
<<template "line" .>>
<<template "post" .>>
<<template "grant" .>>
<<template "try" .>>
<<template "release" .>>

-- sharing creates what it needs when the key is shared, or may become so.
function sharing()
<<template "room" .>>
<<template "held" .>>
<<template "share" .>>
end
end

local function request()
  local kind, value, a = ARGV[argsAt], ARGV[argsAt + 1], argsAt + 2
  local lock, grant, line = KEYS[keysAt], KEYS[keysAt + 1], KEYS[keysAt + 2]
<<if not .Node>>
<<template "fast" .>>
<<template "fastshare" .>>
<<end>>
<<if .Node>>
<<template "fastnode" .>>
<<end>>
  if not try then slow() end
  K = {lock, grant, line, KEYS[keysAt + 3]}
  local gone = KEYS[keysAt + 4]
  if kind == 'd' or kind == 'u' then return release(value, nil, nil, kind == 'u') end
<<if .Node>>
  if kind == 'b' then return release(value, nil, nil, false, ARGV[a]) end
<<end>>
  if kind == 'r' then return release(value, gone, ARGV[a], false) end
<<if .Node>>
  if kind == 'p' then return try(value, gone, ARGV[a + 2], ARGV[a], ARGV[a] + KEEP, 1, '', 0, ARGV[a + 1], '') end
  if kind == 'P' then
    return try(value, gone, ARGV[a + 2], ARGV[a], ARGV[a] + KEEP, tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5],
      ARGV[a + 1], ARGV[a + 6])
  end
<<end>>
  if kind == 'x' then
    local wary, upto = ARGV[a], ARGV[a + 1]
    return release(value, wary ~= '' and gone, wary, false, upto ~= '' and upto, ARGV[a + 2])
  elseif kind == 's' then
    local h, how = ARGV[a + 6], ARGV[a + 7]
    return try(value, gone, ARGV[a + 1], ARGV[a], ARGV[a] + KEEP, tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5],
      h ~= '' and h, how, tonumber(ARGV[a + 2]))
  end
  local linger = <<if .Node>>ARGV[a] + KEEP<<else>>ARGV[a + 1]<<end>>
  if kind == 'h' or kind == 'm' then return try(value, gone, kind, ARGV[a], linger, 1, '', 0) end
  return try(value, gone, string.lower(kind), ARGV[a], linger, tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4])
end

-- run carries out one request, and has the next in line look after what became
-- of it.
local function run()
  caller, handed = nil, nil
  local answer = request()
  if handed then post(handed) end
  return answer
end

<<if not .Node>>
if ARGV[1] == '1' then return {run()} end
<<end>>
<<if .Node>>
if ARGV[1] == '1' then return {run(), life} end
<<end>>

local args = {h = 2, m = 2, H = 5, M = 5, p = 3, P = 7, s = 8, r = 1, d = 0, u = 0, b = 1, x = 3}
local out = {}
for i = 1, tonumber(ARGV[1]) do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[argsAt]
  keysAt = keysAt + ((kind == 'd' or kind == 'u' or kind == 'b') and 4 or 5)
  argsAt = argsAt + 2 + args[kind]
end
<<if .Node>>
out[#out + 1] = life
<<end>>
return out
