-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The server's clock.

local stamp, ms -- the server's clock, for the whole script
local function look()
  local clock = redis.call('TIME')
  stamp = clock[1] .. sub('000000' .. clock[2], -6) -- us, 16 digits until 2286
  ms = tonumber(<<millis "stamp">>)
end
