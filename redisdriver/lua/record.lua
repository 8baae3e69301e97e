-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/record.lua by go generate; DO NOT EDIT.
local sub = string.sub
local life = string.match(redis.call('INFO', 'server'), '\nrun_id:(' .. string.rep('%x', 40) .. ')\r')
if not life then return {'', ''} end
local record = redis.call('GET', KEYS[1]) or ''
if not string.find(record, '^ok ' .. life .. ' %d+$') and not string.find(record, '^wait ' .. life .. ' %S+$') then
  record = 'wait ' .. life .. ' ' .. ARGV[1]
  redis.call('SET', KEYS[1], record)
end
return {record, sub(life, 1, 16)}
