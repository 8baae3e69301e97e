-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The run id of this server, as a node record has it; nil where INFO has none, or
-- one of another form.
local life = string.match(redis.call('INFO', 'server'), '\nrun_id:(' .. string.rep('%x', 40) .. ')\r')
