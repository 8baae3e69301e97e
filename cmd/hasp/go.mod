module github.com/hasplock/hasp/cmd/hasp

go 1.26.0

require (
	github.com/creack/pty v1.1.24
	github.com/hasplock/hasp v0.0.0
	github.com/hasplock/hasp/redisdriver v0.0.0
	github.com/hasplock/hasp/sqldriver v0.0.0
	github.com/ncruces/go-sqlite3 v0.35.4
	github.com/redis/go-redis/v9 v9.23.0
	github.com/rogpeppe/go-internal v1.16.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.10
	golang.org/x/sys v0.49.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/ncruces/go-sqlite3-wasm/v5 v5.0.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/tools v0.45.0 // indirect
)

replace (
	github.com/hasplock/hasp => ../../
	github.com/hasplock/hasp/redisdriver => ../../redisdriver
	github.com/hasplock/hasp/sqldriver => ../../sqldriver
)
