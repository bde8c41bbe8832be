# Everything a person or a machine runs. `make` alone shows the list.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help tools cli build demo up test sim explore planted chaos fuzz lint doc check

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

tools: ## nats-server, and what a build needs
	@scripts/check-tools.sh
	@scripts/fetch-nats-server.sh

cli: ## the NATS CLI, where Go can build it; a few tests use it
	@scripts/fetch-nats-cli.sh

build: ## all programs
	cargo build --workspace --bins

demo: tools build ## the whole system on this machine, shown and taken down (ARGS=--json for a program)
	@$${CARGO_TARGET_DIR:-target}/debug/orchestrator demo $(ARGS)

up: tools build ## the whole system on this machine, at its usual ports, until interrupted
	@$${CARGO_TARGET_DIR:-target}/debug/orchestrator up $(ARGS)

chaos: tools ## real processes killed, frozen and cut off under load (MINUTES=10 SEED=n; short without)
	cargo build --workspace --bins
	SAGA_CHAOS_MINUTES=$(MINUTES) SAGA_SEED=$(SEED) cargo test -p saga-tests --test chaos -- --nocapture

fuzz: ## the property tests for longer (CASES=10000)
	PROPTEST_CASES=$${CASES:-10000} cargo test -p contracts --test properties
	PROPTEST_CASES=$${CASES:-10000} cargo test -p orchestrator --lib -- callback:: store::

test: tools cli ## all tests; needs neither a running server nor a database
	cargo build --workspace --bins
	cargo test --workspace

sim: ## seeded random worlds (SEEDS=n, FIRST=k; SEED=x or SCRIPT=file to see one again)
	SEEDS=$(SEEDS) FIRST=$(FIRST) SEED=$(SEED) SCRIPT=$(SCRIPT) cargo test -p saga-tests --test simulation -- $(ARGS)

explore: ## every order of what may happen in small worlds (EXPLORE=large for more faults)
	cargo test -p saga-tests --test explore -- --nocapture

planted: ## faults planted in a copy of the source: the harness notices each (FAULT=part of a name)
	cargo test -p saga-tests --test planted -- --ignored --nocapture

lint: ## format and clippy, warnings denied
	cargo fmt --all --check
	cargo lint

doc: ## documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

check: lint doc test ## what continuous integration runs, but for cargo deny
