//! Under which name a command acts, and how mistakes in files of people end.

use std::fs;

use crate::bed::{Bed, SaidText as _, git};

#[test]
fn a_person_without_a_name_is_the_operator_in_every_verb() {
    let bed = Bed::new();
    bed.ok("send --to w1 -m hello");
    bed.ok("send --all hello");
    bed.ok("request shutdown w1");
    let instruction = "type: start_workers\ncreated_at: '2026-01-15T09:30:00Z'\ntasks:\n  - id: t\n    instruction: go\n";
    bed.write_file("batch.yaml", instruction);
    bed.ok("agent instruct batch.yaml");
    let senders = |mailbox: &str| -> Vec<String> {
        let mut all = Vec::new();
        while let Some(row) = {
            let ran = bed.run(&format!("recv --as {mailbox} --json"));
            crate::bed::objects(&ran.stdout).pop()
        } {
            all.push(row["from"].as_str().unwrap().to_owned());
        }
        all
    };
    for (mailbox, count) in [("w1", 3), ("dispatch", 2)] {
        assert_eq!(senders(mailbox), vec!["operator"; count], "{mailbox}");
    }
    let stored = bed.json("log --type message.stored");
    assert!(stored.iter().all(|record| record["actor"] != "unknown"), "{stored:?}");
    // What an agent holds has no default name.
    for line in ["recv --mailbox w1", "agent register --role coder"] {
        let said = bed.fails(2, line);
        assert!(said.contains("pass --as NAME or set ENSEMBLE_AGENT_ID"), "{line}: {said}");
    }
}

#[test]
fn a_request_is_not_decided_by_leaving_the_agents_name_out() {
    let bed = Bed::new();
    let asked = bed.object("request shutdown w1");
    let id = asked["request_id"].as_str().or_else(|| asked["id"].as_str()).unwrap().to_owned();
    bed.fails(1, &format!("request answer {id} --approve")).has(["operator"]);
}

#[test]
fn mistakes_in_files_of_people_are_usage_and_name_the_place() {
    let bed = Bed::new();
    for text in ["tasks:\n  - id: t\n    instruction: go\n", "type: start_workers\n", "tasks: [\n"]
    {
        bed.write_file("batch.yaml", text);
        let said = bed.fails(2, "agent instruct batch.yaml");
        said.has(["batch.yaml", "hint: write `type: start_workers`"]);
    }
    bed.write_file("batch.yaml", b"\xff");
    for line in ["step add -f batch.yaml", "step split t 1 -f batch.yaml"] {
        assert!(bed.fails(2, line).contains("batch.yaml: file: is not UTF-8"), "{line}");
    }
    bed.write_file("ensemble.yaml", "durabilty: process\n");
    bed.fails(2, "status").has(["ensemble.yaml", "durabilty"]);
}

#[test]
fn mail_and_state_stay_out_of_git() {
    let bed = Bed::empty();
    git(&bed.project(), "init -q");
    bed.ok("init");
    bed.ok("send --to conductor -m secret");
    git(&bed.project(), "add -A");
    assert_eq!(git(&bed.project(), "diff --cached --name-only"), "ensemble.yaml");
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    // An older project gets it from the next `init`, but a file that the user wrote stays.
    let (queue, state) =
        (bed.project().join("queue/.gitignore"), bed.project().join(".ensemble/.gitignore"));
    fs::remove_file(&queue).unwrap();
    fs::write(&state, "logs\n").unwrap();
    bed.ok("init");
    assert!(fs::read_to_string(&queue).unwrap().ends_with("\n*\n"));
    assert_eq!(fs::read_to_string(&state).unwrap(), "logs\n");
    // A queue that is the top of a repository would hide all of it.
    let top = bed.project().join("top");
    fs::create_dir_all(top.join(".git")).unwrap();
    bed.ok("--queue top init");
    assert!(!top.join(".gitignore").exists());
}

#[test]
fn up_names_the_worktree_that_is_missing_and_starts_nothing() {
    let bed = Bed::new();
    git(&bed.project(), "init -q");
    bed.write_file("ensemble.yaml", "agents:\n  w1: {command: cat, directory: ../worktrees/w1}\n");
    let said = bed.fails(2, "up");
    said.has(["agents.w1.directory"]);
    assert!(
        said.contains("`git worktree add '../worktrees/w1'`")
            || said.contains("`git worktree add ../worktrees/w1`"),
        "{said}"
    );
    assert!(!bed.project().join(".ensemble/tmux.sock").exists());
    assert!(bed.fails(3, "team").contains("the team has no agents"));
}
