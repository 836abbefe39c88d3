//! The target `mcp`; its invariant is in `src/mcp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::mcp::check(data));
