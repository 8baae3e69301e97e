module github.com/hasplock/hasp/adapters/examples

go 1.26.0

replace (
	github.com/hasplock/hasp => ../..
	github.com/hasplock/hasp/adapters/asynq => ../asynq
	github.com/hasplock/hasp/adapters/certmagic => ../certmagic
	github.com/hasplock/hasp/adapters/gocron => ../gocron
	github.com/hasplock/hasp/adapters/goose => ../goose
	github.com/hasplock/hasp/adapters/river => ../river
	github.com/hasplock/hasp/adapters/tusd => ../tusd
	github.com/hasplock/hasp/etcddriver => ../../etcddriver
	github.com/hasplock/hasp/open => ../../open
	github.com/hasplock/hasp/redisdriver => ../../redisdriver
	github.com/hasplock/hasp/sqldriver => ../../sqldriver
	github.com/hasplock/hasp/sqldriver/pgxlisten => ../../sqldriver/pgxlisten
	github.com/hasplock/hasp/zkdriver => ../../zkdriver
)

require (
	github.com/caddyserver/certmagic v0.25.6
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0
	github.com/hasplock/hasp v0.0.0
	github.com/hasplock/hasp/adapters/asynq v0.0.0
	github.com/hasplock/hasp/adapters/certmagic v0.0.0
	github.com/hasplock/hasp/adapters/gocron v0.0.0
	github.com/hasplock/hasp/adapters/goose v0.0.0
	github.com/hasplock/hasp/adapters/river v0.0.0
	github.com/hasplock/hasp/adapters/tusd v0.0.0
	github.com/hasplock/hasp/open v0.0.0
	github.com/hasplock/hasp/sqldriver v0.0.0
	github.com/hibiken/asynq v0.26.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/ncruces/go-sqlite3 v0.35.4
	github.com/pressly/goose/v3 v3.30.1
	github.com/riverqueue/river v0.51.2
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.2
	github.com/riverqueue/river/rivertype v0.51.2
	github.com/tus/tusd/v2 v2.9.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/caddyserver/zerossl v0.1.6 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-semver v0.3.1 // indirect
	github.com/coreos/go-systemd/v22 v22.5.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.26.3 // indirect
	github.com/hasplock/hasp/etcddriver v0.0.0 // indirect
	github.com/hasplock/hasp/redisdriver v0.0.0 // indirect
	github.com/hasplock/hasp/sqldriver/pgxlisten v0.0.0 // indirect
	github.com/hasplock/hasp/zkdriver v0.0.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/libdns/libdns v1.1.1 // indirect
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/mholt/acmez/v3 v3.1.7 // indirect
	github.com/miekg/dns v1.1.73 // indirect
	github.com/ncruces/go-sqlite3-wasm/v5 v5.0.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/riverqueue/river/riverdriver v0.51.2 // indirect
	github.com/riverqueue/river/rivershared v0.51.2 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	github.com/zeebo/blake3 v0.2.4 // indirect
	go.etcd.io/etcd/api/v3 v3.6.8 // indirect
	go.etcd.io/etcd/client/pkg/v3 v3.6.8 // indirect
	go.etcd.io/etcd/client/v3 v3.6.8 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.uber.org/zap/exp v0.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/exp v0.0.0-20261109185158-a52e3aef5920 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
