# Two commands are all the set-up there is: `make demo` and `make test`.
.PHONY: demo test test-agents lint docs bench torture needs

# The main job: a small team at work in a tmux server of its own.
demo: needs
	cargo run --quiet --release --package ensemble-cli --bin ensemble -- demo

# All tests, with real tmux servers and real processes on private sockets.
test: needs
	cargo test --workspace --all-features --quiet

# The real Claude Code, Codex and OpenCode against a model of ours; docs/agents.md tells more.
AGENTS ?=
test-agents: needs
	cargo build --quiet --package ensemble-cli
	tests/agents/run.py $(AGENTS)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --quiet

# Every figure against its limit, in one run; docs/benchmarks.md says how to read them.
bench: needs
	@.ci/needs valgrind
	cargo bench --workspace

# The crash and race tests, longer and with a seed of your own.
SEED ?= 1
SECONDS ?= 600
torture: needs
	TORTURE_SEED=$(SEED) TORTURE_SECONDS=$(SECONDS) cargo test --release --package ensemble-core --test race --test syscalls -- --nocapture
	TORTURE_SEED=$(SEED) TORTURE_SECONDS=$(SECONDS) cargo test --release --package ensemble-watch -- --nocapture

needs:
	@.ci/needs
