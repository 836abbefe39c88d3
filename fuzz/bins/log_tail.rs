//! The target `log_tail`; its invariant is in `src/log_tail.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::log_tail::check(data));
