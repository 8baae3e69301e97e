-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The node record: what a server needs that must not grant anything while it
-- may have forgotten what it granted. It never expires, and is one of
--   ok <run id> <longest lease, ms>   the node votes
--   wait <run id> <nonce>             it does not, until this is admitted
-- A server has another run id (40 digits) after every start, and a replica that
-- is promoted has its own: the data may be old, and the record then names
-- another. The comparison must be in the script that grants. At connect it
-- would miss a proxy that goes to another server meanwhile.

local life -- names this run of the server; nil until somebody asked
local most -- ms, the longest lease; false: the node does not vote

-- votes reads the record, once for the whole script.
local function votes(key)
  if most == nil then
    local record, info = redis.call('GET', key), redis.call('INFO', 'server')
    most = record and string.sub(record, 1, 3) == 'ok ' and
      string.find(info, '\nrun_id:' .. string.sub(record, 4, 43) .. '\r', 1, true) and
      tonumber(string.sub(record, 45)) or false
    life = most and string.sub(record, 4, 19) or string.match(info, '\nrun_id:(' .. string.rep('%x', 16) .. ')')
    if most and most > KEEP then KEEP = most end
  end
  return most
end
