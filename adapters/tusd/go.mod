module github.com/hasplock/hasp/adapters/tusd

go 1.26.0

require github.com/hasplock/hasp v0.0.0

require (
	github.com/tus/tusd/v2 v2.9.1
	golang.org/x/exp v0.0.0-20250106191152-7588d65b2ba8 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/hasplock/hasp => ../..
