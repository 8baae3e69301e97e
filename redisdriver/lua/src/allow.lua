-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Which proposals are granted: included after fences.lua.

local LEAD = <<.Lead>> -- us above the clock that a proposal may be: driver.MaxFenceSkew

-- forgotten is no smaller than any fence of a key whose largest is told (nil:
-- not known), as far as it was proposed.
local function forgotten(told)
  if not markCur then recall() end
  return told and told > markOld and told or markOld
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
