-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/extend.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local KEEP = 61000 -- ms the largest fence of a key is kept after its lease, see fences.lua
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    return call('PEXPIRE', key, px, 'GT')
  end
  local left = call('PTTL', key)
  return left >= 0 and left < tonumber(px) and call('PEXPIRE', key, px) or 0
end
local stamp, ms -- the server's clock, for the whole script: us, 16 digits until 2286; ms
local function look()
  local clock = call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6)
  ms = tonumber(sub(stamp, 1, 13))
end
local n = math.floor(#KEYS / 6)
local ttl, keep = ARGV[1], string.format('%.0f', ARGV[1] + KEEP)
local held = call('MGET', unpack(KEYS, 1, n))
local written -- see the end
local function prolong(i)
  if not stamp then look() end
  local lock, shares, leases, room, value = KEYS[i], KEYS[3 * n + i], KEYS[4 * n + i], KEYS[5 * n + i], ARGV[i + 1]
  local got = call('HMGET', leases, '!', value)
  local ends = got[2] and got[1] == sub(held[i], 28) and call('ZSCORE', shares, value)
  if not ends or tonumber(ends) <= ms and call('PTTL', lock) ~= -1 then return false end
  written = later(lock, ttl) == 1 or written
  if tonumber(ends) < ms + ttl then call('ZADD', shares, string.format('%.0f', ms + ttl), value) end
  for _, key in ipairs({KEYS[n + i], shares, leases, room}) do later(key, keep) end
  return true
end
local asks -- notes that whoever joins the queue of one of the keys is to tell the inbox, see queue.lua
local inbox = ARGV[n + 2]
local state = ARGV[n + 3]
local grants = call('MGET', unpack(KEYS, n + 1, 2 * n))
if inbox and inbox ~= '' then
  function asks(i)
    local grant = grants[i] or ''
    local mark, most, others = sub(grant, 60, 60), sub(grant, 61, 76), sub(grant, 77)
    local states = sub(held[i], 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' and '[sS]' or '[hmHM]' -- of the grant of a lease
    local stands = sub(grant, 1, 26) == sub(held[i], 1, 26) and string.find(sub(grant, 59, 59), states)
    if not stands or string.find(others .. ' ', ' ' .. inbox .. ' ', 1, true) then return end
    local bare = string.gsub(inbox, '^~', '')
    for _, name in ipairs({bare, '~' .. bare}) do -- it asks in another way now
      local from, to = string.find(others .. ' ', ' ' .. name .. ' ', 1, true)
      if from then others = sub(others, 1, from - 1) .. sub(others, to) end
    end
    if mark ~= '!' then mark = ' ' end
    if most == '' then most = sub(grant, 28, 43) end
    others = sub(others, 1, 31 * (1 + #inbox))
    redis.pcall('SET', KEYS[n + i], sub(grant, 1, 59) .. mark .. most .. ' ' .. inbox .. others, 'KEEPTTL') -- if not, renewals tell
  end
end
local function claims(i)
  local grant = grants[i] or ''
  if sub(grant, 59, 59) ~= 'c' or sub(grant, 1, 26) ~= sub(held[i], 1, 26) then return nil end
  local fence, since, mark = sub(grant, 28, 43), sub(grant, 45, 57), sub(grant, 60, 60) == '!' and '!' or ''
  local entered = ARGV[n + 3 + i]
  if entered ~= '' and entered ~= fence then return false end
  return sub(held[i], 1, 26) .. ' ' .. fence .. ' ' .. since .. ' ' .. state .. mark
end
local wanted = call('EXISTS', unpack(KEYS, 2 * n + 1, 3 * n)) > 0
local out, any = {}, nil
for i = 1, n do
  local newer = grants[i] and string.find(grants[i], '^v[1-9]')
  out[i] = newer and sub(grants[i], 1, 40) or 0
  local stands = not newer and held[i] == ARGV[i + 1]
  local claimed = stands and state and claims(i)
  if claimed == false and state then stands = false end
  if stands then
    written = later(KEYS[i], ttl) == 1 or written
    later(KEYS[n + i], keep)
  elseif not newer and held[i] and sub(held[i], 1, 27) == 'SHAREDLEASESAREINHASPSHARE ' then
    stands = prolong(i)
  end
  if stands and not any then any = i end
  if stands and claimed then
    grants[i] = claimed
    call('SET', KEYS[n + i], claimed, 'KEEPTTL')
  end
  if stands and asks then asks(i) end
  if stands then out[i] = wanted and call('EXISTS', KEYS[2 * n + i]) == 1 and 2 or 1 end
end
if any and not written then call('SET', KEYS[any], held[any], 'KEEPTTL') end
return out
