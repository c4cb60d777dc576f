# `make help` explains itself. Paths are relative throughout, so the tree may lie below a directory with a space.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PREFIX  ?= /usr/local
override PREFIX := $(patsubst ~/%,$(HOME)/%,$(PREFIX))
DESTDIR ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Every program below plugins/ is a backend; fake is for tests and is not shipped.
BACKENDS ?= $(filter-out fake,$(notdir $(patsubst %/,%,$(dir $(wildcard plugins/*/main.go)))))
# What the tests must not skip, see CONTRIBUTING.md.
REQUIRE ?= bwrap,podman,python3,pip,node,npm,ruby,perl,git,ssh,grpcio,curl,wget,openssl,java,psql,cargo,chromium,mmdebstrap
FUZZTIME ?= 10s
# One way to compile, for what is installed, released, tested and linted: each package once, which is minutes of a first build.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0

run: ## install what is missing, build, and run examples/hello.hcl
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	bin/hutch run examples/hello.hcl

# Tests are not vetted as they run, nor is what they build: lint vets everything, once, and with all of vet's checks. One more
# package runs at a time than there are processors, for many wait more than they work. Symbols cost a third of linking.
test: ## install what the tests need, and run them all
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	example=; podman image exists localhost/hutch-example 2>/dev/null || example=localhost/hutch-example; \
		umask 022; trap "scripts/setup clean $$example" EXIT; HUTCH_TEST_REQUIRE=$(REQUIRE) GOFLAGS="$(GOFLAGS) -vet=off -ldflags=-s" \
		go test -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -timeout 30m ./...

test-kubernetes: ## the kubernetes backend on a cluster of this machine, as root; building that takes minutes once
	test/kubernetes/run

# built fails where nothing was.
built:
	@test -x bin/hutch -a -x libexec/hutch/hutch-backend-bwrap || { echo "make: nothing is built yet: run make build as yourself, then sudo make install" >&2; exit 1; }

build: ## bin/hutch, its helpers, libexec/hutch/hutch-backend-NAME and what goes into containers and VMs
	@test -d libexec/hutch || echo "make: the first build compiles all libraries, which takes some minutes" >&2
	go build -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/hutch
	go build -o libexec/hutch/ ./cmd/hutch-agent
	@for b in $(BACKENDS); do (set -x; go build -o "libexec/hutch/hutch-backend-$$b" "./plugins/$$b"); done
	go build -ldflags "-s -w" -o libexec/hutch/hutch-podman-agent ./plugins/podman/agent
	go build -ldflags "-s -w" -o libexec/hutch/hutch-lima-guest ./plugins/lima/guest
	go build -ldflags "-s -w" -o libexec/hutch/hutch-kubernetes-agent ./plugins/kubernetes/agent

# sudo may find no go, and what root builds is not the user's: it installs what was built.
install: $(if $(or $(SUDO_USER),$(if $(shell command -v go),,none)),built,build) ## hutch, its backends, man pages and completions below PREFIX (default /usr/local)
	install -d "$(DESTDIR)$(PREFIX)"/{bin,libexec/hutch}
	install bin/hutch "$(DESTDIR)$(PREFIX)/bin/"
	install libexec/hutch/hutch-backend-* libexec/hutch/hutch-{podman-agent,lima-guest,kubernetes-agent,agent} "$(DESTDIR)$(PREFIX)/libexec/hutch/"
	scripts/share bin/hutch "$(DESTDIR)$(PREFIX)/share"

# The providers' libraries take longer to compile for the race detector than all the rest together.
MODELS := /host/agent/model(/provider)?$$

race: ## the race detector (it needs cgo) on host and sdk, but for the clients of models
	CGO_ENABLED=1 go test -vet=off -race -short -timeout 30m $$(go list ./host/... ./sdk/... | grep -vE '$(MODELS)')

race-models: ## the race detector on the clients of models, which takes minutes to compile
	CGO_ENABLED=1 go test -vet=off -race -short -timeout 30m $$(go list ./host/agent/model/... | grep -E '$(MODELS)')

fuzz: ## every fuzz target for FUZZTIME (default 10s)
	scripts/fuzz $(FUZZTIME)

cover: ## coverage of all packages, as cover.out and a summary
	go test -short -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -1

lines: ## lines of Go by area, without tests and generated code
	scripts/lines

bench: build ## what hutch adds to the tools underneath, as ratios taken in one run
	go run ./test/bench

soak: build ## 2,000 runs and 200 persistent sandboxes with random kills; its figures go to docs/reference/attacks.md. Then each fault in each phase
	go run ./test/soak -page docs/reference/attacks.md
	HUTCH_TEST_EVERYTHING=1 go test -timeout 60m -run TestLifeCycle ./test/crash ./plugins/lima

lint: ## gofmt, words, go vet and golangci-lint, import walls included, and whether it builds for macOS
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	scripts/words
	go vet ./...
	GOOS=darwin go build ./cmd/hutch ./plugins/lima ./plugins/e2b
	"$$(scripts/tool golangci-lint)" run ./...

generate: ## rewrite generated code and docs
	scripts/generate

check-generated: ## fail if generate would change anything
	scripts/generate --check

release: ## archives of host and backends, manifests, checksums, SBOMs in dist/; PUSH=HOST/PATH/{name} brings the backends there
	scripts/release $(VERSION) $(PUSH)

package: ## a release and what users install of it: .deb, container image, Homebrew formula; KEY=FILE signs. See docs/packages.md
	@scripts/setup package
	scripts/package $(VERSION)

clean: ## remove what make made
	rm -rf bin libexec dist .tools cover.out

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run test test-kubernetes build built install race race-models fuzz cover lines bench soak lint generate check-generated release package clean help
