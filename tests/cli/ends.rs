//! `report` and `settle` by the holder, and by an agent that was the last to hold a message.

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _};

fn task(bed: &Bed, task: &str) -> String {
    bed.ok(&format!("send --to coders --type task --task {task} -m work"));
    bed.object("recv --as w1 --mailbox coders")["id"].as_str().unwrap().to_owned()
}

fn bed() -> Bed {
    let bed = Bed::new();
    bed.add_mailboxes(&["w2", "coders"]);
    bed
}

#[test]
fn a_report_settles_its_message_and_settling_it_afterwards_is_no_mistake() {
    let bed = bed();
    let id = task(&bed, "t-1");
    let said = bed.object("report t-1 --status success --lint off --as w1");
    assert_eq!(said["settled"], json!([id]));
    assert_eq!(
        bed.ok(&format!("settle {id} --as w1")),
        format!("{id} was settled by the report of t-1\n")
    );
    let again = bed.object(&format!("settle {id} --as w1 --epoch 1"));
    again.fits(json!({ "state": "settled", "already_settled": true }));
    bed.fails(3, "recv --as w1 --mailbox coders");
    assert_eq!(bed.json("log --type task_complete").len(), 1);
    bed.ok("log replay --strict");
}

#[test]
fn the_last_holder_settles_a_message_whose_lease_is_over() {
    let bed = bed();
    let id = task(&bed, "t-1");
    // As an observer that takes a message back from a silent holder.
    bed.ok(&format!("mailbox release {id} --as w1 --mailbox coders"));
    bed.fails(1, &format!("settle {id} --as w2")).has(["is not held: it is queued"]);
    bed.ok(&format!("settle {id} --as w1"));
    bed.fails(3, "recv --as w2 --mailbox coders");

    let id = task(&bed, "t-2");
    bed.ok(&format!("mailbox release {id} --as w1 --mailbox coders"));
    bed.ok("recv --as w2 --mailbox coders");
    bed.fails(1, &format!("settle {id} --as w1")).has(["held by w2, not by w1"]);
    bed.ok(&format!("mailbox release {id} --as w2 --mailbox coders"));
    let refused = bed.fails(1, &format!("settle {id} --as w1"));
    assert!(refused.contains("it is queued"), "another delivery has begun since: {refused}");
    bed.ok("log replay --strict");
}

#[test]
fn a_task_that_was_reported_is_withdrawn_from_its_next_holder() {
    let bed = bed();
    let id = task(&bed, "t-1");
    bed.ok(&format!("mailbox release {id} --as w1 --mailbox coders"));
    bed.ok("recv --as w2 --mailbox coders");
    bed.ok("report t-1 --status success --lint off --as w1");
    bed.object("recv --as w2").fits(json!({ "type": "mail.withdrawn", "causation_id": *id }));
    let said = bed.ok(&format!("settle {id} --as w2 --epoch 2"));
    assert_eq!(said, format!("{id} was settled by the report of t-1\n"));
    assert_eq!(bed.json("log --type task_complete").len(), 1, "it has ended once");
    bed.ok("log replay --strict");
}

#[test]
fn recv_says_how_long_it_holds_how_many_wait_and_the_commands_that_go_on() {
    let bed = bed();
    for n in 1..=3 {
        bed.ok(&format!("send --to w1 --type task --task t-{n} -m work"));
    }
    let got = bed.object("recv --as w1");
    let id = got["id"].as_str().unwrap();
    assert_eq!(got["waiting"], 2);
    assert!(
        got["held"].as_str().unwrap().starts_with("for 5m, until you report or settle"),
        "{got}"
    );
    let settle = got["commands"]["settle"].as_str().unwrap();
    let short = settle.strip_prefix("ensemble settle ").unwrap().strip_suffix(" --as w1").unwrap();
    assert!(id.starts_with(short) && short.len() < id.len(), "{settle}");
    // Each is run as it is printed.
    for verb in ["extend", "release"] {
        let line = got["commands"][verb].as_str().unwrap().strip_prefix("ensemble ").unwrap();
        bed.ok(line);
    }
    bed.ok("recv --as w1").has(["2 more wait: `ensemble recv --as w1`\n"]);
    let settled = bed.ok(&format!("settle {id} --as w1"));
    assert_eq!(settled, format!("settled {id}\n2 more wait: `ensemble recv --as w1`\n"));
    bed.ok("recv --as w1").has(["Done: ensemble report t-2 --status success"]);
    bed.ok("send --to coders -m x");
    let shared = bed.object("recv --as w1 --mailbox coders");
    let release = shared["commands"]["release"].as_str().unwrap();
    bed.ok(release.strip_prefix("ensemble ").unwrap());
    bed.ok("recv --as w1");
    bed.ok("recv --as w2 --mailbox coders").lacks(["more wait"]);
}
