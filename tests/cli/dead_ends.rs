//! No answer of the command is a dead end: codes are those of the table, printed ids are accepted, nothing empty is sent.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::bed::{Bed, SaidText as _, objects, ran, words};

/// For each command that takes the name of an agent or a mailbox, or the id of a message, a request, a task or a step:
/// a line with one that does not exist.
const UNKNOWN: &str = "\
    up absent; team absent; agent restart absent; agent unregister absent; \
    reply gone x --as w1; agent attach absent; agent inspect absent; agent nudge absent; \
    agent ping absent; agent pong absent 1; agent usage absent; why absent; send --to absent x; \
    recv --as absent; recv --as w1 --mailbox absent; settle absent --as w1; \
    settle absent --as w1 --mailbox absent; mailbox release absent --as w1; \
    mailbox recall absent --as w1; inbox absent; dead list absent; dead show absent; \
    dead retry absent; dead retry --all --mailbox absent; dead drop absent; \
    mailbox remove absent; mailbox bind absent --pane %1 --tmux-socket /nowhere; \
    mailbox unbind absent; mailbox extend absent 1m --as w1; assign absent x; \
    task new x --to absent y; task show absent; task finalize absent; task unblock absent; \
    task abandon absent --reason x; task block absent --reason x --question x --as w1; \
    task supersede absent --by absent --reason x; request shutdown absent; \
    request ask plan_approval absent x; request plan -f plan.md --to absent; \
    request cancel absent; request answer absent --approve --as w1; request list absent; \
    board discover defer absent; step list absent; step show absent 1; step retry absent 1; \
    step skip absent 1";

/// Commands with such an argument that make what they name, that run without it, or that are walked with a repository.
const OTHERS: &str = "\
    agent start; agent join; agent adopt; agent usage allow; mailbox add; report; task add; \
    task claim; task submit; task verdict; task merge; task review; board goal set; \
    board sprint start; board discover add; board discover convert; step heartbeat; step split; \
    step unblock; step run; help; admin man";

#[test]
fn an_unknown_name_or_id_is_3_at_every_verb() {
    let bed = Bed::new();
    bed.ok("board init");
    bed.write_file("plan.md", "think\n");
    for line in UNKNOWN.split("; ") {
        let ran = bed.run(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{line}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{line}");
    }
    // Each command that takes such a thing is among them.
    let walked: BTreeSet<Vec<&str>> = UNKNOWN.split("; ").map(words).collect();
    let takes_one = |argument: &Value| {
        let argument = argument.as_str().unwrap();
        ["NAME", "AGENT", "WORKER", "MAILBOX", "ID", "TASK"].iter().any(|kind| {
            argument.trim_matches(['<', '>', '[', ']', '.']).split('|').any(|name| name == *kind)
        })
    };
    for row in objects(&bed.ok("admin schema commands")) {
        let place = row["place"].as_str().unwrap();
        let is_named = row["arguments"].as_array().unwrap().iter().any(takes_one);
        let is_walked = walked.iter().any(|line| line.starts_with(&words(place)));
        assert!(
            !is_named || is_walked || OTHERS.split("; ").any(|it| it == place),
            "{place} is not walked"
        );
    }
}

/// Commands that take any word: an agent's own options, a text, or what an agent's program adds.
const TAKE_ANY: [&str; 6] = ["claude", "codex", "opencode", "gemini", "send", "admin hook"];

#[test]
fn a_misspelt_word_and_a_misspelt_option_are_corrected_at_every_verb() {
    let bed = Bed::new();
    let rows = objects(&bed.ok("admin schema commands"));
    let places: Vec<&str> = rows.iter().map(|row| row["place"].as_str().unwrap()).collect();
    for place in &places {
        let mut words = words(place);
        let last = words.pop().unwrap();
        // Two letters in the wrong order; of a shorter word little would be left.
        let (start, end) = last.split_at(last.len() - 2);
        let wrong = format!("{start}{}", end.chars().rev().collect::<String>());
        let line = [&words[..], &[&wrong]].concat().join(" ");
        // Behind another command it may be a name.
        let is_argument = places.contains(&&*words.join(" "));
        if last.len() > 3 && wrong != last && !is_argument {
            let said = bed.fails(2, &line);
            assert!(said.contains(&format!("hint: did you mean `{last}`?")), "{line}: {said}");
            let said = bed.fails(2, &format!("help {line}"));
            assert!(said.contains(&format!("did you mean `{last}`?")), "help {line}: {said}");
        }
        if !TAKE_ANY.contains(place) {
            let said = bed.fails(2, &format!("{place} --jsno"));
            assert!(said.contains("hint: did you mean `--json`?"), "{place}: {said}");
        }
    }
}

/// Lines that people type for what another line does, each with a part of the hint.
const WRONG_LINES: &str = "\
    send --to w1 two words => put the text in quotes; send two short words => put the text in quotes; \
    send w1 hello => `ensemble send --to w1 TEXT` sends to w1; \
    send --to w1 --nonsense => write `-- --nonsense`; \
    send --to w1 --expire 5m hi => `--expires`; send --to w1 --prio=5 hi => `--priority`; \
    send --to w1 -f a.txt --urgent => lists its options; \
    status --queue . => is the queue of that project; \
    assign w1 two words => put the text in quotes; \
    inbox --all => `ensemble inbox -h`; down w1 => `ensemble request shutdown NAME` stops one agent; \
    status w1 => `ensemble why NAME`; stop w1 => `ensemble request shutdown NAME` stops one agent; \
    kill w1 => `ensemble request shutdown` does that; mail => `ensemble inbox` does that; \
    read => `ensemble recv` does that; \
    agent join w1 --pane %3 => `tmux display-message -p '#{socket_path}'` prints it; \
    mailbox delete w1 => `ensemble mailbox remove` does that; \
    dead rm x => `ensemble dead drop` does that; request show x => `ensemble request list` does that; \
    step nonsense => `ensemble step -h` lists its commands; \
    request plan => name a file with `-f FILE`; step submit => name a file with `-f FILE`; \
    request answer nope --approve => `ensemble request list` shows; \
    recv --as absent => `ensemble mailbox list` lists the mailboxes";

#[test]
fn in_the_wrong_directory_nothing_is_stopped_continued_or_made() {
    for line in [
        "pause",
        "resume",
        "board checkpoint",
        "board abort",
        "step list",
        "agent usage",
        "agent usage allow team --usd 1",
        "log record deploy.done --as w1",
        "admin hooks install --provider claude",
        "admin hooks install --provider claude --user",
        "admin mcp install --provider claude",
    ] {
        assert!(Bed::empty().fails(1, line).contains("`ensemble init` creates one"), "{line}");
    }
}

#[test]
fn what_people_type_by_mistake_gets_a_hint_that_helps() {
    let bed = Bed::new();
    for line in WRONG_LINES.split("; ") {
        let (line, hint) = line.split_once(" => ").unwrap();
        let ran = bed.run(line);
        assert_ne!(ran.code, 0, "{line}: {ran:?}");
        let (said, hinted) = ran.stderr.split_once("hint: ").unwrap_or_default();
        assert!(hinted.contains(hint) && !said.contains("tip: to pass"), "{line}: {ran:?}");
    }
    assert_eq!(bed.ok("dead retry --all"), "no dead letters\n");
    bed.ok("send --to w1 -- --nonsense");
    let words = ["send", "--to", "absent"].map(OsStr::new);
    let odd =
        ran(bed.command(&[&words[..], &[OsStr::from_bytes(b"\xff")]].concat()).output().unwrap());
    odd.ends(2);
    odd.stderr.lacks(["a bug"]);
    bed.ok("send --to w1 -5");
    // A list is a text.
    let reason = ["pause", "--reason", "- lunch\n- a nap"].map(OsStr::new);
    let listed = ran(bed.command(&reason).output().unwrap());
    assert!(listed.code == 0 && bed.ok("status").contains("- lunch"), "{listed:?}");
}

#[test]
fn agents_whose_files_cannot_be_read_are_not_said_to_be_missing_from_the_configuration() {
    let bed = Bed::new();
    bed.write_file("ensemble.yaml", "agents: {w: {command: cat}}\n");
    std::fs::create_dir_all(bed.project().join(".ensemble/roster")).unwrap();
    bed.write_file(".ensemble/roster/w.yaml", "");
    let ran = bed.run("up");
    ran.ends(1).says(["roster/w.yaml: file: is empty"]);
    ran.says(["no agent was started\nhint: correct or remove"]);
}

/// Ids that begin alike for longer than any number of characters that one would choose.
const TWINS: [&str; 3] = [
    "01a22131-1111-7000-8000-00000000000a",
    "01a22131-1111-7000-8000-00000000000b",
    "01a22131-1111-7000-8000-00000000000c",
];

#[test]
fn every_list_prints_ids_that_the_next_verb_accepts() {
    let bed = Bed::new();
    bed.ok("mailbox add once --attempts-max 1");
    for (id, to) in [(TWINS[0], "once"), (TWINS[1], "w1"), (TWINS[2], "dispatch")] {
        bed.ok(&format!("send --to {to} --id {id} --type task --task t-{to} work"));
    }
    bed.ok("recv --as once");
    bed.ok(&format!("mailbox release {} --as once", TWINS[0]));
    let first_cell = |table: &str| -> String {
        let row = table.lines().nth(1).unwrap();
        row.split_whitespace().next().unwrap().to_owned()
    };
    let dead = first_cell(&bed.ok("dead list"));
    assert!(bed.ok(&format!("dead show {dead}")).contains(TWINS[0]));
    let status = bed.ok("status");
    let help = status.lines().find(|line| line.contains("ensemble dead")).unwrap();
    let line = help.split('`').nth(1).unwrap().trim_start_matches("ensemble ");
    bed.ok("recv --as w1");
    let held = first_cell(&bed.ok("inbox w1"));
    bed.ok(&format!("mailbox extend {held} 1m --as w1"));
    bed.ok(&format!("settle {held} --as w1"));
    bed.ok(line);
    assert!(bed.ok("inbox once").contains("waits"));
}

#[test]
fn what_cannot_be_read_is_not_offered_another_try_and_a_return_is_said_in_words() {
    let bed = Bed::new();
    std::fs::write(bed.mailbox("w1/new/broken.yaml"), "no: [\n").unwrap();
    bed.fails(3, "recv --as w1");
    let status = bed.ok("status");
    status.has(["`ensemble dead show broken`, then `dead drop`"]);
    let reason = status.lines().find(|line| line.contains("broken")).unwrap();
    assert_eq!(reason.matches("line 1").count() + reason.matches("line 2").count(), 1, "{reason}");
    let notice = "message_id: m1\ntype: task\nto: w1\nreason: no attempt is left\n";
    let line = "send --to operator --as w1 --type mail.returned --task t-1 -f -";
    assert_eq!(bed.run_with(line, notice.as_bytes()).code, 0);
    bed.ok("status").has(["w1 returned your message: \"t-1: no attempt is left\""]);
}

#[test]
fn an_empty_text_is_no_message_at_any_door() {
    let bed = Bed::new();
    bed.write_file("empty.md", "\n");
    for line in ["send --to w1", "send --to w1 -f -", "send --to w1 -f empty.md", "assign w1"] {
        let ran = bed.run_with(line, b"");
        assert!(ran.code == 2 && ran.stderr.contains("is empty"), "{line}: {ran:?}");
        assert_eq!(ran.stdout, "", "{line}");
    }
    for line in ["agent instruct", "step add -f -", "report t1 --status success --summary -"] {
        let ran = bed.run_with(line, b"");
        assert!(ran.code == 2 && ran.stdout.is_empty(), "{line}: {ran:?}");
    }
    let mut empty = bed.command(&["send", "--to", "w1", ""]);
    assert_eq!(empty.stdin(Stdio::null()).output().unwrap().status.code(), Some(2));
    let call = r#"{"id":1,"method":"send","params":{"to":["w1"],"text":""}}"#;
    bed.run_with("admin api", format!("{call}\n").as_bytes()).shows(["is empty"]);
    assert_eq!(bed.ok("inbox w1"), "mailbox w1 is empty\n");
}

#[test]
fn a_decision_that_is_missing_is_named_with_all_its_sides() {
    let bed = Bed::new();
    for (line, sides) in [
        ("agent usage allow team", ["--usd", "--tokens"].as_slice()),
        ("task review t", &["--status", "--start", "--lift"]),
        ("task verdict t", &["--approve", "--reject"]),
        ("request answer r", &["--approve", "--reject"]),
        ("request shutdown", &["NAME", "--all"]),
        ("send hello", &["--to", "--all"]),
        ("dead retry", &["ID", "--all"]),
        ("dead drop", &["ID", "--all"]),
        ("task summary", &["--task", "--instruction"]),
        ("board prompt", &["--role", "--task"]),
    ] {
        let said = bed.fails(2, line);
        assert!(sides.iter().all(|side| said.contains(side)), "{line}: {said}");
    }
}
