module github.com/hasplock/hasp/zkdriver

go 1.26.0

require github.com/hasplock/hasp v0.0.0

require golang.org/x/sys v0.49.0 // indirect

replace github.com/hasplock/hasp => ../
