-- Copyright 2026 The hasp Authors
-- SPDX-License-Identifier: Apache-2.0

  local cur
  if kind == 'h' or kind == 'm' then
    if call('EXISTS', lock, grant, line, KEYS[keysAt + 4]) == 0 then
      local new = mint(1)
      call('SET', lock, value, 'PX', ARGV[a])
      call('SET', grant, <<grant "value" "new" "kind">>,
        'PX', ARGV[a + 1])
      return new
    end
  elseif kind == 'd' then
    cur = redis.pcall('GET', lock)
    if cur == value and call('EXISTS', line) == 0 then
      call('DEL', lock, grant)
      return 1
    end
  end
