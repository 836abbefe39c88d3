//! Every exit code and its text on stderr, under which name a command acts, and mistakes in files of people.

use std::fs;

use crate::bed::{Bed, SaidText as _, git, ran, words};

fn closed_pipe() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

#[test]
fn without_a_queue_the_way_to_one_is_shown() {
    Bed::empty().fails(1, "status").begins("ensemble: ").has(["`ensemble init`", "`--queue DIR`"]);
}

#[test]
fn a_usage_error_exits_with_2_and_names_the_error() {
    let bed = Bed::new();
    for line in [
        "",
        "nosuch",
        "send",
        "send --to ../etc -m x",
        "send --to w1 --priority 10 -m x",
        "send --to w1 --wait done -m x",
        "send --to w1 --wait 5 --until soon -m x",
        "recv --as w1 --wait soon",
        "recv --as w1 --body --json",
        "mailbox extend x 2days",
        "mailbox add x --capacity 0",
        "init there --queue here",
        "admin completions tcsh",
    ] {
        let said = bed.fails(2, line);
        assert!(!said.is_empty(), "{line}");
        let begin = if line.ends_with("--json") { "{\"error\":" } else { "ensemble: " };
        assert!(line.is_empty() || said.starts_with(begin), "{line}: {said}");
    }
}

#[test]
fn busy_is_75() {
    let bed = Bed::new();
    bed.ok("mailbox add small --capacity 1");
    bed.ok("send --to small -m 1");
    bed.fails(75, "send --to small -m 2").has(["is full (it holds 1)"]);
    // The others get theirs nevertheless.
    bed.run("send --to small --to w1 -m 3 --json").ends(75).shows(["\"mailbox\":\"w1\""]);
}

#[test]
fn fsck_is_0_when_clean_4_when_not_0_when_repaired_and_notes_what_harms_nothing() {
    let bed = Bed::new();
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    std::fs::write(bed.mailbox("w1/new/stray.txt"), "x").unwrap();
    let ran = bed.run("admin fsck");
    ran.ends(4)
        .shows(["can be repaired  mailbox/w1/new/stray.txt"])
        .says(["1 problem left", "--repair"]);
    let findings = crate::bed::objects(&bed.run("admin fsck --json").stdout);
    assert_eq!(crate::bed::keys(&findings[0]), ["path", "problem", "repair", "repaired"]);
    assert!(bed.ok("admin fsck --repair").contains("repaired"));
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    // What was moved keeps its name, and the reason beside it has its place.
    let aside: Vec<_> = std::fs::read_dir(bed.project().join("queue/rejected")).unwrap().collect();
    let named = |end: &str| {
        let mut paths = aside.iter().map(|entry| entry.as_ref().unwrap().path());
        paths.find(|path| path.to_str().unwrap().ends_with(end)).unwrap()
    };
    let note = std::fs::read_to_string(named("@reason.yaml")).unwrap();
    note.has(["mailbox/w1/new/stray.txt", "its name"]);
    assert!(named("").to_str().unwrap().contains("mailbox.w1.new.stray.txt"));
    bed.write_file("queue/reports/notes.txt", "x");
    bed.write_file("queue/reports/t1-completed.yaml", "x");
    bed.write_file("queue/ack/t1.ack", "x");
    bed.write_file("queue/ack/T22.ACK", "x");
    bed.write_file("queue/tasks/w1-task.yml", "x");
    assert_eq!(
        bed.ok("admin fsck"),
        "note  reports/notes.txt: no route matches its name; name it as docs/protocol/contracts.md says, or add a route to ensemble.yaml\n\
         note  tasks/w1-task.yml: no route matches its name; rename it to tasks/w1-task.yaml\n\
         note  ack/T22.ACK: no route matches its name; rename it to ack/T22.ack\nclean\n"
    );
}

#[test]
fn fsck_names_a_request_that_cannot_be_read() {
    let bed = Bed::new();
    bed.ok("request shutdown w1 --id 11111111");
    bed.write_file("queue/requests/11111111/request.yaml", "version: [");
    let ran = bed.run("admin fsck");
    ran.ends(4).shows(["broken", "11111111"]);
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let bed = Bed::new();
    std::fs::remove_dir_all(bed.project().join(".ensemble")).unwrap();
    bed.write_file(".ensemble", "in the way");
    let ran = bed.run("send --to w1 -m x");
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 1));
    ran.says(["warning: 1 record missing in the event log"]);
    assert_eq!(bed.run("recv --as w1").code, 0);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let bed = Bed::new();
    for line in [
        "status",
        "mailbox list",
        "log",
        "admin completions bash",
        "admin man",
        "--help",
        "admin fsck",
    ] {
        let ran = ran(bed.command(&words(line)).stdout(closed_pipe()).output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn a_message_that_could_not_be_printed_is_given_back() {
    let bed = Bed::new();
    let id = bed.send("x");
    let mut command = bed.command(&words("recv --as w1"));
    assert!(command.stdout(closed_pipe()).status().unwrap().success());
    let waits = bed.object("inbox w1");
    assert_eq!((waits["id"].as_str(), waits["state"].as_str()), (Some(&*id), Some("queued")));
}

#[test]
fn colours_are_only_where_they_are_wanted_and_backtraces_change_nothing() {
    let bed = Bed::new();
    let plain = bed.run("recv --as no-such-box");
    let traced = bed.run_in(&[("RUST_BACKTRACE", "full")], "recv --as no-such-box");
    assert_eq!((plain.code, &plain.stderr), (3, &traced.stderr));
    bed.ok("send --to operator hello");
    let mut command = bed.command(&["status"]);
    assert!(!ran(command.output().unwrap()).stdout.contains('\x1b'), "not into a pipe");
    let forced = ran(command.env("CLICOLOR_FORCE", "1").output().unwrap()).stdout;
    assert!(forced.contains('\x1b'), "{forced}");
    let none = ran(command.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "").output().unwrap());
    assert!(!none.stdout.contains('\x1b'), "{none:?}");
}

#[test]
fn the_agents_name_comes_from_the_environment_too() {
    let bed = Bed::new();
    bed.send("1");
    bed.send("2");
    let received = |variables: &[(&str, &str)]| bed.run_in(variables, "recv --json");
    assert_eq!(received(&[("LIZA_AGENT_ID", "w1")]).code, 0);
    assert_eq!(received(&[("ENSEMBLE_AGENT_ID", "w1"), ("LIZA_AGENT_ID", "x")]).code, 0);
    assert_eq!(received(&[("ENSEMBLE_AGENT_ID", "")]).code, 3, "the person's mailbox is empty");
    received(&[("ENSEMBLE_AGENT_ID", "a/b")]).ends(2).says(["ENSEMBLE_AGENT_ID"]);
}

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
