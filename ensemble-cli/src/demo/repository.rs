use std::path::Path;
use std::process::Command;

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::Error;
use ensemble_core::message::shell_quoted;
use ensemble_team::worktree::without_git;

use super::stage::{io_failure, own_program, write};

/// The person who runs the demo may have set no name in git.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "Ensemble demo"),
    ("GIT_AUTHOR_EMAIL", "demo@example.org"),
    ("GIT_COMMITTER_NAME", "Ensemble demo"),
    ("GIT_COMMITTER_EMAIL", "demo@example.org"),
];
const IGNORED: &str =
    "/.ensemble/\n/.worktrees/\n/agents/\n/ensemble.yaml\n/queue/\n/tmux.sock\n/*.sh\n!/greet.sh\n";

pub(super) fn begin(dir: &Path) -> Outcome {
    git(dir, &["init", "-q", "-b", "main"])?;
    let specs = dir.join("specs");
    std::fs::create_dir(&specs).map_err(|e| io_failure("create directory", &specs, e))?;
    write(&specs.join("greet.md"), "# Greet\n\n`greet.sh` says hello to the name it gets.\n")?;
    write(&dir.join(".gitignore"), IGNORED)?;
    git(dir, &["add", "specs", ".gitignore"])?;
    git(dir, &["commit", "-q", "-m", "Say what is wanted"]).map(drop)
}

pub(super) fn git(at: &Path, arguments: &[&str]) -> Outcome<String> {
    let mut command = without_git(Command::new("git"));
    command.arg("-C").arg(at).args(arguments).envs(ENVIRONMENT);
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::from(Error::MissingProgram {
            program: "git",
            remedy: "for instance `apt-get install git`",
        }),
        _ => io_failure("start", Path::new("git"), error),
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(Failure::refused(format!("git {}: {}", arguments.join(" "), complaint.trim())))
        }
    }
}

pub(super) fn supervisor(
    agents: &Path,
    queue: &Path,
    (agent, role, script): (&str, &str, &str),
) -> Outcome<String> {
    let ensemble = own_program()?;
    let file = agents.join(format!("{agent}.sh"));
    write(&file, script)?;
    let (program, queue) = (shell_quoted(&ensemble), shell_quoted(queue));
    let git: Vec<String> = ENVIRONMENT.iter().map(|(k, v)| format!("{k}='{v}'")).collect();
    Ok(format!(
        "env -u TMUX {} ENSEMBLE={program} DEMO={} {program} --queue {queue} agent supervise --role {role} \
         --name {agent} --restart-delay 200ms --hand-over-delay 200ms -- sh {}",
        git.join(" "),
        shell_quoted(agents),
        shell_quoted(&file),
    ))
}
