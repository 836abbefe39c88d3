//! A wall clock of processes that a test sets, without privileges and without touching the machine's.
//!
//! A small library loaded before the C library (`clock.c`) adds what a file says. It needs `cc` and a
//! dynamic linker. Other clocks stay as they are.
#![allow(unreachable_pub, reason = "each test program includes it by itself")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct WallClock {
    library: PathBuf,
    /// By how many seconds it differs from the machine's.
    offset: PathBuf,
}

impl WallClock {
    /// `None`, and said, without a C compiler.
    pub fn build(directory: &Path) -> Option<Self> {
        let [source, library, offset] =
            ["clock.c", "clock.so", "clock"].map(|file| directory.join(file));
        fs::write(&source, include_str!("clock.c")).expect("a file");
        fs::write(&offset, "0").expect("a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        if compiler.status().is_ok_and(|status| status.success()) {
            return Some(Self { library, offset });
        }
        println!("skipped: clock jumps: no `cc` that makes a shared library");
        None
    }

    /// What a process needs in its environment to have this clock.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("ENSEMBLE_TEST_CLOCK", &self.offset)]
    }

    /// Sets it for all processes, by this many seconds from the machine's.
    pub fn set(&self, seconds: i64) {
        let new = self.offset.with_extension("new");
        fs::write(&new, seconds.to_string()).expect("a file");
        fs::rename(new, &self.offset).expect("a rename");
    }
}
