-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

local MOST = <<.Most>> -- 2^53 - 1: Lua no longer tells larger numbers from their neighbours

-- counted reads one of ours, and goes no further with what we cannot have
-- written, or when it is used up. See DataError for where.
local function counted(where, text, over)
  if over or text == '' or #text > 16 or string.find(text, '%D') or tonumber(text) >= MOST then
    error('HASPDATA ' .. where .. ' ' .. string.gsub(sub(text, 1, 40), '[^%w%p ]', '?'), 0)
  end
  return tonumber(text)
end
