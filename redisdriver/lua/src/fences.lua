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

local REACH = <<.Reach>> -- us above the fences known that it may be; cur is moved ahead by as much

local markOld, markMid, markCur, markAt
local minted -- no minted fence is larger; '' when nothing is known
local turned -- the mark is not stored as it is here

local function recall()
  if not stamp then look() end
  local got = redis.call('MGET', KEYS[3], KEYS[1])
  local mark, now = got[1], tonumber(stamp)
  minted = got[2] or ''
  if minted ~= '' then minted = string.format('%016.0f', counted('mark', minted)) end
  if mark and (#mark ~= 67 or string.find(mark, '[^%d ]')) then counted('proposed', mark, true) end
  if not mark then
    markOld, markMid, markCur, markAt, turned = stamp, stamp, stamp, stamp, true
    return
  end
  markOld, markMid, markCur, markAt = <<markOld "mark">>, <<markMid "mark">>, <<markCur "mark">>, <<markAt "mark">>
  local age = now - markAt
  if age < 0 or age >= <<.Turn>> then
    markOld, markMid, markAt, turned = age >= 2 * <<.Turn>> and markCur or markMid, markCur, stamp, true
  end
end

-- cover moves the mark for a fence before it is granted. It may fail: then
-- nothing is granted.
local function cover(h)
  if not turned and h <= markCur then return end
  local to = markCur
  if h > to then to = string.format('%016.0f', h + REACH) end
  redis.call('SET', KEYS[3], markOld .. ' ' .. markMid .. ' ' .. to .. ' ' .. markAt,
    'PX', string.format('%.0f', <<.Day>> / 2 + math.max(0, math.floor((to - stamp) / 1000))))
  markCur, turned = to, false
end
