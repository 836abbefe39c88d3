//! The command `ensemble`; all of it is in the library beside this file.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ensemble_cli::program()
}
