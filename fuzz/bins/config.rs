//! The target `config`; its invariant is in `src/config.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::config::check(data));
