//! What an agent runs without a person being asked reads nothing outside of its project, and acts in no other.

use std::fs;

use super::Team;
use crate::bed::SaidText as _;

/// Each command with a file that agents run unasked; `FILE` stands for the file.
const WITH_A_FILE: [&str; 12] = [
    "send --to conductor -f FILE",
    "send --to conductor --file=FILE",
    "send --all -f FILE",
    "assign worker-1 -f FILE",
    "agent instruct -f FILE",
    "task summary --instruction FILE --wait 0",
    "task dispatch --once -f FILE",
    "request ask plan_approval conductor -f FILE",
    "request plan --task t1 -f FILE",
    "step add -f FILE",
    "step split t1 1 -f FILE",
    "admin lint --mode warn FILE",
];

#[test]
fn an_agent_reads_acts_and_removes_nothing_outside_of_its_project_and_mailbox() {
    let team = Team::with(&["worker-1", "worker-2"], "");
    team.up();
    let (project, secret) = (team.bed.project(), team.bed.project().with_file_name("secret.md"));
    fs::write(&secret, "the key\n").unwrap();
    fs::write(project.join("mine.md"), "42 lines\n").unwrap();
    std::os::unix::fs::symlink("../secret.md", project.join("link.md")).unwrap();
    let before = fs::read_dir(team.bed.mailbox("conductor/new")).unwrap().count();
    for line in WITH_A_FILE {
        for file in [secret.to_str().unwrap(), "../secret.md", "link.md", "/dev/zero"] {
            let line = line.replace("FILE", file);
            let ran = team.order("worker-1", &format!("$E {line}"));
            assert!(ran.code == 1 && ran.stdout.is_empty(), "{line}: {ran:?}");
            assert!(ran.stderr.contains("outside of the project"), "{line}: {ran:?}");
        }
    }
    team.order("worker-1", "$E admin lint --root .. mine.md").says(["outside of the project"]);
    let call = r#"{"id":1,"method":"send","params":{"to":["conductor"],"file":"../secret.md"}}"#;
    let called = team.order("worker-1", &format!("echo '{call}' | $E admin api"));
    called.shows(["outside of the project"]);
    let after = fs::read_dir(team.bed.mailbox("conductor/new")).unwrap().count();
    assert_eq!(after, before, "nothing was sent");
    for line in ["send --to conductor -f mine.md", "send --to conductor -f ./mine.md"] {
        assert_eq!(team.order("worker-1", &format!("$E {line}")).code, 0, "{line}");
    }
    team.order("worker-1", "echo the key | $E send --to conductor -f -").ends(0);
    team.bed.ok("send --to conductor -f ../secret.md");
    let other = team.bed.project().with_file_name("other");
    fs::create_dir(&other).unwrap();
    assert_eq!(team.shell(&format!("cd {} && $E init", other.display())).code, 0);
    let queue = other.join("queue");
    let queue = queue.display();
    for line in [format!("send --queue {queue} --to dispatch x"), format!("status --queue={queue}")]
    {
        // By its pass, and by its pane alone.
        for bare in ["", "env -u ENSEMBLE_AGENT_PASS -u ENSEMBLE_AGENT_ID -u LIZA_AGENT_ID "] {
            let ran = team.order("worker-1", &format!("{bare}$E {line}"));
            assert!(ran.code == 1 && ran.stderr.contains("another project"), "{line}: {ran:?}");
        }
    }
    assert_eq!(fs::read_dir(other.join("queue/mailbox/dispatch/new")).unwrap().count(), 0);
    assert_eq!(team.order("worker-1", "$E send --queue queue --to conductor x").code, 0);
    team.bed.ok(&format!("send --queue {queue} --to dispatch x"));
    for line in ["mailbox remove worker-2 --force", "mailbox unbind worker-2"] {
        team.order("worker-1", &format!("$E {line}")).ends(1).says(["mailbox of another agent"]);
    }
    // A person sees that an agent reads it.
    team.bed.fails(1, "mailbox remove worker-2").has(["worker-2 is up"]);
    team.bed.ok("send --to worker-2 still-there");
}
