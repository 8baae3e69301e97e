# Copyright 2026 The hasp Authors
# SPDX-License-Identifier: Apache-2.0

# Narrow a run of test, test-all or lint with: make test MODULES=./redisdriver
MODULES ?=

.DEFAULT_GOAL := help
.PHONY: help ci build dist test test-all fuzz check size show verify verify-quick overlap interop browser simulate equal bench bench-quick bench-check mutants lint api fmt publish release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## before a commit, in 45 seconds: lint of what changed, vet, and the tests that start no server
	@scripts/check

test: ## does it work here? The core with the race detector, each engine once on a real server, in 6 minutes
	@scripts/test short $(MODULES)

test-all: ## before a release: every variant of every engine, with the race detector, in half an hour
	@scripts/test all $(MODULES)

ci: ## what decides about a change, in an hour and a half; on Debian or Ubuntu, as root
	@bash .ci/run

build: ## compile every package of every module
	@go build $$(go list -f '{{.Dir}}/...' -m)

FUZZTIME = 30s

fuzz: ## try each fuzz target with new inputs for FUZZTIME=30s; a failing input is written into testdata/fuzz beside the test
	@grep -rHo --include='*_test.go' --exclude-dir=.bin '^func Fuzz[A-Za-z]*' . | sed -E 's,/[^/]*:func , ,' | while read -r dir target; do \
		echo "$$target of $$dir" && go test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null || exit 1; done

show: ## measure many waiters for one key, on every engine, in some minutes; or what else the command has: make show NAME=overlap
	@go run ./verify/cmd $(or $(NAME),waiters)

verify: ## redisdriver over Redis 8 and Valkey 8, the suite over three etcds, then 200 seeded schedules of faults against Redlock on real servers, 150 against one, 100 against each other engine, 100 through hasp agent on each of two, and 60 against each way to use Redis with replicas, about an hour and a half; rewrites their tables in docs/results
	@scripts/servers
	@all=$$(scripts/redises) && for other in $$all; do (cd redisdriver && PATH=$$other:$$PATH go test -race -count=1 -timeout=15m -parallel=6 . ./redisson) || exit 1; done
	@cd redisdriver && HASP_TEST_REDISSON_CLUSTER=1 go test -race -count=1 -timeout=15m -run TestClusterSuite ./redisson
	@cd etcddriver && HASP_TEST_ETCD_CLUSTER=1 go test -race -count=1 -run TestSuiteOver .
	@cd verify && go test -race -count=1 -v -run TestWakesUpLate . -late=1000
	@cd verify && go test -count=1 -v -timeout=30m -run 'Processes|Election|Writers' ./campaign -for=1m
	@cd verify && HASP_TEST_FAILOVERS=1 go test -race -count=1 -timeout=30m -run 'TestBrokenReplicaVariants|TestFailoverMakes' ./campaign
	@go run ./verify/cmd campaign -n 200 -into docs/results/campaigns.md
	@go run ./verify/cmd campaign -lone -n 75 -into docs/results/campaigns.md
	@go run ./verify/cmd sweep -into docs/results/campaigns.md
	@go run ./verify/cmd campaign -engine all -n 100 -parallel 6 -into docs/results/campaigns.md
	@go build -o .bin/hasp ./cmd/hasp && go run ./verify/cmd campaign -agent .bin/hasp -n 100 -into docs/results/campaigns.md
	@go run ./verify/cmd campaign -engine replicated -n 60 -parallel 6 -into docs/results/campaigns.md

verify-quick: ## the schedules and the broken variants that make test runs, too
	@scripts/servers
	@go test -race -count=1 ./verify/campaign ./verify/engines

overlap: ## for how long two believe that they hold a key, under hasp and other locks, in some 5 minutes; rewrites its table in docs/results
	@scripts/servers
	@go run ./verify/cmd overlap -into docs/results/campaigns.md

SEEDS = 100000

browser: ## try the page in Chromium, and its API with Schemathesis: HASP_TEST_CHROMIUM=/usr/bin/chromium HASP_TEST_SCHEMATHESIS=schemathesis; needs npm; SHOTS=$(CURDIR)/docs/images makes the pictures anew
	@cd dashboard/browser && npm install --ignore-scripts --no-audit --no-fund && go test -count=1 -timeout=30m -v .

interop: ## take turns with Curator on one ZooKeeper, and with Redisson and clients in Python, JavaScript and Go on one Redis, some 15 minutes; needs Maven, a JDK, Python 3 and npm; rewrites docs/results/interop.md
	@scripts/servers
	@cd interop/curator && mvn -q dependency:copy-dependencies && javac -cp 'target/dependency/*' -d target Peer.java
	@cd interop && HASP_TEST_REQUIRE=curator,zookeeper go test -race -count=1 ./curator
	@interop/clients/install redisson python node
	@cd interop && HASP_TEST_REQUIRE=redis,redisson,python,node go test -count=1 -timeout=60m ./clients -long -into=$(CURDIR)/docs/results/interop.md

simulate: ## SEEDS=100000 seeds of the deterministic simulation, half an hour on a free machine; so many rewrite their table in docs/results
	@go test -count=1 ./verify/simulate -run TestSeeds -seeds=$(SEEDS) -timeout=2h -v $(if $(filter 100000,$(SEEDS)),-into=$(CURDIR)/docs/results/campaigns.md)

LENGTH = 3

equal: ## compare the Redis scripts with the engine in memory over all sequences of LENGTH=3 requests, in a minute
	@scripts/servers
	@cd redisdriver && go test -count=1 -run TestScriptsEqualMemory -equal=$(LENGTH) -parallel=4 -timeout=6h -v .

bench: ## measure hasp beside other locks, about 40 minutes; rewrites docs/performance.md and docs/results
	@scripts/servers
	@go run ./bench -out docs
	@go run ./verify/cmd costs -into docs/results/campaigns.md

bench-quick: ## a trial of the same in two minutes, written to .bin/bench
	@scripts/servers
	@go run ./bench -quick -out .bin/bench

bench-check: ## compare the Go benchmarks of this tree with a commit's: make bench-check BASE=origin/main (default HEAD~1)
	@scripts/servers
	@scripts/benchcheck $(or $(BASE),HEAD~1)

PKG = . ./driver ./internal/backoff ./internal/gate ./internal/keepalive ./internal/lifetime ./internal/wait ./memdriver

mutants: ## whether the tests notice wrong conditions; narrow it with PKG=./memdriver or FILES="hold.go lease.go"
	@cd tools/mutants && GOWORK=off go build -o ../../.bin/mutants .
	@.bin/mutants $(or $(FILES),$(PKG))

size: ## lines and words of the tree beside their budgets; fails over the ceilings of scripts/size
	@scripts/size

lint: ## gofmt, go vet, golangci-lint with the import rules, go mod tidy, govulncheck
	@scripts/lint $(MODULES)

api: ## write what the public packages export into the listings of the folder api, with which make lint compares it
	@go run ./tools/api -write

fmt: ## format every Go file
	@find . \( -name .bin -o -name testdata \) -prune -o -name '*.go' -print0 | xargs -0 gofmt -w

dist: ## build VERSION=vX.Y.Z twice for six targets from the last commit, compare, and pack: .bin/dist; narrow it with TARGETS=linux/amd64
	@go run ./tools/dist $(if $(TARGETS),-targets $(TARGETS)) $(if $(WARM),-warm) '$(VERSION)'

publish: ## a draft of a release on GitHub with what make dist made of VERSION=vX.Y.Z; needs gh
	@gh release create --draft --verify-tag '$(VERSION)' .bin/dist/*

release: ## make the commit and the tags of VERSION=vX.Y.Z; shows them only, unless TAG=yes
	@scripts/release $(if $(filter yes,$(TAG)),--tag) '$(VERSION)'
