-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Stands before the scripts of semaphores and latches, whose number is a string of digits.

-- count returns the number that a key has, or nil without one; and what to reply where it has something else.
local function count(key)
  local is = call('TYPE', key).ok
  if is == 'none' then
    return nil
  end
  if is ~= 'string' then
    return nil, { -1, key, is }
  end
  local said = call('GET', key)
  if #said > 15 or not string.match(said, '^%-?%d+$') then
    return nil, { -2, key, string.sub(said, 1, 100) }
  end
  return tonumber(said)
end

-- begin is the first write of a script that gives something back, and changes nothing: on a full server, writes that
-- need memory are allowed only behind one that does not.
local function begin(key)
  local left = call('PTTL', key)
  if left < 0 then
    call('PERSIST', key)
  else
    call('PEXPIRE', key, math.max(left, 1))
  end
end

-- beyond returns what to reply where so many permits are no number of Java's, which has 32 bits.
local function beyond(key, n)
  if n > 2147483647 or n < -2147483648 then
    return { -3, key, text(n) }
  end
end

-- add adds to the free permits, and tells Java's waiters how many there are. Java takes no number below 0.
local function add(key, n, how, channel)
  local free = call('INCRBY', key, text(n))
  if n > 0 and free > 0 then
    send(how, channel, text(free))
  end
  return free
end
