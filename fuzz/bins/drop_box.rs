//! The target `drop_box`; its invariant is in `src/drop_box.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ensemble_fuzz::drop_box::check(data));
