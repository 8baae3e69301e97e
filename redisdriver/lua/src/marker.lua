-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

-- What a lock key holds that is shared begins with this, in the place of an owner, and ends with which sharing it is.
local SHARED = '<<.Shared>>'
