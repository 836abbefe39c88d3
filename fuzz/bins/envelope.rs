//! The target `envelope`; its invariant is in `src/envelope.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::envelope::check(data));
