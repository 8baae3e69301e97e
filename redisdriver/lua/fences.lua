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
-- every fence, and becomes the mark again. A proposal that is on its way is below that, as is
-- one of a client whose clock is behind. So the mark of a refusal is stored with it: the
-- proposal that follows, above what the refusal says, is granted.
-- Minted fences have a mark that lasts 12 hours longer, see mint; as
-- long as it is there, proposals must be above it.

local markOld, markMid, markCur, markAt
local minted -- no minted fence is larger; '' when nothing is known
local turned -- the mark is not stored as it is here: it was turned, or had gone

--# part marks
-- reads the two marks as they are stored
local mark, mints = F.batch(stored[2], call('GET', KEYS[3])), F.batch(stored[3], call('GET', KEYS[1]))
if not stamp then look() end
minted = mints and string.format('%016.0f', counted('mark', mints)) or ''
if mark and (#mark ~= 67 or string.find(mark, '[^%d ]')) then counted('proposed', mark, true) end
if mark then
  markOld, markMid, markCur, markAt = F.markOld(mark), F.markMid(mark), F.markCur(mark), F.markAt(mark)
else
  markOld, markMid, markCur, markAt, turned = stamp, stamp, stamp, stamp, true
end
local age = stamp - markAt
if age < 0 or age >= F.Turn then
  markOld, markMid, markAt, turned = age >= 2 * F.Turn and markCur or markMid, markCur, stamp, true
end
--# end part

--# part cover
-- cover moves the mark, to a second ahead, for a fence before it is granted, and stores
-- it for a refusal. It may fail: then nothing is granted.
local function cover(fence)
  if not turned and fence <= markCur then return end
  local to = markCur
  if fence > to then to = string.format('%016.0f', fence + F.Reach) end
  call('SET', KEYS[3], markOld .. ' ' .. markMid .. ' ' .. to .. ' ' .. markAt,
    'PX', string.format('%.0f', F.Day / 2 + math.max(0, math.floor((to - stamp) / 1000))))
  markCur, turned = to, false
end
--# end part

--# part floor
-- least is no smaller than any fence of the key, and near says that a proposal is not
-- too far ahead, and one that Lua can count with.
if not least or least < markOld then least = markOld end
if minted > least then least = minted end
local near = tonumber(fence) <= math.min(F.Most - F.Reach, math.max(stamp + F.Lead, least + F.Reach))
--# end part

--# part allow
local function recall()
  if markCur then return end
--# include marks
end

-- allow says how many fences, of n up to the proposed one, may be granted now, or nil;
-- and one that is no smaller than any fence of the key. had is the largest that is
-- known of it (nil: none is), and newest, for one that shares the key, whose had is
-- the largest that was granted Exclusive, the largest of all.
local function allow(fence, had, n, how, newest)
  recall()
  local least = had
--# include floor
  local low = fence <= least
  if how == 'restore' then
    low, n = had and fence < had, 1
  elseif how == 'raise' then
    low = fence < had
  end
  if low or not near then return nil, least end
  local above = newest and newest > least and newest or least
  return n == 1 and 1 or math.max(1, math.min(n, fence - above)), least
end
--# end part
