-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Carries out requests, one after the other, each as if it were alone.
-- KEYS  1 mark, then for each request lock, grant, line, places and, but for
--       kind d, gone: see line.lua
-- ARGV  1 the number of requests, then for each its kind, "<owner> <label>" and
--       h m  Try, for a grant of that state: TTL, ms; TTL + LINGER
--       H M  Try that may join the line, as h m and: fences; "" or, to join,
--            what follows contact in a place; its patience, ms
--       r    Release: ms for which this owner is granted nothing more
--       u    as r, but a lease only when it was handed over and never claimed
--       d    Release of an owner that nothing is asked for any more
-- Answers a list, see try.lua and release.lua; nil for a request that failed in
-- company. What is wrong with it says the failure of the script that it is alone in.
--
-- A request that nobody is in the way of takes the fast path. What costs there
-- is each call, each function made, and each number that becomes a text.

--@ clock.lua

local call = redis.call
local key, arg = 2, 2
local fence, limit

-- mint returns the last of n fences above all that were granted for any key.
-- The mark is moved first, for all requests at once, and outlives the fences
-- that it covers by a day.
local function mint(n)
  if not fence or fence + n > limit then
    if not stamp then look() end
    local last, keep = call('GET', KEYS[1]), '86400000'
    local from = tonumber(stamp)
    if last and (#last ~= 16 or last >= stamp) then -- the clock stands, or was set back
      from = last + 1
      keep = string.format('%d', (from - tonumber(stamp)) / 1000 + 86400000)
    end
    local to = from + n + ARGV[1] - 2
    call('SET', KEYS[1], string.format('%d', to), 'PX', keep) -- may fail: then nothing is reserved
    fence, limit = from - 1, to
  end
  fence = fence + n
  return string.format('%d', fence)
end

local try, release

-- slow creates what a request needs when others are in its way.
local function slow()
  if not stamp then look() end
--@ line.lua
--@ grant.lua
--@ try.lua
--@ release.lua
end

local function run()
  local kind, value, a = ARGV[arg], ARGV[arg + 1], arg + 2
  local lock, grant, line = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  if kind == 'h' or kind == 'm' then
    if call('EXISTS', lock, grant, line, KEYS[key + 4]) == 0 then
      local new = mint(1)
      call('SET', lock, value, 'PX', ARGV[a])
      call('SET', grant, string.sub(value, 1, 26) .. ' ' .. new .. ' ' .. string.sub(stamp, 1, 13) .. ' ' .. kind,
        'PX', ARGV[a + 1])
      return new
    end
  elseif kind == 'd' and redis.pcall('GET', lock) == value and call('EXISTS', line) == 0 then
    call('DEL', lock, grant)
    return 1
  end
  if not try then slow() end
  K = {lock, grant, line, KEYS[key + 3]}
  if kind == 'd' then return release(value, nil, nil, false) end
  if kind == 'r' or kind == 'u' then return release(value, KEYS[key + 4], ARGV[a], kind == 'u') end
  if kind == 'h' or kind == 'm' then return try(value, KEYS[key + 4], kind, ARGV[a], ARGV[a + 1], 1, '', 0) end
  return try(value, KEYS[key + 4], string.lower(kind), ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4])
end

if ARGV[1] == '1' then return {run()} end

local args = {h = 2, m = 2, H = 5, M = 5, r = 1, u = 1, d = 0}
local out = {}
for i = 1, tonumber(ARGV[1]) do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[arg]
  key = key + (kind == 'd' and 4 or 5)
  arg = arg + 2 + args[kind]
end
return out
