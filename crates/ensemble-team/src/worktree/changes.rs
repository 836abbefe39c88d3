//! Which files of a directory differ from its last commit. Reads only.

use std::path::Path;
use std::time::Duration;

use super::git::{CEILING_VARIABLE, GitRepository};
use ensemble_core::durable::Durability;

/// Time limit of each command; a larger repository has no answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Lists each changed and each untracked file, under any settings of the user.
pub(super) const STATUS: [&str; 5] =
    ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"];

/// The changed files below a directory, as `git status` has them: two letters of state, a blank and
/// the path relative to the directory. `None` if it is in no repository, if there is no git, or if
/// git does not answer in time.
pub fn changed_files(directory: &Path) -> Option<Vec<String>> {
    let git =
        GitRepository { limit: LIMIT, durability: Durability::Process, variables: Vec::new() };
    // The directory may be inside a repository.
    let call = || git.at(directory).with(CEILING_VARIABLE, "");
    let prefix = call().run(&["rev-parse", "--show-prefix"]).ok()?;
    let listed = call().bytes(&[&STATUS[..], &["--", "."]].concat()).ok()?;
    let listed = String::from_utf8_lossy(&listed);
    let entries = listed.split('\0').filter_map(|entry| entry.split_at_checked(3));
    let relative = |(state, path): (&str, &str)| {
        format!("{state}{}", path.strip_prefix(&prefix).unwrap_or(path))
    };
    Some(entries.map(relative).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_named_and_a_directory_outside_of_a_repository_has_none() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(changed_files(home.path()), None);
        let git =
            GitRepository { limit: LIMIT, durability: Durability::Process, variables: Vec::new() };
        let run = |arguments: &[&str]| git.at(home.path()).run(arguments).unwrap();
        let user = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        run(&["init", "--quiet"]);
        let sub = home.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        for (path, text) in [("sub/a.rs", "1"), ("b.rs", "1")] {
            std::fs::write(home.path().join(path), text).unwrap();
        }
        run(&["add", "."]);
        run(&[&user[..], &["commit", "--quiet", "-m", "first"]].concat());
        assert_eq!(changed_files(home.path()), Some(Vec::new()));
        std::fs::write(sub.join("a.rs"), "2").unwrap();
        std::fs::write(sub.join("new file.rs"), "2").unwrap();
        std::fs::remove_file(home.path().join("b.rs")).unwrap();
        let all = [" D b.rs", " M sub/a.rs", "?? sub/new file.rs"].map(str::to_owned);
        assert_eq!(changed_files(home.path()), Some(all.to_vec()));
        let below = [" M a.rs", "?? new file.rs"].map(str::to_owned);
        assert_eq!(changed_files(&sub), Some(below.to_vec()));
    }
}
