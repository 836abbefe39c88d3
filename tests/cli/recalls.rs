//! A sender waits for the answer, interrupts, recalls and replaces; a reader is asked before it is given anything twice.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, end, ran, words};
use crate::conversation::read;
use crate::tmux_support::eventually;

#[test]
fn an_answer_is_waited_for_and_printed() {
    let bed = Bed::new();
    let asking = std::thread::spawn({
        let mut command =
            bed.command(&["send", "--to", "w1", "--wait-for-reply", "1m", "how many lines?"]);
        move || ran(command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap())
    });
    let asked = bed.ok("recv --as w1 --wait 1m --json");
    let id: Value = serde_json::from_str(&asked).unwrap();
    bed.ok(&format!("reply {} lines:42 --as w1", id["id"].as_str().unwrap()));
    let ran = asking.join().unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "lines:42\n"), "{ran:?}");
    bed.fails(3, "recv");
    let late = bed.run("send --to w1 --wait-for-reply 10ms --json -m again");
    late.ends(3).says(["w1 has not answered within"]);
    bed.fails(2, "send --to w1,dispatch --wait-for-reply 1s -m x").has(["one recipient"]);
}

#[test]
fn what_was_not_read_is_recalled_and_what_was_read_is_corrected() {
    let bed = Bed::new();
    let id = bed.send("delete the branch");
    let said = bed.ok(&format!("mailbox recall {id}"));
    assert_eq!(said, format!("recalled {id}: w1 will not read it\n"));
    bed.fails(3, "recv --as w1");
    let status = bed.ok("status");
    assert!(!status.contains("dead letter"), "nothing is owed: {status}");
    for story in [bed.ok(&format!("why {id}")), bed.ok("why operator")] {
        story.finishes("  operator recalled \"delete the branch\": w1 never read it\n");
    }
    bed.ok("send --to w1 --as w2 --id m1 -m one");
    assert!(bed.fails(1, "mailbox recall m1 --as w3").contains("only its sender recalls it"));
    bed.ok("send --to w1 --as w2 --id m2 --replaces m1 -m two");
    read(&bed, "w1").has(["\ntwo\n"]).lacks(["Replaces"]);
    bed.fails(1, "mailbox recall m2 --as w2").has(["w1 has read m2", "--to w1 --replaces m2 TEXT"]);
    let sent = bed.object("send --to w1 --as w2 --id m3 --replaces m2 -m three");
    assert_eq!(sent["replaced"], json!(false));
    read(&bed, "w1").has(["\nReplaces: m2: do not act on that one any more\n"]);
    // A copy that cannot be read keeps no other with its reader.
    bed.ok("mailbox add a1");
    bed.ok("send --to a1,w1 --as w2 --id m5 -m five");
    std::fs::write(bed.mailbox("a1/new/m5.yaml"), "no: [\n").unwrap();
    bed.fails(4, "mailbox recall m5 --as w2").has(["recalled m5: w1 will not read it"]);
    assert!(bed.mailbox("w1/dead/m5.yaml").exists());
}

#[test]
fn a_sender_waits_until_the_own_record_of_its_reader_shows_the_message() {
    let bed = Bed::new();
    let transcript = bed.project().join("s1.jsonl");
    let hook = |event: &str, input: &Value| {
        let line = format!("hook {event} --provider claude --as w1");
        bed.run_with(&line, input.to_string().as_bytes()).stdout
    };
    for way in ["transcript", "record", "recv"] {
        let line = format!("send --to w1 --id m-{way} --until confirmed --wait 1m --json -m count");
        let mut sending = bed.command(&words(&line));
        let sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let file = bed.mailbox(&format!("w1/new/m-{way}.yaml"));
        eventually("it is stored", || file.exists());
        // A program may name its session with its first prompt only.
        let session = json!({ "session_id": (way != "transcript").then_some("s1") });
        let shown = match way {
            "recv" => read(&bed, "w1"),
            _ => hook("tool", &session),
        };
        hook("stop", &json!({ "session_id": "s1" }));
        std::fs::write(&transcript, &shown).unwrap();
        // OpenCode has no file, and its plugin says what it has stored.
        let proof = match way {
            "record" => json!({ "session_id": "s1", "record": shown }),
            _ => json!({ "session_id": "s1", "transcript_path": transcript }),
        };
        hook("stop", &proof);
        let ran = end(sending);
        assert!(ran.code == 0 && ran.stdout.contains("\"confirmed\""), "{way}: {ran:?}");
        bed.ok(&format!("settle m-{way} --as w1"));
    }
}

fn hook(bed: &Bed, event: &str) -> String {
    let line = format!("hook {event} --provider claude --as w1");
    bed.run_with(&line, br#"{"session_id": "s1"}"#).stdout
}

#[test]
fn what_interrupts_overtakes_and_what_waits_for_the_turn_is_not_handed_over_after_a_tool() {
    let bed = Bed::new();
    let hook = |event: &str| hook(&bed, event);
    bed.ok("send --to w1 --when turn --id later -m later");
    assert_eq!(hook("tool"), "");
    bed.ok("send --to w1 --id m1 -m first");
    bed.ok("send --to w1 --when interrupt --id stop -m stop");
    let said = hook("tool");
    let (stop, first) = (said.find("stop").unwrap(), said.find("first").unwrap());
    assert!(said.contains("Urgent message from operator") && stop < first, "{said}");
    said.lacks(["later"]);
    assert!(hook("stop").contains("later"));
    bed.fails(2, "send --to w1 --when soon -m x");
}

#[test]
fn a_session_is_asked_before_it_is_given_anything_twice() {
    let bed = Bed::new();
    let hook = |event: &str| hook(&bed, event);
    let id = bed.send("count");
    assert!(hook("tool").contains("count"));
    assert!(hook("stop").contains("Reminder: you still hold"));
    // As its lease expires.
    bed.ok(&format!("mailbox release {id} --as w1"));
    let asked = hook("tool");
    asked.has(["you were given this at ", "ensemble settle "]).lacks(["```", "waits in mailbox"]);
    assert_eq!(hook("tool"), "", "asked once");
    hook("stop").has(["Again, attempt 2 of 5: you were given this at "]);
    // An answer to the question is enough.
    hook("stop");
    bed.ok(&format!("mailbox release {id} --as w1"));
    assert!(hook("prompt").contains("have not settled it"));
    bed.ok(&format!("settle {id} --as w1"));
    assert_eq!(hook("stop"), "");
}
