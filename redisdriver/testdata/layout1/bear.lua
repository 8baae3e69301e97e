-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/bear.lua by go generate; DO NOT EDIT.
local call = redis.call
local function later(key, px)
  if redis.REDIS_VERSION_NUM then -- since 7.0, like GT
    return call('PEXPIRE', key, px, 'GT')
  end
  local left = call('PTTL', key)
  return left >= 0 and left < tonumber(px) and call('PEXPIRE', key, px) or 0
end
local value = call('MGET', KEYS[1])[1] or ''
if string.sub(value, 1, ARGV[2]) ~= ARGV[1] then return 0 end
if later(KEYS[1], ARGV[3]) == 0 then call('SET', KEYS[1], value, 'KEEPTTL') end -- as in extend.lua
return 1
