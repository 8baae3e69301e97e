-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Which proposed fences a node grants. For each key it remembers the largest
-- one in the key's grant, for KEEP ms after the lease at least, and as much
-- longer as the fence is above the clock. For what it forgot there is the
-- proposals' mark:
--   "<old> <mid> <cur> <at>", 16 digits each, us
-- cur is no smaller than any fence that was granted to a proposal. Every 20 s,
-- when somebody proposes, old becomes mid, and mid becomes cur; at is when. So a
-- fence granted at t is no larger than old from t + 60 s on, when its key may be
-- forgotten, and proposals for different keys may overtake each other by 20 s.
-- The mark goes 12 hours after the clock has passed cur: then the clock is above
-- every fence. Minted fences have a mark that lasts 12 hours longer, see mint; as
-- long as it is there, proposals must be above it.

local LEAD = 4000000 -- us above the clock that a proposal may be: driver.MaxLead
local REACH = 1048576 -- us above the fences known that it may be; cur is moved ahead by as much

local old, mid, cur, at
local minted -- no minted fence is larger; '' when nothing is known
local turned -- the mark is not stored as it is here

local function recall()
  if not stamp then look() end
  local got = redis.call('MGET', KEYS[3], KEYS[1])
  local mark, now = got[1], tonumber(stamp)
  minted = got[2] or ''
  if minted ~= '' then minted = string.format('%016.0f', number('mark', minted)) end
  if mark and (#mark ~= 67 or string.find(mark, '[^%d ]')) then number('proposed', mark, true) end
  if not mark then
    old, mid, cur, at, turned = stamp, stamp, stamp, stamp, true
    return
  end
  old, mid, cur, at = string.sub(mark, 1, 16), string.sub(mark, 18, 33), string.sub(mark, 35, 50), string.sub(mark, 52)
  local age = now - at
  if age < 0 or age >= 20000000 then
    old, mid, at, turned = age >= 40000000 and cur or mid, cur, stamp, true
  end
end

-- forgotten is no smaller than any fence of a key whose largest is told (nil:
-- not known), as far as it was proposed.
local function forgotten(told)
  if not cur then recall() end
  return told and told > old and told or old
end

-- floor is no smaller than any fence of the key.
local function floor(told)
  local least = forgotten(told)
  return minted > least and minted or least
end

-- near says that a fence is not too far ahead, and one that Lua can count with.
local function near(h, least)
  return h <= stamp or tonumber(h) <= math.min(MOST - REACH, math.max(stamp + LEAD, least + REACH))
end

-- allow says how many fences, of n up to h, may be granted now; or nil, and
-- the floor. For one that shares the key told is the largest that was granted
-- Exclusive, and newest the largest of all.
local function allow(h, told, n, how, newest)
  local least = floor(told)
  local low = h <= least
  if how == 'restore' then low, n = told and h < told, 1 end
  if low or not near(h, least) then return nil, least end
  if newest and newest > least then least = newest end
  return n == 1 and 1 or math.max(1, math.min(n, h - least))
end

-- cover moves the mark for a fence before it is granted. It may fail: then
-- nothing is granted.
local function cover(h)
  if not turned and h <= cur then return end
  local to = cur
  if h > to then to = string.format('%016.0f', h + REACH) end
  redis.call('SET', KEYS[3], old .. ' ' .. mid .. ' ' .. to .. ' ' .. at,
    'PX', string.format('%.0f', 43200000 + math.max(0, math.floor((to - stamp) / 1000))))
  cur, turned = to, false
end
