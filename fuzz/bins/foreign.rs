//! The target `foreign`; its invariant is in `src/foreign.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::foreign::check(data));
