-- The scripts that redisdriver sends to Redis, each with the parts that it shares.
std = "lua51"
globals = {"redis"}
read_globals = {"KEYS", "ARGV"}
max_line_length = 140
ignore = {"211/KEEP", "212/how", "221/caller", "231/life", "231/minted", "231/ms", "311/KEEP", "321/life"} -- of such parts
