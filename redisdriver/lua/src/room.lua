-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The numbered places of those that share a key with a limit. Each number that
-- was ever given out is a member; the two ends of the set are what is asked
-- for: at the front the smallest limit, at the back the smallest free number.

local FREE = <<.Free>> -- 2^42; no limit is above a quarter of it

-- smallest answers the smallest limit, math.huge for none, and whether there
-- are numbers.
local function smallest()
  local front = redis.call('ZRANGE', K[7], 0, 0, 'WITHSCORES')
  local limit = tonumber(front[2] or FREE)
  return limit < FREE / 2 and limit or math.huge, #front > 0
end
