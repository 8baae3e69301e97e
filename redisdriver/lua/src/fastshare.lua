-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A reader that finds the key free, or held by readers only, and nobody in
-- line; and the release of one. See held.lua; room, which says that there are
-- limits, sends the request the other way.

<<template "marker" .>>
  local reads = kind == 's' and ARGV[a + 1] == 'h' and ARGV[a + 2] == '0' and ARGV[a + 3] == '1' and ARGV[a + 7] == ''
  if reads and redis.REDIS_VERSION_NUM -- since 7.0, like GT
    or type(cur) == 'string' and cur ~= value and <<shared "cur">> then
    local got, side = call('MGET', lock, grant), <<side "line">>
    local was = got[2]
    local shares, held, room = 'hasp.shares:' .. side, 'hasp.held:' .. side, 'hasp.room:' .. side
    cur = got[1]
    local beside = cur and <<shared "cur">> and was and sub(was, 59, 60) == 's '
    if not stamp then look() end
    if reads and not cur and not was and call('EXISTS', lock, line, KEYS[keysAt + 4], shares, room) == 0 then
      local new, at, ttl = mint(1), <<millis "stamp">>, ARGV[a]
      call('SET', lock, SHARED .. stamp, 'PX', ttl)
      call('SET', grant, SHARED .. new .. ' ' .. at .. ' s 0000000000000000', 'PX', ttl + KEEP)
      call('HSET', held, '!', stamp, value, new .. ' ' .. at .. ' h 0 0 0')
      call('ZADD', shares, string.format('%.0f', ms + ttl), value)
      call('PEXPIRE', held, ttl + KEEP)
      call('PEXPIRE', shares, ttl + KEEP)
      return {1, new, 0, 0, 1, 0}
    elseif beside and call('EXISTS', line, room, reads and KEYS[keysAt + 4] or line) == 0 then
      local lease = call('HMGET', held, '!', value)
      local known = lease[1] == <<after "cur">> -- else nobody knows who shares it
      if known and reads and not lease[2] then
        local ends = call('ZRANGE', shares, 0, 0, 'WITHSCORES')[2]
        if ends and tonumber(ends) > ms then
          local new, at, ttl = mint(1, <<fence "was">>), <<millis "stamp">>, ARGV[a]
          call('ZADD', shares, string.format('%.0f', ms + ttl), value)
          call('HSET', held, value, new .. ' ' .. at .. ' h 0 0 0')
          call('SET', grant, sub(was, 1, 27) .. new .. sub(was, 44), 'KEEPTTL')
          call('PEXPIRE', lock, ttl, 'GT')
          call('PEXPIRE', grant, ttl + KEEP, 'GT')
          call('PEXPIRE', shares, ttl + KEEP, 'GT')
          call('PEXPIRE', held, ttl + KEEP, 'GT')
          return {1, new, 0, 0, 1, 0}
        end
      elseif known and not reads and lease[2] and <<leaseState "lease[2]">> == 'h' then
        local ends = call('ZSCORE', shares, value)
        if ends and tonumber(ends) > ms then
          if call('ZCARD', shares) == 1 then
            call('DEL', lock, shares, held, grant)
          else
            call('ZREM', shares, value)
            call('HDEL', held, value)
          end
          return 1
        end
      end
    end
  end
