# The one entry point: `make help` lists what there is. Every target installs what it needs first.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c

# `make up` and `make test` use labs of different names, and so do different checkouts.
CHECKOUT := $(shell printf %s '$(CURDIR)' | cksum | awk '{printf "%04x", $$1 % 65536}')
# What is built is kept outside the source tree. Cargo takes the crates of two checkouts for the same ones, so each has a
# directory of its own; a new one begins as a copy of another's, with the dependencies built (hack/target-dir).
export EVENKEEL_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/evenkeel
export CARGO_TARGET_DIR ?= $(EVENKEEL_CACHE)/target-$(CHECKOUT)

export LAB_UP := dev-$(CHECKOUT)
export LAB_TEST := test-$(CHECKOUT)
# Where it runs: `lab` makes a Kubernetes on this machine, `current` takes the one kubectl points at.
CLUSTER ?= lab

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: can-run bin/lab ## Bring up a real Kubernetes here, with the operator and an etcd cluster (CLUSTER=current: use the current context)
	@hack/up $(CLUSTER)

.PHONY: down
down: bin/lab ## Take the Kubernetes of `make up` down; nothing is left behind
	@bin/lab down --name $(LAB_UP)

.PHONY: kubeconfig
kubeconfig: ## Print the path of the lab's kubeconfig: export KUBECONFIG=$(make -s kubeconfig)
	@if [ ! -x bin/lab ]; then echo "there is no lab yet: run make up" >&2; exit 1; fi
	bin/lab kubeconfig --name $(LAB_UP)

.PHONY: test
test: ## Run the tests that each change must pass, stories on a real Kubernetes included (E2E=skip leaves these out)
	@hack/test test

.PHONY: test-unit
test-unit: ## Run those of them that need no Kubernetes
	@hack/test unit

.PHONY: test-e2e
test-e2e: ## Run the stories of `make test`, or those of all tiers whose name has a word (STORY=word)
	@hack/test e2e

.PHONY: test-all
test-all: ## Run everything: all stories, node faults, larger explorations, soak (hours; writes bench/results/test-all.md)
	@hack/test all

.PHONY: soak
soak: bin/lab ## Ten pods on each of three nodes for ten minutes, no restart (writes bench/results/soak.md)
	@hack/soak

.PHONY: explore
explore: prepared ## Explore two faults, a crash and an edit in any order (half an hour; writes bench/results/explore.md)
	@hack/explore

.PHONY: vm
vm: ## Run `make up`, the tour and the lab's tests in a stock Debian with cgroup v2, under qemu (hack/vm --help)
	@hack/vm all

.PHONY: break
break: prepared ## Explore with a deliberate bug and tell the story of its harm (BUG=name; none lists them)
	@cargo run --locked --quiet --package evenkeel-explorer --example break -- $(BUG)

.PHONY: check
check: prepared ## Format, lints, licences, file lengths: run it before each commit
	@hack/check

.PHONY: bench
bench: bin/lab ## Measure, and write the figures to bench/results (BENCH="roll fleet": some of them; FLEET=n clusters)
	@for what in $(or $(BENCH),lab etcd gaps roll fleet); do
	    if [ "$$what" = lab ]; then hack/bench; else "hack/bench-$$what"; fi
	done

.PHONY: generate
generate: bin/lab ## Write the generated files anew
	@hack/generate

.PHONY: screens
screens: bin/lab ## Take the screens in the docs anew, on a lab of their own (PAGE=word: some of them)
	@hack/screens

.PHONY: deploy
deploy: ## Install the operator into the cluster of the current kubectl context (IMAGE=…, NAMESPACES=a,b)
	@hack/deploy

.PHONY: clean
clean: ## Remove what cargo built for this checkout (Kubernetes and etcd stay in the cache)
	@rm -rf bin target $(CARGO_TARGET_DIR)

# Before anything is installed or built.
.PHONY: can-run
can-run:
	@[ $(CLUSTER) != lab ] || hack/can-run

.PHONY: prepared
prepared:
	@hack/prepare

# Always asked: cargo knows best whether something changed.
.PHONY: bin/lab
bin/lab: prepared
	@cargo build --locked --package evenkeel-lab
	mkdir -p bin
	# A copy, not a link: it outlives a cleaned cache.
	cmp -s $(CARGO_TARGET_DIR)/debug/lab bin/lab || install $(CARGO_TARGET_DIR)/debug/lab bin/lab
