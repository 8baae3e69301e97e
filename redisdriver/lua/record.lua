-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
-- Code generated from src/record.lua by go generate; DO NOT EDIT.
local call, sub = redis.call, string.sub
local run = string.match(call('INFO', 'server'), '\nrun_id:(' .. string.rep('%x', 40) .. ')\r')
if not run then return {'', ''} end
local record = call('GET', KEYS[1]) or ''
if not (string.find(record, '^v[1-9]')) and not string.find(record, '^ok ' .. run .. ' %d+$') and not string.find(record, '^wait ' .. run .. ' %S+$') then
  record = 'wait ' .. run .. ' ' .. ARGV[1]
  call('SET', KEYS[1], record)
end
return {record, sub(run, 1, 16)}
