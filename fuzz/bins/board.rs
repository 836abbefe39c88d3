//! The target `board`; its invariant is in `src/board.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::board::check(data));
