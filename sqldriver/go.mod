module github.com/hasplock/hasp/sqldriver

go 1.26.0

require (
	github.com/hasplock/hasp v0.0.0
	github.com/ncruces/go-sqlite3 v0.35.4
	go.uber.org/goleak v1.3.0
)

require (
	github.com/ncruces/go-sqlite3-wasm/v5 v5.0.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/hasplock/hasp => ../
