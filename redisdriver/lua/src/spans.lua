-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

local LINGER = <<.Linger>> -- ms a sidecar outlives what it belongs to
local KEEP = <<.Keep>> -- ms the largest fence of a key is kept after its lease, see fences.lua

local K -- the keys of the request at hand, see line.lua
