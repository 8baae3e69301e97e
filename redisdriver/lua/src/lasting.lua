-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- lasting adds to the expiry of a grant how far its fence is above the clock:
-- once it is forgotten, the clock is above it.
local function lasting(px, new)
  if new > stamp then px = px + math.ceil((new - stamp) / 1000) end
  return px
end
