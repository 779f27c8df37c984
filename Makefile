# The entry point for all tasks: `make help` lists the targets. Each target installs its requirements first.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c

# `make up` and `make test` use different labs, and each checkout has its own labs: their names contain this hash of its path.
CHECKOUT := $(shell printf %s '$(CURDIR)' | cksum | awk '{printf "%04x", $$1 % 65536}')
# Build results are stored outside the source tree. Cargo does not distinguish the crates of two checkouts, so each checkout has
# its own target directory. hack/target-dir creates it as a copy of another checkout's, with the dependencies built.
export EVENKEEL_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/evenkeel
export CARGO_TARGET_DIR ?= $(EVENKEEL_CACHE)/target-$(CHECKOUT)

export LAB_UP := dev-$(CHECKOUT)
export LAB_TEST := test-$(CHECKOUT)
# The Kubernetes cluster of `make up`: `lab` starts one on this machine, `current` uses kubectl's current context.
CLUSTER ?= lab

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: can-run bin/lab ## Start Kubernetes on this machine, with the operator and an etcd cluster (CLUSTER=current: use the current context)
	@hack/up $(CLUSTER)

.PHONY: down
down: bin/lab ## Stop the Kubernetes of `make up` and remove all its files
	@bin/lab down --name $(LAB_UP)

.PHONY: kubeconfig
kubeconfig: ## Print the path of the lab's kubeconfig: export KUBECONFIG=$(make -s kubeconfig)
	@if [ ! -x bin/lab ]; then echo "there is no lab yet: run make up" >&2; exit 1; fi
	bin/lab kubeconfig --name $(LAB_UP)

.PHONY: test
test: ## Run the tests that each change must pass, including stories on a real Kubernetes (E2E=skip: without stories)
	@hack/test test

.PHONY: test-unit
test-unit: ## Run the tests of `make test` that need no Kubernetes
	@hack/test unit

.PHONY: test-e2e
test-e2e: ## Run the stories of `make test`, or the stories of all tiers whose names contain a word (STORY=word)
	@hack/test e2e

.PHONY: test-all
test-all: ## Run all tests: all stories, node faults, larger explorations, soak (hours; writes bench/results/test-all.md; PART=unit, PART=stories: only this part)
	@hack/test all

.PHONY: soak
soak: bin/lab ## Run ten pods on each of three nodes for ten minutes; fails if one restarts (writes bench/results/soak.md)
	@hack/soak

.PHONY: explore
explore: prepared ## Explore every order of two faults, a crash and an edit (half an hour; writes bench/results/explore.md)
	@hack/explore

.PHONY: vm
vm: ## Run `make up`, the tour and the lab's tests in a Debian VM with cgroup v2, under qemu (see hack/vm --help)
	@hack/vm all

.PHONY: break
break: prepared ## Explore with a deliberate bug and print the shortest trace that violates a rule (BUG=name; without: list the bugs)
	@cargo run --locked --quiet --package evenkeel-explorer --example break -- $(BUG)

.PHONY: check
check: prepared ## Check format, lints, licences, file lengths and retired words; run it before each commit
	@hack/check

.PHONY: bench
bench: bin/lab ## Run the benchmarks and write bench/results (BENCH="roll fleet": only these; FLEET=n: number of clusters)
	@for what in $(or $(BENCH),lab etcd gaps roll fleet backup); do
	    if [ "$$what" = lab ]; then hack/bench; else "hack/bench-$$what"; fi
	done

.PHONY: generate
generate: bin/lab ## Write the generated files: CRDs, manifests, reference pages
	@hack/generate

.PHONY: screens
screens: bin/lab ## Capture the screens in the docs again, on a separate lab (PAGE=word: only pages whose names contain the word)
	@hack/screens

.PHONY: deploy
deploy: ## Install the operator into the cluster of the current kubectl context (IMAGE=…, NAMESPACES=a,b)
	@hack/deploy

.PHONY: dist
dist: prepared ## Write an archive of the kubectl plugin, checksums and a Krew manifest into dist/ (DIST_URL=…: where archives are published)
	@hack/dist

.PHONY: clean
clean: ## Remove cargo's build results of this checkout (Kubernetes and etcd stay in the cache)
	@rm -rf bin target $(CARGO_TARGET_DIR)

# Checks the requirements of a lab before anything is installed or built.
.PHONY: can-run
can-run:
	@[ $(CLUSTER) != lab ] || hack/can-run

.PHONY: prepared
prepared:
	@hack/prepare

# Always runs: cargo determines whether a source has changed.
.PHONY: bin/lab
bin/lab: prepared
	@cargo build --locked --package evenkeel-lab
	mkdir -p bin
	# A copy and not a link, so that `lab` still works when the cache is removed.
	cmp -s $(CARGO_TARGET_DIR)/debug/lab bin/lab || install $(CARGO_TARGET_DIR)/debug/lab bin/lab
