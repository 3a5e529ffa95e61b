# The commands people and CI start from. Every build uses the one release profile, so the native parts (librdkafka,
# libjpeg-turbo, zstd) are compiled once.

REELBENCH := $(or $(CARGO_TARGET_DIR),target)/release/reelbench

# A Rust installed a minute ago by rustup works in this shell too.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help demo test check setup build assets ci

help: ## show this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Areas of verify-%: broker video inference scenario wire pipeline fuzz'

demo: build assets ## install what is missing, build, fetch the assets, run the quick start, show the report
	@scripts/demo

test: ## all tests; ends with "N passed, N failed, N skipped"
	@scripts/setup --tests
	cargo test --release --locked --workspace --no-run
	@$(REELBENCH) assets fetch
	@scripts/run-tests --workspace

check: ## format, lints, unit tests: what to run before a commit
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	@scripts/run-tests --workspace --lib --bins

verify-%: ## the long form of one area's tests
	@scripts/verify $*

setup: ## install missing Debian packages (apt), check cargo
	@scripts/setup

build: setup ## build the release binary
	cargo build --release --locked --workspace

assets: build ## fetch and make the pinned models, pictures and clips
	@$(REELBENCH) assets fetch

bench-%: build ## one bench: decode publish inference broker pipeline books (ratios against a peer or a limit)
	@scripts/bench $*

ci: ## what CI runs
	@.ci/run
