//! Completion in a real bash, and the manual.

use std::process::Command;

use crate::bed::{Bed, SaidText as _, program, ran};
#[cfg(feature = "nats")]
use crate::tmux_support::eventually;

fn completed(bed: &Bed, line: &str) -> Vec<String> {
    let script = format!(
        r#"source <(ensemble admin completions bash)
        COMP_WORDS=({line}) ; [[ "{line}" == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )) ; COMP_TYPE=9
        $(complete -p ensemble | sed 's/.*-F \([^ ]*\) .*/\1/') ensemble "${{COMP_WORDS[COMP_CWORD]}}"
        printf '%s\n' "${{COMPREPLY[@]}}""#
    );
    let directory = program().parent().unwrap().to_str().unwrap();
    let run = Command::new("bash")
        .args(["--norc", "-c", &script])
        .env_clear()
        .env("PATH", format!("{directory}:/usr/bin:/bin"))
        .current_dir(bed.project())
        .output()
        .unwrap();
    let ran = ran(run);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}");
    ran.stdout.lines().map(|word| word.trim_end().to_owned()).collect()
}

#[test]
fn bash_completes_verbs_flags_mailboxes_and_the_beginning_of_an_id() {
    let bed = Bed::new();
    assert_eq!(completed(&bed, "ensemble se"), ["send", "settle"]);
    assert!(completed(&bed, "ensemble send --pri").contains(&"--priority".to_owned()));
    assert_eq!(completed(&bed, "ensemble send --to "), ["conductor", "dispatch", "operator", "w1"]);
    assert_eq!(completed(&bed, "ensemble send --to di"), ["dispatch"]);
    assert_eq!(completed(&bed, "ensemble inbox w"), ["w1"]);
    assert_eq!(completed(&bed, "ensemble send --until se"), ["settled"]);
    bed.ok("init elsewhere");
    bed.ok("mailbox add far --queue elsewhere/queue");
    assert_eq!(completed(&bed, "ensemble --queue elsewhere/queue send --to f"), ["far"]);
    assert_eq!(completed(&bed, "ensemble --queue nowhere send --to f"), [""]);
    for id in ["task-one", "other", "buried"] {
        bed.ok(&format!("send --to w1 --id {id} x"));
    }
    bed.ok("recv --as w1 --json");
    for line in ["ensemble settle ta", "ensemble mailbox release ta", "ensemble mailbox extend ta"]
    {
        assert_eq!(completed(&bed, line), ["task-one"], "{line}");
    }
    assert_eq!(completed(&bed, "ensemble why ot"), ["other"]);
    bed.write_file("plan.md", "move it\n");
    bed.ok("request plan plan.md --task t1 --to w1 --id plan-7 --as conductor");
    assert_eq!(completed(&bed, "ensemble request answer pl"), ["plan-7"]);
    assert_eq!(completed(&bed, "ensemble request list pl"), ["plan-7"]);
    bed.ok("mailbox add w2");
    bed.ok("send --to w2 --id late --expires 1ms x");
    bed.fails(3, "recv --as w2");
    assert_eq!(completed(&bed, "ensemble dead retry la"), ["late"]);
}

/// Words from servers have two seconds; a machine under load may need another try.
#[cfg(feature = "nats")]
#[test]
fn bash_completes_what_is_on_servers() {
    use crate::nats_server::{Server, fresh_team};

    let server = Server::start();
    let bed = crate::servers::bed_on(&server, &fresh_team());
    bed.add_mailboxes(&["w1", "w2"]);
    bed.ok("send --to w2 --id task-one x");
    bed.ok("send --to w2 --id late --expires 1ms x");
    bed.ok("recv --as w2");
    bed.fails(3, "recv --as w2");
    bed.ok("request shutdown w1 --id leave-7 --as conductor");
    for (line, word) in [
        ("ensemble inbox w", "w1 w2"),
        ("ensemble settle ta", "task-one"),
        ("ensemble dead retry la", "late"),
        ("ensemble request list le", "leave-7"),
    ] {
        eventually(line, || completed(&bed, line).join(" ") == word);
    }
    server.kill();
    assert_eq!(completed(&bed, "ensemble settle ta"), [""], "a shell is not kept waiting");
}

#[test]
fn there_are_scripts_for_all_shells_and_a_page_of_the_manual_for_each_verb() {
    let bed = Bed::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        bed.ok(&format!("admin completions {shell}")).has(["ENSEMBLE_COMPLETE"]).lacks(["/target"]);
    }
    let file = bed.project().join("script.bash");
    std::fs::write(&file, bed.ok("admin completions bash")).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
    bed.ok("admin man").has([".TH ensemble 1", "Exit codes"]);
    let wrote = bed.ok("admin man --dir man1");
    let pages: Vec<String> = std::fs::read_dir(bed.project().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["ensemble.1", "ensemble-send.1", "ensemble-dead-list.1"] {
        assert!(pages.contains(&name.to_owned()), "{pages:?}");
    }
    wrote.has([&format!("wrote {} pages", pages.len())]);
    bed.read_file("man1/ensemble-send.1").has([".TH ensemble-send 1", "ensemble send"]);
}
