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
local longest -- ms, the longest lease; false: the node does not vote
local stored -- the record, and behind it the marks that fences.lua reads

--# part vote
stored = F.batch(call('MGET', KEYS[2], KEYS[3], KEYS[1]), call('MGET', KEYS[#KEYS]))
local record, info = stored[1], call('INFO', 'server')
longest = record and F.recordWord(record) == 'ok ' and
  string.find(info, '\nrun_id:' .. F.recordRun(record) .. '\r', 1, true) and
  tonumber(F.recordMost(record)) or false
if not longest and record and F.newer(record) then error('HASPDATA node ' .. sub(record, 1, 40), 0) end
life = longest and F.recordLife(record) or string.match(info, '\nrun_id:(' .. string.rep('%x', 16) .. ')')
if longest and longest > KEEP then KEEP = longest end
--# end part

--# part votes
-- votes reads what is stored for the whole node, once for the whole script.
local function votes()
  if longest == nil then
--# include vote
  end
  return longest
end
--# end part
