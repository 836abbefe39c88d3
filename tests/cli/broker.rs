//! The verbs that move messages.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, keys, objects, ran, words};

#[test]
fn init_makes_a_private_project_and_leaves_it_alone_afterwards() {
    let bed = Bed::empty();
    std::fs::remove_file(bed.project().join("ensemble.yaml")).unwrap();
    bed.ok("init").has(["created the queue", "Next:"]);
    let mode = |path: &str| bed.project().join(path).metadata().unwrap().permissions().mode();
    assert_eq!(mode("queue") & 0o777, 0o700);
    assert_eq!(mode(".ensemble") & 0o777, 0o700);
    assert!(bed.mailbox("conductor/new").is_dir() && bed.mailbox("dispatch/new").is_dir());
    bed.ok("mailbox remove dispatch");
    // Six lines, and the comments in it are valid configuration once they are taken away.
    let config = bed.read_file("ensemble.yaml");
    let keys = config.lines().filter(|line| line.contains(": ") || line.ends_with(':'));
    let uncommented: String =
        keys.filter_map(|line| line.strip_prefix("# ")).fold(String::new(), |all, line| {
            // Sentences, and a word to editors.
            let is_prose = line.starts_with(char::is_uppercase) || line.starts_with("yaml-");
            if is_prose { all } else { all + line + "\n" }
        });
    bed.write_file("ensemble.yaml", &uncommented);
    assert!(bed.ok("init").contains("already exists"));
    let kept = bed.read_file("ensemble.yaml");
    assert_eq!(kept, uncommented);
    assert_eq!((config.lines().count(), kept.lines().count()), (6, 4), "{config}");
}

#[test]
fn a_recipient_whose_mailbox_cannot_be_read_is_refused_alone() {
    let bed = Bed::new();
    bed.write_file("queue/mailbox/w1/mailbox.yaml", "[");
    let sent = bed.run("send --to dispatch,w1,conductor --as operator -m x --json");
    let states: Vec<_> = objects(&sent.stdout)
        .iter()
        .map(|row| format!("{} {}", row["mailbox"].as_str().unwrap(), row["state"]))
        .collect();
    let expected = ["w1 \"refused\"", "dispatch \"stored\"", "conductor \"stored\""];
    assert_eq!((sent.code, &states[..]), (4, &expected.map(str::to_owned)[..]), "{sent:?}");
}

#[test]
fn no_project_is_made_in_a_queue_in_the_state_of_a_project_or_in_git() {
    let bed = Bed::new();
    bed.begin_repository();
    for (place, what) in [
        ("queue", "a queue"),
        ("queue/reports", "a queue"),
        ("queue/mailbox/w1/new", "a queue"),
        (".ensemble", "the state directory of a project"),
        (".ensemble/logs", "the state directory of a project"),
        (".git", "git's own directory"),
        (".git/hooks", "git's own directory"),
    ] {
        let at = bed.project().join(place);
        std::fs::create_dir_all(&at).unwrap();
        let before = std::fs::read_dir(&at).unwrap().count();
        for line in ["init", "init inner", "--queue inner init"] {
            let refused = ran(bed.command(&words(line)).current_dir(&at).output().unwrap());
            assert_eq!(refused.code, 1, "{line} in {place}: {refused:?}");
            assert!(refused.stderr.contains("no project can be made in "), "{line}: {refused:?}");
            assert!(refused.stderr.contains(what), "{line} in {place}: {refused:?}");
            let hint = format!("`cd {}`, and run it there", bed.project().display());
            assert!(refused.stderr.contains(&hint), "{line} in {place}: {refused:?}");
        }
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), before, "{place}");
    }
    // Directories of a program that handles mail are not a queue.
    for own in ["mailbox", "tmp", "sub"] {
        std::fs::create_dir(bed.project().join(own)).unwrap();
    }
    let made = bed.command(&["init"]).current_dir(bed.project().join("sub")).output().unwrap();
    assert_eq!(ran(made).code, 0);
}

#[test]
fn init_somewhere_else() {
    let bed = Bed::empty();
    let made = bed.object("init there/too");
    assert_eq!(made["mailboxes"], json!(["conductor", "dispatch", "operator"]));
    assert!(bed.project().join("there/too/queue/mailbox/dispatch").is_dir());
    assert!(bed.project().join("there/too/.ensemble/logs").is_dir());
    bed.ok("send --queue there/too/queue --to dispatch -m x");
    assert!(!bed.project().join("queue").exists());
    // A package of that name is left alone.
    std::fs::create_dir(bed.project().join("queue")).unwrap();
    bed.write_file("queue/queue.go", "package queue\n");
    bed.fails(1, "init").has(["which has other files: queue.go", "hint: `export ENSEMBLE_QUEUE=/"]);
    assert_eq!(std::fs::read_dir(bed.project().join("queue")).unwrap().count(), 1);
    let made = bed.ok("init --queue mail");
    assert!(bed.project().join("mail/mailbox/dispatch").is_dir());
    // What is proposed works where that queue is not the nearest one.
    let mail = bed.project().join("mail").display().to_string();
    made.has([&format!("  export ENSEMBLE_QUEUE={mail}\n")]);
    bed.fails(3, "inbox w9 --queue mail").has([&format!("`ensemble --queue {mail} mailbox list`")]);
    bed.ok("send --queue mail --as dispatch --to operator hello");
    bed.ok("status --queue mail").has([&format!("-> `ensemble --queue {mail} recv`")]);
    bed.ok("recv --queue mail").has([&format!(" \"TEXT\" --queue {mail}\n")]);
}

#[test]
fn a_message_is_sent_received_extended_and_settled_with_its_headers_and_stored_once() {
    let bed = Bed::new();
    let id = bed.send("hello\n");
    let got = bed.object("recv --as w1");
    let fields = "id mailbox state holder epoch type from proof to created_at priority bytes body \
        body_text lease_seconds held waiting head commands";
    assert_eq!(keys(&got), fields.split(" ").collect::<Vec<_>>());
    got.fits(json!({
        "id": id, "epoch": 1, "holder": "w1", "lease_seconds": 300, "body": "hello\n",
    }));
    let extended = bed.object(&format!("mailbox extend {id} 10m --as w1"));
    let expected = json!({ "id": id, "mailbox": "w1", "state": "acked", "lease_seconds": 600 });
    assert_eq!(extended, expected);
    let settled = bed.object(&format!("settle {id} --as w1"));
    assert_eq!(settled, json!({ "id": id, "mailbox": "w1", "state": "settled", "waiting": 0 }));
    assert!(bed.mailbox(&format!("w1/done/{id}.yaml")).exists());
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    let sent = bed.object(
        "send --to w1 --as boss --type task --id t-1 --task T7 --attempt 2 --correlation r9 -m do",
    );
    let stored =
        json!({ "id": "t-1", "mailbox": "w1", "state": "stored", "already_stored": false });
    assert_eq!(sent, stored);
    let text = bed.ok("recv --as w1 --lease 90s");
    let expected = "Task T7 (attempt 2) from boss (unverified sender: it gives you no permissions):\n\
        ```\ndo\n```\n\
        Done: ensemble report T7 --status success --summary TEXT --as w1\n\
        Ask: ensemble reply t-1 \"TEXT\" --as w1\n";
    assert_eq!(text, expected);
    bed.ok("send --to w1 --id once -m x");
    assert_eq!(bed.object("send --to w1 --id once -m x")["already_stored"], true);
    bed.fails(1, "send --to w1 --id once -m y").has(["different content"]);
    bed.ok("recv --as w1 --body");
    bed.fails(3, "recv --as w1");
}

#[test]
fn content_comes_from_a_file_or_stdin_and_large_or_binary_content_is_attached() {
    let bed = Bed::new();
    bed.write_file("task.md", "from a file\n");
    bed.ok("send --to w1 -f task.md");
    assert_eq!(bed.ok("recv --as w1 --body"), "from a file\n");
    assert_eq!(bed.run_with("send --to w1 -", "über stdin".as_bytes()).code, 0);
    assert_eq!(bed.ok("recv --as w1 --body"), "über stdin");
    assert_eq!(bed.run_with("send --to w1", b"without a dash").code, 0);
    assert_eq!(bed.ok("recv --as w1 --body"), "without a dash");
    let many_lines = "a\n".repeat(30_000);
    for content in [vec![b'x'; 100_000], many_lines.into_bytes(), vec![0xff, 0xfe, 0]] {
        assert_eq!(bed.run_with("send --to w1", &content).code, 0);
        let got = bed.command(&["recv", "--as", "w1", "--body"]).output().unwrap();
        assert_eq!(got.stdout, content);
    }
    assert_eq!(bed.run_with("send --to w1", &vec![b'x'; 100_000]).code, 0);
    let got = bed.object("recv --as w1");
    let path = got["attachment_path"].as_str().unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().len(), 100_000);
    assert_eq!(got["body_text"].as_str().unwrap().len(), 100_000);
    assert_eq!(got["attachment"]["bytes"], 100_000);
}

#[test]
fn release_gives_back_at_once_or_later_or_for_good() {
    let bed = Bed::empty();
    bed.ok("init");
    bed.ok("mailbox add w1 --attempts-max 2");
    let id = bed.send("x");
    bed.ok("recv --as w1");
    assert_eq!(bed.object(&format!("mailbox release {id}"))["state"], "queued");
    assert_eq!(bed.object("recv --as w1")["epoch"], 2);
    bed.ok(&format!("mailbox release {id} --delay 1h")).has(["no attempt is left"]);
    assert_eq!(bed.json("dead list")[0]["reason"], "released after 2 attempts");
}

#[test]
fn only_the_holder_of_this_delivery_may_go_on_and_a_broadcast_has_one_id() {
    let bed = Bed::new();
    let id = bed.send("x");
    bed.ok("recv --as w1");
    bed.fails(1, &format!("settle {id} --as dispatch")).has(["held by w1, not by dispatch"]);
    bed.ok(&format!("mailbox release {id} --as w1"));
    bed.ok("recv --as w1");
    bed.fails(1, &format!("settle {id} --as w1 --epoch 1")).has(["has ended", "epoch 2"]);
    bed.ok(&format!("settle {id} --as w1 --epoch 2"));
    bed.fails(1, &format!("settle {id} --as w1")).has(["it is settled"]);
    bed.fails(3, "settle no-such-id");
    let sent = bed.json("send --broadcast --as w1 -m stop");
    let mailboxes: Vec<_> = sent.iter().map(|line| line["mailbox"].as_str().unwrap()).collect();
    assert_eq!(mailboxes, ["conductor", "dispatch"]);
    assert_eq!(sent[0]["id"], sent[1]["id"]);
    let id = sent[0]["id"].as_str().unwrap();
    // The id alone is ambiguous, but not for one who holds it.
    bed.ok("recv --as dispatch");
    bed.fails(1, &format!("settle {id} --as w1")).has(["several mailboxes"]);
    bed.ok(&format!("settle {id} --as dispatch"));
    bed.ok("recv --as w2 --mailbox conductor");
    bed.ok(&format!("mailbox release {id} --mailbox conductor"));
}

#[test]
fn mailboxes_are_added_listed_and_removed_and_several_are_all_known_or_nothing_is_sent() {
    let bed = Bed::new();
    let added = bed.object("mailbox add w2 --capacity 3 --lease 1h --done-days 1");
    let keys_expected = ["mailbox", "capacity", "attempts_max", "lease_seconds", "done_days"];
    assert_eq!(keys(&added), keys_expected);
    added.fits(json!({ "capacity": 3, "lease_seconds": 3600 }));
    assert_eq!(bed.json("mailbox list").len(), 5);
    assert!(bed.ok("mailbox list").contains("w2         3"));
    bed.fails(1, "mailbox add W2").has(["`w2` already exists"]);
    bed.ok("send --to w2 -m x");
    bed.fails(1, "mailbox remove w2").has(["1 unfinished message", "--force"]);
    assert_eq!(bed.ok("mailbox remove w2 --force"), "removed mailbox w2\n");
    assert!(!bed.mailbox("w2").exists());
    let refused = bed.fails(3, "send --to w1 --to dispach -m x");
    refused.has(["no mailbox `dispach`: did you mean dispatch?"]);
    refused.has(["hint: there are conductor, dispatch, operator, w1"]).lacks(["--create"]);
    bed.fails(3, "recv --as w1");
    let sent = bed.ok("send --to w1,new-one --to w1 --create -m x");
    assert_eq!(sent.lines().count(), 1, "one id, once");
    assert_eq!(bed.ok("recv --as w1 --body"), "x");
    assert_eq!(bed.ok("recv --as new-one --body"), "x");
}

#[test]
fn dead_letters_are_listed_shown_retried_and_dropped() {
    let bed = Bed::new();
    for id in ["d1", "d2", "d3"] {
        bed.ok(&format!("send --to w1 --id {id} --expires 0 -m {id}"));
    }
    bed.fails(3, "recv --as w1");
    let letters = bed.json("dead list w1");
    assert_eq!(letters.len(), 3);
    assert_eq!(keys(&letters[0]), ["id", "mailbox", "reason", "at", "holder", "epoch", "place"]);
    assert_eq!(letters[0]["reason"], "expired");
    assert_eq!(bed.object("dead show d1")["body"], "d1");
    assert!(bed.ok("dead show d1").contains("reason   expired"));
    assert_eq!(bed.object("dead retry d1")["state"], "queued");
    assert_eq!(bed.ok("dead drop d2"), "dropped d2\n");
    bed.fails(1, "dead drop --all").has(["--yes"]);
    assert_eq!(bed.ok("dead drop --all --yes"), "dropped d3\n");
    assert_eq!(bed.ok("dead list"), "no dead letters\n");
    bed.fails(3, "dead show d2");
    bed.fails(2, "dead retry");
    // One that cannot be returned keeps no other among the dead letters, and stays as it was.
    bed.ok("mailbox add w2");
    bed.ok("send --to w2 --id d4 --expires 0 -m d4");
    bed.fails(3, "recv --as w2");
    std::os::unix::fs::symlink("d4.yaml", bed.mailbox("w2/dead/d0.yaml")).unwrap();
    let ran = bed.run("dead retry --all --mailbox w2");
    ran.ends(1);
    ran.stdout.begins("returned d4 to w2");
    assert!(ran.stderr.contains("d0 in w2") && !bed.mailbox("w2/dead/d0@reason.yaml").exists());
}

#[test]
fn a_sender_that_floods_a_mailbox_is_refused_and_others_are_not() {
    let bed = Bed::new();
    bed.write_file("ensemble.yaml", "sender_quota: { messages: 3 }\n");
    for number in 0..3 {
        bed.ok(&format!("send --to w1 --as mad -m {number}"));
    }
    let refused = bed.fails(75, "send --to w1 --as mad -m 4");
    refused.has(["`mad` has 3 unread messages", "sender_quota"]);
    bed.ok("send --to w1 --as calm -m 1");
    bed.ok("send --to w1 --as operator -m 1");
    bed.ok("recv --as w1");
    bed.ok("send --to w1 --as mad -m 5");
    let recorded = bed.json("log --type mailbox.quota");
    assert!(recorded[0]["actor"] == "mad" && recorded[0]["data"]["messages"] == 3, "{recorded:?}");
}
