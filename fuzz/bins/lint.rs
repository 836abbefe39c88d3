//! The target `lint`; its invariant is in `src/lint.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::lint::check(data));
