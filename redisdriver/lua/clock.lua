-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- What the scripts that know the line begin with.

local LINGER = 60000 -- ms a sidecar outlives what it belongs to
local KEEP = 61000 -- ms the largest fence of a key is kept after its lease, see fences.lua

local K -- the keys of the request at hand, see line.lua

local stamp, ms -- the server's clock, for the whole script
local function look()
  local clock = redis.call('TIME')
  stamp = clock[1] .. string.sub('000000' .. clock[2], -6) -- us, 16 digits until 2286
  ms = tonumber(string.sub(stamp, 1, 13))
end
