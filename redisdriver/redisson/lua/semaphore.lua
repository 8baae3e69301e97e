-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- One step of a semaphore.
-- KEYS: free permits
-- ARGV: what to do, PUBLISH or SPUBLISH, channel, n
-- Replies: {1 done or 0 not, free permits, or as many as drain took}; {-1, key, type} a key of another
-- type; {-2, key, text} one that has no number; {-3, key, sum} there would be too many

local key = KEYS[1]
local op, how, channel, n = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local had, foreign = count(key)
if foreign then
  return foreign
end
local free = had or 0
if op == 'free' then
  return { 1, free }
elseif op == 'acquire' then
  if free < n then
    return { 0, free }
  end
  return { 1, call('INCRBY', key, text(-n)) }
elseif op == 'release' or op == 'add' then
  local other = beyond(key, free + n)
  if other then
    return other
  end
  if op == 'release' then
    begin(key)
  end
  return { 1, add(key, n, how, channel) }
elseif op == 'set' then
  if had then
    return { 0, free }
  end
  return { 1, add(key, n, how, channel) }
elseif op == 'drain' then
  if free ~= 0 then
    call('INCRBY', key, text(-free))
  end
  return { 1, free }
end
