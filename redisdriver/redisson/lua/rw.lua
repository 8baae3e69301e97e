-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Stands behind common.lua before the scripts of read-write locks. The hash has the field `mode` beside its holders; each hold of a
-- reader has a key of its own, "<prefix><field>:rwlock_timeout:<1 to its count>", which ends with it.

-- most is how many of a stranger's holds, and of a lock's holders, are looked at.
local most = 1000

local function timeout(prefix, field, i) return prefix .. field .. ':rwlock_timeout:' .. i end

-- lasts returns how long a reader's holds last, in ms: -2 when they are over.
local function lasts(prefix, field, count)
  local left = -2
  for i = 1, math.min(tonumber(count) or 0, most) do
    local ms = call('PTTL', timeout(prefix, field, i))
    if ms == -1 then
      return ms
    end
    left = math.max(left, ms)
  end
  return left
end

-- wake wakes everybody who waits for a read-write lock. Of Java's clients 1 wakes all threads that wait at that moment, and 0 one,
-- also when it is about to.
local function wake(how, channel)
  tell(how, channel, '1')
  tell(how, channel, '0')
end
