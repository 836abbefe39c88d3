//! The target `control`; its invariant is in `src/control.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::control::check(data));
