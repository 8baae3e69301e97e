-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

  if kind == 'd' or kind == 'b' then
    local got = call('MGET', lock, grant)
    local above = kind == 'b' and got[2] and string.sub(got[2], 28, 43) > ARGV[a]
    if got[1] == value and not above and call('EXISTS', line) == 0 then
      call('DEL', lock)
      if got[2] then call('SET', grant, string.sub(got[2], 1, 58) .. 'F', 'KEEPTTL') end
      return 1
    end
  elseif kind ~= 'r' and kind ~= 'u' and kind ~= 'x' then
    if not votes(KEYS[2]) then return {4} end
    if tonumber(ARGV[a]) > most then return {5, most} end
    if (kind == 'p' or kind == 'h' or kind == 'm') and call('EXISTS', lock, line, KEYS[key + 4]) == 0 then
      local was = call('GET', grant)
      if not was or string.sub(was, 59) == 'F' then
        local told, fence, as = was and string.sub(was, 28, 43), ARGV[a + 1], ARGV[a + 2]
        if kind == 'p' then
          local ok, least = allow(fence, told, 1)
          if not ok then return {3, '', -2, 0, '', 0, least} end
          cover(fence)
        else
          fence, as = mint(1, told), kind
        end
        call('SET', lock, value, 'PX', ARGV[a])
        call('SET', grant, string.sub(value, 1, 26) .. ' ' .. fence .. ' ' .. string.sub(stamp, 1, 13) .. ' ' .. as,
          'PX', lasting(ARGV[a] + KEEP, fence))
        return fence
      end
    end
  end
