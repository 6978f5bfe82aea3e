# `make help` lists the targets. All of them need Go, make and a POSIX shell.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN     := $(CURDIR)/bin
TOOLS   := $(BIN)/tools
MODULES := . ./api ./internal/local/shim ./tools/packaging ./tools/monitoring

VERSION := $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X tensorstack.dev/batch/internal/version.Version=$(VERSION)
# These flags leave out the product's version, so that a commit without code changes does not link the largest programs
# again.
LOCAL_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

##### Build and run

COMPILING := Compiling, including all of Kubernetes: about 4 minutes on two cores the first time, seconds afterwards.

.PHONY: build
build: ## Build all programs into bin/ (first time about 4 minutes on two cores)
	@GOBUILD_NOTE='$(COMPILING)' hack/gobuild -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/t9k ./cmd/t9k-operator ./cmd/t9k-console
	@hack/gobuild -ldflags '$(LOCAL_LDFLAGS)' -o $(BIN)/ ./cmd/t9k-local ./cmd/t9k-scheduler
	@ln -sf t9k $(BIN)/kubectl-t9k

.PHONY: run
run: build ## Start the embedded cluster and run examples/hello on it until it finishes
	@$(BIN)/t9k local up
	@$(BIN)/t9k run -f examples/hello/job.yaml
	@echo
	@echo "Run your own job:        bin/t9k run -f MANIFEST"
	@echo "Show it:                 bin/t9k get, bin/t9k describe JOB, bin/t9k logs JOB"
	@echo "Stop the cluster:        bin/t9k local down"
	@echo "Open the console:        $$($(BIN)/t9k local console)"

##### Package

PLATFORMS ?= linux/amd64,linux/arm64
REGISTRY  ?= tensorstack
# All files in an image or archive get the time of the commit, so that builds are reproducible.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PACKAGING = cd tools/packaging && go run .
PACKAGE_FLAGS = -version $(VERSION) -revision "$(shell git rev-parse HEAD 2>/dev/null)" -created $(SOURCE_DATE_EPOCH) -platforms $(PLATFORMS) \
	-registry $(REGISTRY) -ldflags '$(LDFLAGS)' -kubernetes-ldflags '$(LOCAL_LDFLAGS)'

.PHONY: images
images: ## Write the container images to dist/images (PLATFORMS=linux/amd64: only this platform; REGISTRY: prefix of their names)
	@$(PACKAGING) images $(PACKAGE_FLAGS)

.PHONY: release
release: ## Write all files of a release to dist/: command lines, programs, chart, images, checksums, bills of materials
	@$(PACKAGING) release $(PACKAGE_FLAGS)

##### Test

# The packages that take longest start first, so that they do not run alone at the end. Three packages run at a time,
# because each may start its own API servers and mostly waits for them. Vet is off, because `go test` would take two
# minutes to vet all of Kubernetes; `make lint` vets this module. Without debug information, a test program is linked in
# half the time.
TESTFLAGS := -vet=off -ldflags='-s -w -linkmode=internal'
LONGEST := ./test/integration ./test/scheduler ./internal/sim
# The tests of these packages use whole clusters. `make e2e` runs them.
CLUSTERS := ./test/e2e ./internal/local/localcmd

.PHONY: test
test: export T9K_LOCAL = $(BIN)/t9k-local
test: export T9K = $(BIN)/t9k
test: build ## Run the tests of all modules, except those with a separate target below (5 minutes; builds bin/ first)
	@all=$$(go list ./...) && clusters=$$(go list $(CLUSTERS)) && \
		go test -p 3 $(TESTFLAGS) -timeout 30m $(LONGEST) $$(echo "$$all" | grep -vxF "$$clusters")
	@for m in $(filter-out .,$(MODULES)); do (cd $$m && go test $(TESTFLAGS) -timeout 30m ./...) || exit 1; done

.PHONY: e2e
e2e: export T9K_LOCAL = $(BIN)/t9k-local
e2e: export T9K = $(BIN)/t9k
e2e: build ## Run jobs and all examples on the embedded cluster, and start, stop and break clusters of t9k local (4 minutes)
	@go test $(TESTFLAGS) -timeout 30m $(CLUSTERS)

.PHONY: test-fast
test-fast: export T9K_LOCAL = $(BIN)/t9k-local
test-fast: build ## Run the fast tests: engine, kinds, controller, scheduler core, command line, simulator (1 minute)
	@go test $(TESTFLAGS) ./internal/engine ./internal/kinds/... ./internal/jobcontroller ./internal/scheduler/core ./internal/cli/... ./internal/convert
	@go test $(TESTFLAGS) ./internal/sim

.PHONY: cover
cover: export T9K_LOCAL = $(BIN)/t9k-local
cover: build ## Print how much of the controller, of queues and of the webhook their own tests cover; fail below 80 % (20 seconds)
	@hack/cover 80 ./internal/jobcontroller ./internal/queue ./internal/webhook

# `make test` uses fewer worlds, steps and clusters. The first command prints the number of explored states.
.PHONY: test-sim
test-sim: ## Simulate 5,000 worlds and 12,000 clusters, and explore every order of events of small jobs, four steps deep (2 minutes)
	@go test -vet=off -count 1 -timeout 30m -v -run '^TestEveryOrder$$' ./internal/sim -depth 4
	@go test -vet=off -count 1 -timeout 30m -run '^TestWorlds$$' ./internal/sim -worlds 5000
	@go test -vet=off -count 1 -timeout 30m -run '^(TestProperties|TestNoStarvation)$$' ./internal/scheduler/core -clusters 12000 -crowds 1000

.PHONY: test-faults
test-faults: export T9K_LOCAL = $(BIN)/t9k-local
test-faults: export T9K = $(BIN)/t9k
test-faults: build ## Kill, stop and slow down all components while jobs run (6 minutes)
	@go test -vet=off -count 1 -timeout 20m -v ./test/integration -faults -run '^(TestJobs(WithoutFault|Survive)|TestWrongClocks|TestKilledConsoleLosesNoEndedJob)'
	@go test -vet=off -count 1 -timeout 20m -v ./test/scheduler -faults -run '^TestGangs(WithoutFault|Survive)'
	@go test -vet=off -count 1 -timeout 20m -v ./test/e2e -faults -run '^Test(JobsEndTheSame|GangsSurvive|JobsContinueAfterAPIServerOutage)'

.PHONY: e2e-torch
e2e-torch: export T9K_LOCAL = $(BIN)/t9k-local
e2e-torch: build ## Train with PyTorch on the embedded cluster; needs python3 with torch (Debian: python3-torch)
	@go test -vet=off -timeout 10m -v -run '^TestTorch' ./test/e2e -torch

.PHONY: e2e-upgrade
e2e-upgrade: export T9K_LOCAL = $(BIN)/t9k-local
e2e-upgrade: build ## Upgrade, downgrade and remove the chart with Helm while jobs and gangs run (3 minutes); needs root and the git history
	@go test -vet=off -timeout 20m -v -run '^TestJobsSurviveUpgradeAndRemoval$$' ./test/upgrade -upgrade

# `make e2e` runs jobs and a gang on a whole cluster that emulates the oldest version. Two versions are tested at the
# same time, because the tests of one version often leave the processor idle.
.PHONY: test-versions
test-versions: build ## Run the integration tests, and jobs on a whole cluster, on API servers that emulate each older supported Kubernetes
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(addprefix test-version-,1.33 1.34 1.35)

test-version-%: export T9K_LOCAL = $(BIN)/t9k-local
test-version-%: export T9K = $(BIN)/t9k
test-version-%: export T9K_EMULATE = $*
test-version-%:
	@echo "Kubernetes $*:"
	@go test -vet=off -count 1 -timeout 30m ./test/integration
	@go test -vet=off -count 1 -timeout 10m -run '^TestJobsRunOnOlderKubernetes$$' ./test/e2e

# These are the version of the oldest supported Kubernetes and the linker flags of its control plane.
OLDEST := 1.33
OLDEST_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=v1.33.13 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=33

.PHONY: test-newkind
test-newkind: $(TOOLS)/controller-gen $(TOOLS)/applyconfiguration-gen ## Add a kind of job to a copy of the tree, compile all tests there and run those of the kinds (2 minutes)
	@go test -vet=off -count 1 -timeout 20m -v ./hack/genkinds -newkind

.PHONY: test-builds
test-builds: ## Build the operator's image twice, and t9k for macOS and Windows (up to 10 minutes the first time)
	@cd tools/packaging && go test -vet=off -count 1 -timeout 30m -v -run '^Test(BuildsOfAnImage|CommandLineBuilds)' -builds .

.PHONY: test-oldest
test-oldest: export T9K_LOCAL = $(BIN)/t9k-local
test-oldest: export T9K = $(BIN)/t9k
test-oldest: export T9K_CONTROL_PLANE = $(BIN)/oldest
test-oldest: build ## Run the tests on the oldest supported Kubernetes, from its own modules (compiles all of Kubernetes the first time)
	@hack/test-oldest $(BIN)/oldest '$(OLDEST_LDFLAGS)' $(OLDEST)

.PHONY: e2e-containers
e2e-containers: export T9K_LOCAL = $(BIN)/t9k-local
e2e-containers: export T9K = $(BIN)/t9k
e2e-containers: export T9K_IMAGES = $(CURDIR)/dist/images
e2e-containers: export HELM = $(TOOLS)/helm
e2e-containers: export KUBEROUTER = $(BIN)/kuberouter
e2e-containers: PLATFORMS = linux/$(shell go env GOARCH)
e2e-containers: build images $(TOOLS)/helm ## Install the chart on a node with containers and run jobs; needs root and Debian's containerd, runc, containernetworking-plugins, busybox-static, iptables, ipset
	@cd test/kuberouter && ../../hack/gobuild -ldflags '-s -w' -o $(KUBEROUTER) .
	@go test $(if $(filter 0,$(shell id -u)),-exec 'unshare --net') -vet=off -timeout 15m -v -run '^TestChartRunsJobsInContainers$$' ./test/e2e -containers

.PHONY: e2e-browser
e2e-browser: export T9K_LOCAL = $(BIN)/t9k-local
e2e-browser: export T9K = $(BIN)/t9k
e2e-browser: build ## Use the console in a real browser, on the embedded cluster; needs chromium (Debian: chromium)
	@cd test/browser && go test -vet=off -timeout 10m -count=1 .

.PHONY: pictures
pictures: export T9K = $(BIN)/t9k
pictures: build ## Take the pictures of the console in docs/images
	@cd test/browser && go test -vet=off -count=1 -run '^TestPictures$$' . -pictures $(CURDIR)/docs/images

FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run each fuzz target (FUZZTIME=30s: time for each; FUZZ: part of the names of the targets to run)
	@hack/fuzz $(FUZZTIME) $(FUZZ)

.PHONY: bench
bench: export T9K_LOCAL = $(BIN)/t9k-local
bench: build ## Compare jobs/s, CPU and requests with batch/v1 Job (BENCH: regexp of workloads, see docs/performance.md)
	@hack/gobuild -o $(BIN)/perf ./test/perf
	@$(BIN)/perf -run '$(BENCH)' -operator $(BIN)/t9k-operator -out $(CURDIR)/bench

##### Code

# This compares the files before and after, so that it works with uncommitted changes too.
.PHONY: verify
verify: ## Generate, format and lint; fail if that changes a file or finds anything
	@mkdir -p $(BIN) && hack/checksums >$(BIN)/before
	@$(MAKE) generate fmt lint
	@hack/checksums >$(BIN)/after
	@diff $(BIN)/before $(BIN)/after || { echo "verify: \`make generate fmt\` has changed the files above: commit the changes"; exit 1; }

API_GROUPS := batch/v1beta1 scheduler/v1beta1 tensorboard/v1beta1

.PHONY: generate
generate: $(TOOLS)/controller-gen $(TOOLS)/applyconfiguration-gen ## Write deepcopy, CRDs, RBAC, apply configurations, docs/reference and the chart
	@cd api && $(TOOLS)/controller-gen object crd:generateEmbeddedObjectMeta=true paths=./... output:crd:dir=../config/crd
	@go run ./hack/genkinds .
	@$(TOOLS)/controller-gen rbac:roleName=t9k-operator paths=./internal/jobcontroller/... paths=./internal/operator/... paths=./internal/tensorboard/... paths=./internal/queue/... output:rbac:dir=config/rbac
	@rm -rf api/applyconfiguration
	@cd api && $(TOOLS)/applyconfiguration-gen --output-dir applyconfiguration --output-pkg tensorstack.dev/batch/api/applyconfiguration $(API_GROUPS:%=tensorstack.dev/batch/api/%)
	@cd tools && go run ./apidocs ../docs/reference $(API_GROUPS:%=../api/%) ../api/config/v1alpha1
	@go run ./hack/genmetrics docs/reference/metrics.md
	@$(PACKAGING) generate

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format all Go files
	@$(TOOLS)/golangci-lint fmt

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Check style, sizes and the direction of dependencies
	@hack/lint $(TOOLS)/golangci-lint ./api ./internal/local/shim ./tools ./tools/packaging ./tools/monitoring ./test/browser ./test/kuberouter

# The tools are in a separate module, so that their dependencies do not affect the product's.
TOOL_PACKAGES := \
	github.com/golangci/golangci-lint/v2/cmd/golangci-lint \
	k8s.io/code-generator/cmd/applyconfiguration-gen \
	sigs.k8s.io/controller-tools/cmd/controller-gen

# The tests use the version of Helm whose library the chart tests use. Users install Helm themselves.
$(TOOLS)/helm: tools/packaging/go.mod
	@cd tools/packaging && GOBIN=$(TOOLS) go install helm.sh/helm/v4/cmd/helm@$$(go list -m -f '{{.Version}}' helm.sh/helm/v4)
	@touch $@

# govulncheck has its own dependencies, because it must support the newest Go.
GOVULNCHECK := v1.9.0
$(TOOLS)/govulncheck: Makefile
	@GOBIN=$(TOOLS) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	@touch $@

$(TOOLS)/%: export GOBUILD_NOTE = Compiling $*, once. golangci-lint takes about 3 minutes on two cores.
$(TOOLS)/%: tools/go.mod tools/go.sum
	@cd tools && ../hack/gobuild -o $@ $(filter %/$*,$(TOOL_PACKAGES))
	@touch $@

.PHONY: licenses
licenses: ## Check and print the licences of all modules that are compiled into the programs
	@$(PACKAGING) licenses

# The default database is https://vuln.go.dev. GOVULNDB can name another one, such as file:///path/of/a/copy.
.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck ## Look for known vulnerabilities in the code that the programs call; needs Go's vulnerability database (GOVULNDB)
	@$(TOOLS)/govulncheck $${GOVULNDB:+-db $$GOVULNDB} ./cmd/...

.PHONY: clean
clean: ## Remove bin/ and dist/
	rm -rf $(BIN) dist
