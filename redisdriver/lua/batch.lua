-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Carries out requests, one after the other, each as if it were alone.
-- KEYS  1 mark, then for each request lock, grant, line, places and, but for
--       kind d, gone: see line.lua
-- ARGV  1 the number of requests, then for each its kind, "<owner> <label>" and
--       h m  Try, for a grant of that state: TTL, ms
--       H M  Try that may join the line: TTL, ms; fences; "" or, to join, what
--            follows contact in a place; its patience, ms
--       r    Release: ms for which this owner is granted nothing more
--       u    as r, but a lease only when it was handed over and never claimed
--       d    Release of an owner that nothing is asked for any more
-- Answers a list, see try.lua and release.lua; nil for a request that failed in
-- company. What is wrong with it says the failure of the script that it is alone in.
--
-- A request that nobody is in the way of takes the fast path.

--@ clock.lua

local DAY = 86400000 -- ms the mark outlives the fences it covers
local ARGS = {h = 1, m = 1, H = 4, M = 4, r = 1, u = 1, d = 0}

local count, key, arg = tonumber(ARGV[1]), 2, 2
local fence, limit

-- mint returns the last of n fences above all that were granted for any key.
-- The mark is moved first, and for all requests at once.
local function mint(n)
  if not fence or fence + n > limit then
    local last = redis.call('GET', KEYS[1]) or '0'
    fence = math.max(tonumber(stamp), last + 1) - 1
    limit = fence + n + count - 1
    redis.call('SET', KEYS[1], string.format('%.0f', limit), 'PX', math.floor(limit / 1000) - ms + DAY)
  end
  fence = fence + n
  return string.format('%.0f', fence)
end

local try, release

-- slow creates what a request needs when others are in its way.
local function slow()
--@ line.lua
--@ grant.lua
--@ try.lua
--@ release.lua
end

local function run()
  local kind, value, a = ARGV[arg], ARGV[arg + 1], arg + 2
  local lock, grant, line = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  if kind == 'h' or kind == 'm' then
    if redis.call('EXISTS', lock, grant, line, KEYS[key + 4]) == 0 then
      local new = mint(1)
      redis.call('SET', lock, value, 'PX', ARGV[a])
      redis.call('SET', grant, string.sub(value, 1, 26) .. ' ' .. new .. ' ' .. string.sub(stamp, 1, 13) .. ' ' .. kind,
        'PX', ARGV[a] + LINGER)
      return new
    end
  elseif kind == 'd' and redis.pcall('GET', lock) == value and redis.call('EXISTS', line) == 0 then
    redis.call('DEL', lock, grant)
    return 1
  end
  if not try then slow() end
  K = {lock, grant, line, KEYS[key + 3]}
  if kind == 'd' then return release(value, nil, nil, false) end
  if kind == 'r' or kind == 'u' then return release(value, KEYS[key + 4], ARGV[a], kind == 'u') end
  if kind == 'h' or kind == 'm' then return try(value, KEYS[key + 4], kind, ARGV[a], 1, '', 0) end
  return try(value, KEYS[key + 4], string.lower(kind), ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3])
end

if count == 1 then return {run()} end

local out = {}
for i = 1, count do
  local ok, answer = pcall(run)
  out[i] = ok and answer
  local kind = ARGV[arg]
  key = key + (kind == 'd' and 4 or 5)
  arg = arg + 2 + ARGS[kind]
end
return out
