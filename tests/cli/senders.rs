//! Who writes, and whether a recipient reads: the same answer at every door.

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, objects, program};
use crate::conversation::{member, of_member, read, works};
use crate::mcp_client::Mcp;
use crate::tmux_support::{TestServer, eventually};

#[test]
fn what_a_person_types_under_another_name_is_said_to_be_the_persons() {
    let bed = Bed::new();
    let shell = TestServer::bash();
    let (home, program, line) = (bed.project(), program().display(), "send --to w1 --as lead");
    std::fs::write(home.join("agent.sh"), format!("{program} {line} scripted\n:\n")).unwrap();
    let typed = |command: &str| {
        let command = format!("cd {} && {command}", home.display());
        shell.human(&[&command, "Enter"]);
        eventually(&command, || bed.mailbox("w1/new").read_dir().unwrap().count() == 1);
        read(&bed, "w1")
    };
    let text = typed(&format!("{program} {line} typed"));
    text.begins("Message from lead, on behalf of the person who runs this team:\n```\ntyped");
    typed(&format!("echo piped | {program} {line}")).has(["on behalf of the person", "piped"]);
    // A program that the person has started is not the person.
    typed("sh agent.sh").begins("Message from lead (unverified sender").has(["scripted"]);
}

#[test]
fn a_sender_learns_at_every_door_that_the_reader_has_left() {
    let bed = Bed::new();
    ["w1", "cora"].iter().for_each(|name| member(&bed, name));
    works(of_member(&bed, "cora", "send --to w1 -m hello", ""));
    bed.ok("mailbox add full --capacity 1");
    bed.ok("send --to full -m first");
    let file = bed.project().join(".ensemble/roster/cora.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(bed.run("send --to cora -m news").stderr, "", "it is up");
    std::fs::write(&file, text.replace("state: up", "state: shutdown")).unwrap();
    let warning = "cora has left, and the message waits for it";
    for line in ["send --to cora -m x", "send --all x"] {
        let ran = bed.run(line);
        assert!(ran.stderr.contains(warning), "{line}: {ran:?}");
    }
    bed.fails(3, "send --to ghost,w1,spook -m x").has(["`ghost`; there is no mailbox `spook`"]);
    let ran = bed.run("send --to cora,full,w1 -m x --json");
    let sent = objects(&ran.stdout);
    assert!(sent[0]["error"].as_str().unwrap().contains("`full` is full"), "{sent:?}");
    sent[0].fits(json!({ "mailbox": "full", "state": "refused" }));
    assert!(sent[1]["warning"].as_str().unwrap().starts_with(warning), "{sent:?}");
    assert_eq!((&sent[2]["mailbox"], sent[2].get("warning")), (&json!("w1"), None));
    let hint = format!("with `--id {}`", sent[1]["id"].as_str().unwrap());
    ran.ends(75).says([&hint]);
    // A program, by the API and by MCP, and an answer.
    let call = json!({ "id": 1, "method": "send", "params": { "to": "cora", "text": "x" } });
    bed.run_with("admin api", format!("{call}\n").as_bytes()).shows([warning]);
    let mut client = Mcp::of(&bed, "lead");
    let sent = client.object("send", &json!({ "to": "cora", "message": "x" }));
    assert!(sent["warning"].as_str().unwrap().starts_with(warning), "{sent}");
    let held = objects(&of_member(&bed, "w1", "recv --json", "").stdout);
    let id = held[0]["id"].as_str().unwrap();
    of_member(&bed, "w1", &format!("reply {id} fine"), "").says([warning]);
}

#[test]
fn instructions_say_how_their_sender_is_known() {
    let bed = Bed::new();
    ["w1", "cora"].iter().for_each(|name| member(&bed, name));
    let text = "type: start_workers\ntasks: [{id: a, instruction: count}]\n...\n";
    bed.write_file("i.yaml", text);
    let sent = || {
        let message = bed.object("recv --as dispatch");
        [message["from"].clone(), message["proof"].clone()]
    };
    bed.ok("agent instruct -f i.yaml");
    assert_eq!(sent(), ["operator", "person"]);
    bed.write_file("i.yaml", text.replace("id: a", "id: b"));
    works(of_member(&bed, "cora", "agent instruct -f i.yaml", ""));
    assert_eq!(sent(), ["cora", "pass"]);
}

#[test]
fn what_is_sent_to_all_is_for_agents_and_who_has_left_is_said() {
    let bed = Bed::new();
    ["w1", "cora"].iter().for_each(|name| member(&bed, name));
    let id = bed.ok("send --all stop");
    assert!(bed.mailbox(&format!("cora/new/{}.yaml", id.trim_end())).exists());
    bed.fails(3, "recv");
    for (name, answer) in [("w1", "--approve"), ("cora", "--reject --reason busy")] {
        let asked = bed.object(&format!("request shutdown {name}"));
        let id = asked["request_id"].as_str().unwrap();
        works(of_member(&bed, name, &format!("request answer {id} {answer}"), ""));
    }
    bed.run("status").stdout.has(["w1 agreed to shut down", "cora does not shut down: \"busy\""]);
}

#[test]
fn vague_words_of_messages_are_named_or_refused_where_a_team_asks_for_it() {
    let bed = Bed::new();
    let configure = |lint: &str| {
        bed.configure(lint);
    };
    let text = json!({ "to": "w1", "message": "ほぼ完了" });
    assert_eq!(bed.run("send --to w1 -m ほぼ完了").stderr, "", "reports alone are checked");
    configure("lint: {messages: advise}\n");
    for line in ["send --to w1 -m ほぼ完了", "task new t1 --to w1 ほぼ完了"] {
        let ran = bed.run(line);
        assert!(ran.code == 0 && ran.stderr.contains("`ほぼ` is vague"), "{line}: {ran:?}");
    }
    let sent = Mcp::of(&bed, "lead").object("send", &text);
    assert!(sent["warning"].as_str().unwrap().contains("`ほぼ` is vague"), "{sent}");
    configure("lint: {messages: refuse}\n");
    let count = bed.mailbox("w1/new").read_dir().unwrap().count();
    assert!(bed.fails(1, "send --to w1 -m ほぼ完了").contains("nothing is sent"));
    let (is_refused, said) = Mcp::of(&bed, "lead").ask("send", &text);
    assert!(is_refused && said.contains("`ほぼ` is vague"), "{said}");
    assert_eq!(bed.mailbox("w1/new").read_dir().unwrap().count(), count);
}
