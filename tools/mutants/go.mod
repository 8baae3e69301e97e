module github.com/hasplock/hasp/tools/mutants

go 1.26.0
