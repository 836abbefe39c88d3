//! The target `screen`; its invariant is in `src/screen.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::screen::check(data));
