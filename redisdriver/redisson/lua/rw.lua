-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Stands behind common.lua before the scripts of read-write locks. The hash has the field `mode` beside its holders; each hold of a
-- reader has a key of its own, "<prefix><field>:rwlock_timeout:<1 to its count>", which ends with it.

-- most is how many of a lock's holders are looked at, and holds how many holds of theirs, which a stranger may have counted.
local most, holds = 1000, 2000

local function timeout(prefix, field, i) return prefix .. field .. ':rwlock_timeout:' .. i end

-- lasts returns how long a reader's holds last, in ms: -2 when they have ended, nil where there are too many to look at.
local function lasts(prefix, field, count)
  local left = -2
  for i = 1, tonumber(count) or 0 do
    if holds == 0 then
      return nil
    end
    holds = holds - 1
    local ms = call('PTTL', timeout(prefix, field, i))
    if ms == -1 then
      return ms
    end
    left = math.max(left, ms)
  end
  return left
end

-- wake sends everybody who waits for a read-write lock a message. In each of Java's clients 1 wakes the threads that wait at that
-- moment, and 0 one, or the next that begins to wait.
local function wake(how, channel)
  send(how, channel, '1')
  send(how, channel, '0')
end
