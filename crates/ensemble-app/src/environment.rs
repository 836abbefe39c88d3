//! Reads from this process's environment what several places need.

/// Variables that name the agent without a flag; the first that is set and not empty counts.
pub const AGENT_VARIABLES: [&str; 2] = ["ENSEMBLE_AGENT_ID", "LIZA_AGENT_ID"];

/// How other programs start this one: the plain name if the PATH leads to this very program, otherwise its path.
pub fn own_program() -> String {
    const NAME: &str = "ensemble";
    let Ok(this) = std::env::current_exe() else { return NAME.to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|dir| dir.join(NAME)).find(|file| file.is_file());
    let same = first.and_then(|file| file.canonicalize().ok());
    match same.is_some_and(|file| this.canonicalize().is_ok_and(|this| this == file)) {
        true => NAME.to_owned(),
        false => this.to_string_lossy().into_owned(),
    }
}
