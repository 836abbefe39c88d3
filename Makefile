# Two commands are all the set-up there is: `make demo` and `make test`.
.PHONY: demo test test-all test-notify test-agents torture-ways usage-compare test-collector mcp-conformance lint docs bench curves torture torture-clients torture-whole torture-hosts power-cut fuzz sim deny needs pictures story book \
	test-packages packages check-platforms cargo-package first-value

# The main job: a small team at work in a tmux server of its own.
# It is built without what the demo does not run (NATS, MCP), and quickly instead of for speed.
DEMO_BUILD = --profile quick --no-default-features --package ensemble-broker --bin ensemble
demo:
	@.ci/needs demo
	cargo build $(DEMO_BUILD)
	cargo run --quiet $(DEMO_BUILD) -- demo

# All tests but the long ones, with real tmux servers and real processes on private sockets.
test: needs
	tests/run.py

# Those that are marked `#[ignore = "long"]` too.
test-all: needs
	tests/run.py --all

# The watcher's own tests with the file events of other systems, which come through the crate `notify`.
test-notify: needs
	ENSEMBLE_FILE_EVENTS=notify cargo test --package ensemble-watch --all-features --quiet --no-fail-fast

# The real Claude Code, Codex, OpenCode and Gemini CLI against a model of ours; tests/agents/README.md tells more.
# AGENTS=claude,codex selects; ARGS=--write-docs writes the results there.
AGENTS ?=
test-agents: needs
	cargo build --quiet --package ensemble-broker
	python3 tests/agents/selftest.py
	AGENTS="$(AGENTS)" tests/agents/run.py $(ARGS)

# 1,000 messages to four real agents and two workers while all that carries them is killed; see tests/torture/README.md.
COUNT_WAYS ?= 1000
torture-ways: needs
	cargo build --quiet --package ensemble-broker
	SEED="$(SEED)" COUNT="$(COUNT_WAYS)" AGENTS="$(AGENTS)" tests/agents/torture.py

# `ensemble agent usage` beside ccusage on the same records; docs/guides/usage.md has its last run.
CCUSAGE := 20.0.24
usage-compare: needs
	cargo build --quiet --package ensemble-broker
	target=$$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	npm install --prefix $$target/ccusage --no-audit --no-fund --silent ccusage@$(CCUSAGE) && \
	python3 tests/cli/usage/compare.py $$target/debug/ensemble $$target/ccusage/node_modules/.bin/ccusage $(SEED)

# Messages as traces at a real collector, and metrics at promtool; docs/evidence/measurements.md has the last run.
COUNT_TRACES ?= 2000
test-collector: needs
	cargo build --quiet --package ensemble-broker
	target=$$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	tests/cli/export/collector.sh $$target/debug/ensemble $$target/collector $(COUNT_TRACES)

# The pictures of the documentation, from a real team and a real browser.
pictures: needs
	ENSEMBLE_HOUR_SECONDS=150 ENSEMBLE_WRITE_PICTURES=$(CURDIR)/docs/pictures cargo test --quiet --package ensemble-broker --all-features --test cli -- --include-ignored \
		team::hour team::seen demo::the_story

# The recording in README: the real Claude Code and Codex against our model.
story: needs
	cargo build --quiet --package ensemble-broker
	python3 tests/agents/story.py

# The public MCP conformance suite, from npm with the Node 22 that it needs; docs/evidence/reliability.md has its last run.
mcp-conformance: needs
	cargo build --quiet --package ensemble-broker
	tests/cli/mcp/conformance.sh "$$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/ensemble"

# The wheel, the archive and the installers of this machine's target, which `test-packages` installs into empty
# environments. TARGET names another target. docs/operating/install.md has the rest.
TARGET ?= $(shell uname -m)-unknown-linux-musl
TARGET_DIR = $$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
packages:
	@.ci/needs packages
	python3 packaging/build.py --target $(TARGET)
	python3 packaging/generate.py --archives $(TARGET_DIR)/packaging/archives --out $(TARGET_DIR)/packaging

test-packages: needs packages
	python3 packaging/test.py --archives $(TARGET_DIR)/packaging/archives --wheel $(TARGET_DIR)/packaging/wheels/$(TARGET)/*.whl

# From the wheel to two real agents that talk; ARGS='--beside WHEEL' measures hcom's wheel in the same way.
first-value: needs packages
	python3 tests/agents/first_value.py $(ARGS) $(TARGET_DIR)/packaging/wheels/$(TARGET)/*.whl

# Each crate as the registry would have it, built from its package alone.
cargo-package:
	cargo package --workspace --exclude 'embedder-*' --allow-dirty --quiet

# Compiles for systems on which nothing was ever run, and for other Linux machines.
check-platforms:
	.ci/check-platforms

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --package ensemble-broker-core -- -D warnings # what embedders see has docs

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --quiet

# The pages of docs/ as a book of HTML pages with a search; it prints where the book begins.
book:
	@.ci/book

# Every figure against its limit and its peers, in one run; benches/README.md says how to read them. Peers
# that cannot be installed are named and left out.
bench: needs
	@.ci/needs valgrind
	benches/peers.sh
	cargo build --quiet --release --package ensemble-broker
	cargo bench --workspace

# How cost and memory grow with what lies in the queue, as pictures; benches/README.md tells more.
POINTS := $(CURDIR)/docs/curves/scale.csv
curves: needs
	cargo build --release --package ensemble-broker
	ENSEMBLE_BENCH_CSV=$(POINTS) cargo bench --package ensemble-watch --bench table -- scale
	target=$$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	cargo bench --package ensemble-watch --bench curves -- $(POINTS) $$target/curves

# Many processes on one queue, board and table of steps, killed, stopped and restarted, with a checker
# over the history; then the race tests. Longer, and with a seed of your own.
SEED ?= 1
SECONDS ?= 600
torture: needs
	TORTURE_SEED=$(SEED) TORTURE_SECONDS=$(SECONDS) cargo test --release --package ensemble-watch --test torture -- crowd:: --include-ignored --nocapture
	TORTURE_SEED=$(SEED) TORTURE_MESSAGES=5000 cargo test --release --package ensemble-broker-core --all-features --test mail -- race:: --include-ignored --nocapture
	KILLS=all cargo test --release --package ensemble-team --all-features --test team -- killed --include-ignored --nocapture
	KILLS=all cargo test --release --package ensemble-broker-core --all-features --test mail -- requests_killed:: --include-ignored --nocapture

# The clients of clients/ and our own on one mailbox: 8 processes in up to five languages, killed and stopped.
torture-clients: needs
	CLIENTS_MESSAGES=50000 CLIENTS_PROCESSES=8 TORTURE_SEED=$(SEED) TORTURE_SECONDS=$(SECONDS) cargo test --release --package ensemble-broker --all-features --test torture_command -- all_clients --include-ignored --nocapture

# One team on two hosts over a cluster that is killed and cut, for SECONDS; tests/torture/README.md tells more.
torture-hosts: needs
	TORTURE_SEED=$(SEED) HOSTS_SECONDS=$(SECONDS) HOSTS_MESSAGES=2000 HOSTS_TASKS=200 cargo test --release --package ensemble-broker --all-features --test torture_command -- hosts:: --include-ignored --nocapture

# Everything at once on one project in real tmux and git, with 12 agents, for SECONDS; tests/torture/README.md tells more.
torture-whole: needs
	TORTURE_SEED=$(SEED) WHOLE_SECONDS=$(SECONDS) cargo test --release --package ensemble-broker --all-features --test torture_command -- whole:: --include-ignored --nocapture

# All that a power cut may leave, and real power cuts of ext4 and xfs for SECONDS each (root, loop devices).
power-cut: needs
	TORTURE_SEED=$(SEED) POWER_CUT_SECONDS=$(SECONDS) POWER_CUT_DRAWN=100 POWER_CUT_STATES=2000 POWER_CUT_RECORDED=2000 POWER_CUT_KILLS=0 cargo test --release --package ensemble-watch --test torture -- power_cut:: --include-ignored --nocapture

# One fuzz target, on nightly with cargo-fuzz; fuzz/README.md tells more.
fuzz:
	fuzz/run.sh $(TARGET) $(SECONDS) $(SEED)

# The team in simulated time, with as many seeds as wanted.
COUNT ?= 10000
sim:
	ENSEMBLE_STACK_COUNT=$(COUNT) ENSEMBLE_SIM_COUNT=$(COUNT) cargo test --release --package ensemble-team --all-features --test team -- sim:: --include-ignored --nocapture

# Licences, sources and advisories of everything that is built; `cargo install --locked cargo-deny` has it.
deny:
	cargo deny --all-features check bans licenses sources

# python3 with venv, and npm, are only needed by the tests of `ensemble mcp` with the official clients,
# which install those below cargo's directory. A test that cannot says so in one line; with
# ENSEMBLE_TEST_CLIENTS=required it fails.
needs:
	@.ci/needs
