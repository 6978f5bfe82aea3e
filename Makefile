# `make help` lists the targets. Only Go, make and a POSIX shell are needed; `verify` also needs git.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN     := $(CURDIR)/bin
MODULES := . ./api ./internal/local/shim

KUBE_VERSION := v1.36.3
KUBE_X       := k8s.io/component-base/version
VERSION      := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS      := -s -w -X tensorstack.dev/batch/internal/version.Version=$(VERSION)
# Without our own version, so that a commit alone does not link the largest program again.
LOCAL_LDFLAGS := -s -w -X $(KUBE_X).gitVersion=$(KUBE_VERSION) -X $(KUBE_X).gitMajor=1 -X $(KUBE_X).gitMinor=36

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## Build t9k, t9k-operator and t9k-local into bin/ (first time about 4 minutes on two cores)
	@hack/gobuild -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/t9k ./cmd/t9k-operator
	@hack/gobuild -ldflags '$(LOCAL_LDFLAGS)' -o $(BIN)/ ./cmd/t9k-local
	@ln -sf t9k $(BIN)/kubectl-t9k

.PHONY: run
run: build ## Start the embedded cluster and run examples/hello on it, to its end
	@$(BIN)/t9k local up
	@$(BIN)/t9k run -f examples/hello/job.yaml
	@echo
	@echo "Run a job of your own:   bin/t9k run -f MANIFEST"
	@echo "Look at it:              bin/t9k get, bin/t9k describe JOB, bin/t9k logs JOB"
	@echo "Remove the cluster:      bin/t9k local down"

# Packages are tested two at a time; each may start an API server of its own.
.PHONY: test
test: export T9K_LOCAL = $(BIN)/t9k-local
test: export T9K = $(BIN)/t9k
test: build ## Run every test of the three modules (builds bin/ first)
	@for m in $(MODULES); do (cd $$m && go test -p 2 -timeout 15m ./...) || exit 1; done

.PHONY: clean
clean: ## Remove bin/
	rm -rf $(BIN)
