-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- A reader that finds the key free, or held by readers only, and the queue empty;
-- and the release of one. See key.lua; room, which says that there are
-- limits, sends the request the other way.

  local reads = kind == 'tryAny' and F.arg('limit', 'tryAny') == '0' and F.arg('state', 'tryAny') == 'h'
    and F.arg('fences', 'tryAny') == '1' and F.arg('how', 'tryAny') == ''
  if reads and redis.REDIS_VERSION_NUM -- since 7.0, like GT
    or type(cur) == 'string' and F.shared(cur) then
    local got = call('MGET', lockKey, grantKey)
    local was = got[2]
    local sharesKey, heldKey, roomKey = KEYS[keysAt + 4], KEYS[keysAt + 5], KEYS[keysAt + 6]
    cur = got[1]
    local beside = cur and was and F.shared(was) and sub(was, 59, 60) == 's '
    if not stamp then look() end
    ms = tonumber(millis)
    -- the fence of one that may have the key, and when this sharing of it began
    local new, gt, began = nil, 'NX', stamp
    if not cur and not was then
      if call('EXISTS', lockKey, queueKey, KEYS[keysAt + 7], sharesKey, roomKey) == 0 then new = mint(1) end
    elseif beside and call('EXISTS', queueKey, roomKey, reads and KEYS[keysAt + 7] or queueKey) == 0 then
      local held = call('HMGET', heldKey, '!', value)
      local sure = held[1] == F.after(cur) -- else nobody knows who shares it
      if sure and reads and not held[2] then
        local ends = call('ZRANGE', sharesKey, 0, 0, 'WITHSCORES')[2]
        if ends and tonumber(ends) > ms then new, gt, began = mint(1, F.fence(was)), 'GT', held[1] end
      elseif sure and not reads and held[2] and F.leaseState(held[2]) == 'h' then
        local ends = call('ZSCORE', sharesKey, value)
        if ends and tonumber(ends) > ms then
          if call('ZCARD', sharesKey) == 1 then
            call('DEL', lockKey, sharesKey, heldKey, grantKey)
          else
            call('ZREM', sharesKey, value)
            call('HDEL', heldKey, value)
          end
          return 1
        end
      end
    end
    if new then
      local since, ttl = millis, F.arg('ttl', 'tryAny')
      local keep = ttl + KEEP
      if gt == 'GT' then
        call('SET', grantKey, sub(was, 1, 27) .. new .. sub(was, 44), 'KEEPTTL')
        call('PEXPIRE', lockKey, ttl, 'GT')
        call('PEXPIRE', grantKey, keep, 'GT')
      else
        call('SET', lockKey, 'F.Shared' .. stamp, 'PX', ttl)
        call('SET', grantKey, 'F.Shared' .. new .. ' ' .. since .. ' s 0000000000000000', 'PX', keep)
      end
      call('ZADD', sharesKey, string.format('%.0f', ms + ttl), value)
      call('HSET', heldKey, '!', began, value, F.lease(new, since, 'h 0 0 0'))
      call('PEXPIRE', sharesKey, keep, gt)
      call('PEXPIRE', heldKey, keep, gt)
      return {1, new, 0, 0, 1, 0}
    end
  end
