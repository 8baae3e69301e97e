module github.com/hasplock/hasp/verify

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.17.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/go-zookeeper/zk v1.0.4
	github.com/hasplock/hasp v0.0.0
	github.com/hasplock/hasp/etcddriver v0.0.0
	github.com/hasplock/hasp/open v0.0.0
	github.com/hasplock/hasp/redisdriver v0.0.0
	github.com/hasplock/hasp/redisdriver/rueidis v0.0.0
	github.com/hasplock/hasp/sqldriver v0.0.0
	github.com/hasplock/hasp/sqldriver/pgxlisten v0.0.0
	github.com/hasplock/hasp/zkdriver v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/ncruces/go-sqlite3 v0.35.4
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	go.etcd.io/etcd/client/v3 v3.6.8
	go.uber.org/goleak v1.3.0
	go.uber.org/zap v1.28.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.71.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-semver v0.3.1 // indirect
	github.com/coreos/go-systemd/v22 v22.5.0 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.26.3 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/ncruces/go-sqlite3-wasm/v5 v5.0.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	go.etcd.io/etcd/api/v3 v3.6.8 // indirect
	go.etcd.io/etcd/client/pkg/v3 v3.6.8 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20250303144028-a0af3efb3deb // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250303144028-a0af3efb3deb // indirect
	google.golang.org/protobuf v1.36.5 // indirect
)

replace (
	github.com/hasplock/hasp => ../
	github.com/hasplock/hasp/etcddriver => ../etcddriver
	github.com/hasplock/hasp/open => ../open
	github.com/hasplock/hasp/redisdriver => ../redisdriver
	github.com/hasplock/hasp/redisdriver/rueidis => ../redisdriver/rueidis
	github.com/hasplock/hasp/sqldriver => ../sqldriver
	github.com/hasplock/hasp/sqldriver/pgxlisten => ../sqldriver/pgxlisten
	github.com/hasplock/hasp/zkdriver => ../zkdriver
)
