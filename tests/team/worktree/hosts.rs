//! Two hosts of a team: a clone each, a blackboard in memory for both, and a bare repository as remote.

use ensemble_core::document::SharedFiles;

use crate::memory::Memory;
use crate::worktree::bed::make_repository;

use super::*;

pub(crate) struct Hosts {
    remote: tempfile::TempDir,
    pub(crate) near: Bed,
    pub(crate) far: Bed,
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let remote = tempfile::tempdir().unwrap();
        let files = Arc::new(Memory::default());
        make_remote(remote.path());
        let near = host(remote.path(), "near", &files);
        let far = host(remote.path(), "far", &files);
        Self { remote, near, far }
    }

    pub(crate) fn remote(&self) -> PathBuf {
        self.remote.path().join("team.git")
    }

    /// What a ref of the remote points at; empty without such a ref.
    pub(crate) fn tip(&self, reference: &str) -> String {
        let format = "--format=%(objectname)";
        git(&self.remote(), &["for-each-ref", format, reference])
    }

    pub(crate) fn refs(&self, below: &str) -> Vec<String> {
        let all = git(&self.remote(), &["for-each-ref", "--format=%(refname)", below]);
        all.lines().map(str::to_owned).collect()
    }

    pub(crate) fn file(&self, commit: &str, file: &str) -> String {
        git(&self.remote(), &["show", &format!("{commit}:{file}")])
    }

    /// Moves the remote away, or back.
    pub(crate) fn take_away(&self, is_away: bool) {
        let (here, there) = (self.remote(), self.remote.path().join("away"));
        let (from, to) = if is_away { (here, there) } else { (there, here) };
        std::fs::rename(from, to).unwrap();
    }

    /// A person commits to the integration branch of the remote.
    pub(crate) fn by_a_person(&self, file: &str) {
        let home = tempfile::tempdir().unwrap();
        let from = self.remote();
        git(home.path(), &["clone", "--quiet", "-b", "integration", from.to_str().unwrap(), "."]);
        crate::worktree::bed::commit(home.path(), file, "by a person");
        git(home.path(), &["push", "--quiet", "origin", "integration"]);
    }
}

/// A bare repository with one commit on `main`, in `team.git` of this directory.
pub(crate) fn make_remote(at: &Path) {
    let first = at.join("first");
    std::fs::create_dir(&first).unwrap();
    make_repository(&first);
    git(at, &["clone", "--quiet", "--bare", "first", "team.git"]);
}

/// A clone of a remote that is in its `.ensemble/`, and an empty board of this host alone.
pub(crate) fn alone() -> Bed {
    let home = tempfile::tempdir().unwrap();
    let hidden = home.path().join(".ensemble");
    std::fs::create_dir(&hidden).unwrap();
    make_remote(&hidden);
    make_repository(home.path());
    git(home.path(), &["remote", "add", "origin", ".ensemble/team.git"]);
    git(home.path(), &["fetch", "--quiet", "origin"]);
    git(home.path(), &["reset", "--quiet", "--hard", "origin/main"]);
    git(home.path(), &["branch", "--quiet", "--set-upstream-to=origin/main"]);
    let board = Board::create(home.path(), board_options()).unwrap();
    Bed { home, board, memory: Arc::default(), has_remote: true }
}

/// A clone with the board that all hosts share.
fn host(remote: &Path, name: &str, files: &Arc<Memory>) -> Bed {
    let home = tempfile::tempdir().unwrap();
    let from = remote.join("team.git");
    git(home.path(), &["clone", "--quiet", from.to_str().unwrap(), "."]);
    let shared: Arc<dyn SharedFiles> = Arc::<Memory>::clone(files);
    let copy = home.path().join(".ensemble/copy");
    let mut options = board_options();
    (options.copy, options.shared) = (Some(copy), Some(shared));
    options.host = Some(name.to_owned());
    let board = Board::create_shared(home.path(), options.clone())
        .or_else(|_| Board::find_shared(home.path(), options))
        .unwrap();
    Bed { home, board, memory: Arc::default(), has_remote: true }
}
