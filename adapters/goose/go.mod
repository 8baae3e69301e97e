module github.com/hasplock/hasp/adapters/goose

go 1.26.0

require (
	github.com/hasplock/hasp v0.0.0
	github.com/pressly/goose/v3 v3.30.1
)

require (
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/hasplock/hasp => ../..
