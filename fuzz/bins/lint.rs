//! The target `lint`; what must hold is in `src/lint.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::lint::check(data));
