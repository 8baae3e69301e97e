-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- One step of a count-down latch.
-- KEYS: count
-- ARGV: what to do, PUBLISH or SPUBLISH, channel, n
-- Replies: {1 done or 0 not, the count}; {-1, key, type} a key of another type; {-2, key, text} one that
-- has no number

local key = KEYS[1]
local op, how, channel, n = unpack(ARGV)

local had, foreign = count(key)
if foreign then
  return foreign
end
if op == 'count' then
  return { 1, math.max(had or 0, 0) }
elseif op == 'set' then
  if had then
    return { 0, had }
  end
  call('SET', key, n)
  send(how, channel, '1') -- it is closed
  return { 1, tonumber(n) }
elseif op == 'down' then
  if not had then
    return { 0, 0 }
  end
  if had > 1 then
    begin(key)
    return { 1, call('INCRBY', key, '-1') }
  end
  call('DEL', key)
  if had == 1 then
    send(how, channel, '0') -- it is open
  end
  return { 1, 0 }
end
