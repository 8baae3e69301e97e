-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Prolongs one key while its hash slot moves to another master of a cluster, when scripts may have only one. Stands behind common.lua.
-- KEYS: a lock, or the timeout of a reader's hold
-- ARGV: ttl (ms), and of a lock the fields of its owner
-- Replies: the number of the field that is there, or of a timeout 1; 0 none

local ttl = tonumber(ARGV[1])
for i = 2, #ARGV do
  if call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    prolong(KEYS[1], ttl)
    return i - 1
  end
end
if #ARGV == 1 and call('EXISTS', KEYS[1]) == 1 then
  prolong(KEYS[1], ttl)
  return 1
end
return 0
