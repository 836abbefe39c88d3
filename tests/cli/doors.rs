//! One message at the three doors, the command, the tools and the API: its fields are read, and it is shown, alike.

use std::fs;

use serde_json::{Value, json};

use crate::api::Client;
use crate::bed::{Bed, JsonMembers as _, SaidText as _, keys};
use crate::mcp_client::Mcp;

fn send_each_kind(bed: &Bed) {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for line in [
        &format!("--id plain --priority 3 --when interrupt --traceparent {trace} hello"),
        "--id given --type task --task t-1 --attempt 2 --expires 1d count",
        "--id notice --type report.completed --task t-1 task_id:t-1",
        "--id first old",
        "--id second --replaces first new",
        "--id own --type of.ours --correlation thread-1 x",
        "--id needs-plan --type task --task t-9 --plan careful",
    ] {
        bed.ok(&format!("send --to w1 --as lead {line}"));
    }
    bed.ok("send --to lead --as w1 --create --id asked ?");
    bed.ok("recv --as lead");
    bed.ok("reply asked yes --as lead");
    bed.ok("request shutdown w1 --as lead --id stop");
    bed.run_with("request plan -f - --to w1 --task t-2 --as lead --id plan", b"do x").ends(0);
    assert_eq!(bed.run_with("send --to w1 --as lead --id large", &[b'x'; 100_000]).code, 0);
}

#[test]
fn a_message_of_each_kind_has_one_shape_at_all_doors() {
    const CLAIMED: [&str; 3] = ["epoch", "head", "commands"];
    let bed = Bed::new();
    send_each_kind(&bed);
    let (mut mcp, mut api) = (Mcp::of(&bed, "w1"), Client::new(&bed));
    let listed = bed.json("inbox --as w1 --limit 50");
    assert_eq!(mcp.object("inbox", &json!({ "limit": 50 }))["messages"], json!(listed));
    assert_eq!(api.call(1, "inbox", &json!({ "limit": 50 }))["result"], json!(listed));
    let cut = mcp.object("inbox", &json!({ "limit": 2 }));
    assert_eq!(cut["messages"].as_array().unwrap().len(), 2);
    let more = format!("{} wait: pass `limit` up to 100, or take them by recv", listed.len());
    assert_eq!(cut["more"], more);
    let mut kinds = std::collections::BTreeSet::new();
    for _ in &listed {
        // Each door is handed the same message in turn; only the number of the delivery is another one.
        let by_command = bed.object("recv --as w1");
        let id = by_command["id"].as_str().unwrap().to_owned();
        bed.ok(&format!("mailbox release {id} --as w1"));
        let by_api = api.call(2, "recv", &json!({}))["result"][0].clone();
        bed.ok(&format!("mailbox release {id} --as w1"));
        let by_mcp = mcp.object("recv", &json!({ "id": id }));
        kinds.insert(by_command["type"].as_str().unwrap().to_owned());
        for other in [&by_api, &by_mcp] {
            assert_eq!(keys(other), keys(&by_command), "{id}");
            for (member, value) in by_command.as_object().unwrap() {
                if !CLAIMED.contains(&&**member) && member != "plan" {
                    assert_eq!(&other[member], value, "{id}: {member}");
                }
            }
            assert_eq!(keys(&other["commands"]), keys(&by_command["commands"]), "{id}");
            assert!(!other["head"].to_string().contains("ensemble "), "{other}");
        }
        // A command is said as a call of the door.
        for (what, line) in by_mcp["commands"].as_object().unwrap() {
            let (tool, arguments) =
                line.as_str().unwrap().split_once(' ').unwrap_or(("heartbeat", "{}"));
            assert!(!tool.contains("ensemble"), "{id}: {what}: {line}");
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{line}");
        }
        for (what, line) in by_api["commands"].as_object().unwrap() {
            let call: Value = serde_json::from_str(line.as_str().unwrap()).unwrap();
            assert!(call["method"].is_string() && call["params"].is_object(), "{what}: {call}");
        }
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    api.end();
}

#[test]
fn no_door_settles_a_question_without_its_answer() {
    let bed = Bed::new();
    let (mut mcp, mut api) = (Mcp::of(&bed, "w1"), Client::new(&bed));
    for id in ["q-1", "q-2", "q-3"] {
        bed.ok(&format!("send --to w1 --as lead --type build_request --id {id} go?"));
        assert_eq!(bed.object("recv --as w1")["id"], id);
    }
    let by_command = bed.run("settle q-1 --as w1");
    let (_, by_mcp) = mcp.ask("settle", &json!({ "id": "q-2" }));
    let by_api = api.call(1, "settle", &json!({ "id": "q-3" }));
    for said in [by_command.stderr, by_mcp, by_api["error"].to_string()] {
        said.has(["has no answer yet: approve or reject it"]);
    }
    for id in ["q-1", "q-2", "q-3"] {
        bed.ok(&format!("request answer {id} --approve --as w1"));
        assert_eq!(bed.object(&format!("settle {id} --as w1"))["state"], "settled");
    }
    // One that another program has sent, under its own id.
    let send = "send --to w1 --as lead --type shutdown_request --id own-1";
    assert_eq!(bed.run_with(send, b"requestId: ab12\nreason: done\n").code, 0);
    bed.ok("recv --as w1");
    assert!(bed.fails(1, "settle own-1 --as w1").contains("ab12"));
    bed.ok("mailbox release own-1 --as w1");
    api.end();
}

fn fields_as_written() -> Vec<(&'static str, Value, bool)> {
    vec![
        ("to", json!(" w1 "), true),
        ("to", json!("\"w1\""), true),
        ("to", json!("@w1"), true),
        ("to", json!("#w1"), true),
        ("to", json!("w9"), false),
        ("priority", json!(5), true),
        ("priority", json!(5.0), true),
        ("priority", json!(10), false),
        ("priority", json!(-1), false),
        ("priority", json!("high"), false),
        ("task_id", json!(7), true),
        ("task_id", json!(" t-1 "), true),
        ("task_id", json!("\u{feff}'t-1'"), true),
        ("task_id", json!("a\nb"), false),
        ("task_id", "t".repeat(257).into(), false),
        ("type", json!("a type"), false),
        ("when", json!("Interrupt"), true),
        ("when", json!("soon"), false),
        ("traceparent", json!("zz"), false),
        ("wait_for_reply", json!("soon"), false),
        ("message", json!(" \n"), false),
    ]
}

#[test]
fn a_switch_means_what_is_written_at_every_door() {
    let bed = Bed::new();
    let (mut mcp, mut api) = (Mcp::of(&bed, "w1"), Client::new(&bed));
    let no = [
        json!("no"),
        json!("False"),
        json!("off"),
        json!("0"),
        json!(0),
        json!(" N "),
        json!("いいえ"),
    ];
    let yes =
        [json!("On"), json!("YES"), json!(1.0), json!([true]), json!("\"true\""), json!("はい")];
    let neither = [json!("maybe"), json!(2), json!("approve")];
    let all = [(&no[..], Some(false)), (&yes, Some(true)), (&neither, None)];
    let rows = all.into_iter().flat_map(|(all, meant)| all.iter().map(move |it| (it, meant)));
    for (number, (value, meant)) in (1..).zip(rows) {
        let [by_mcp, by_api] = ["m", "a"].map(|door| format!("{door}-{number}"));
        let call = json!({ "to": "w1", "message": "x", "task_id": by_mcp, "needs_plan": value });
        let (refused, said) = mcp.ask("send", &call);
        let call = json!({ "to": "w1", "text": "x", "task": by_api, "plan": value, "as": "lead" });
        let answer = api.call(number, "send", &call);
        assert_eq!(refused, meant.is_none(), "{value}: {said}");
        assert_eq!(answer["error"].is_object(), meant.is_none(), "{value}: {answer}");
        for task in [by_mcp, by_api] {
            let gate = bed.project().join(format!("queue/gates/{task}@.yaml"));
            assert_eq!(gate.exists(), meant == Some(true), "{value} for {task}");
        }
        // A rejection that was taken for an approval would be the worst.
        let id = bed.ok("request shutdown w1 --as lead --json");
        let id = serde_json::from_str::<Value>(&id).unwrap()["request_id"].clone();
        let call = json!({ "id": id, "approve": value, "as": "w1" });
        let answer = api.call(100 + number, "request answer", &call);
        let state = answer["result"][0]["state"].as_str();
        assert_eq!(state, (meant == Some(true)).then_some("approved"), "{value}: {answer}");
        if meant != Some(true) {
            bed.ok(&format!("request cancel {} --as lead", id.as_str().unwrap()));
        }
    }
    api.end();
}

#[test]
fn settings_of_a_mailbox_have_durations_as_people_write_them() {
    let bed = Bed::new();
    let path = bed.mailbox("w1/mailbox.yaml");
    for lease in ["90", "90s", "1m 30S", "'90'", "\"90 sec\""] {
        fs::write(&path, format!("lease_seconds: {lease}\ndone_days: 2 weeks\n")).unwrap();
        let id = bed.send("for ninety seconds");
        let message = bed.object("recv --as w1");
        assert!(message["id"] == id && message["lease_seconds"] == 90, "{lease}: {message}");
        bed.ok(&format!("settle {id} --as w1"));
    }
    // What Ensemble writes is a number, as other clients read it.
    bed.ok("mailbox add w2 --lease 1m30s");
    fs::read_to_string(bed.mailbox("w2/mailbox.yaml")).unwrap().has(["lease_seconds: 90"]);
    for (wrong, said) in [("soon", "`soon` is not a duration"), ("2d", "is not in 1 to 86400")] {
        fs::write(&path, format!("lease_seconds: {wrong}\n")).unwrap();
        bed.fails(4, "recv --as w1").has(["mailbox.yaml", said]);
    }
}

#[test]
fn a_field_gets_the_same_answer_at_every_door() {
    let bed = Bed::new();
    let (mut mcp, mut api) = (Mcp::of(&bed, "w1"), Client::new(&bed));
    // What was stored, but for its id and its time; the words of a refusal.
    let stored = |id: &str| {
        let all = bed.json("inbox --as w1 --limit 200");
        let mut found = all.into_iter().find(|it| it["id"] == id).expect("it is in the inbox");
        for own in ["id", "created_at"] {
            found[own] = Value::Null;
        }
        found
    };
    for (number, (field, value, is_fit)) in (1..).zip(fields_as_written()) {
        let mut call = json!({ "to": "w1", "message": "x" });
        call[field] = value.clone();
        let (refused, said) = mcp.ask("send", &call);
        let by_mcp = (!refused)
            .then(|| stored(serde_json::from_str::<Value>(&said).unwrap()["id"].as_str().unwrap()));
        let mut words = vec!["send".to_owned()];
        let mut params = json!({});
        for (name, value) in call.as_object().unwrap() {
            let name = match &**name {
                "message" => "text",
                "task_id" => "task",
                name => name,
            };
            params[name] = value.clone();
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            words.push(match name {
                "text" => text,
                name => format!("--{}={text}", name.replace('_', "-")),
            });
        }
        api.send(number, "send", &params);
        let answer = api.line().unwrap();
        let by_api = answer["result"][0]["id"].as_str().map(stored);
        let mut command = bed.command(&words);
        let ran = crate::bed::ran(command.env("ENSEMBLE_AGENT_ID", "w1").output().unwrap());
        let by_command = (ran.code == 0).then(|| stored(ran.stdout.trim()));
        assert_eq!(by_mcp.is_some(), is_fit, "{field} {value}: {said}");
        assert_eq!((&by_api, &by_command), (&by_mcp, &by_mcp), "{field} {value}: {answer} {ran:?}");
        let words = ["u8", "u64", "digit found", "serde", "Option"];
        let texts = [&said, &ran.stderr, &answer.to_string()];
        let foreign = words.iter().find(|word| texts.iter().any(|text| text.contains(**word)));
        assert_eq!(foreign, None, "{field} {value}: {texts:?}");
    }
    // A client that fills in every field means none of these.
    for field in ["task_id", "type", "when", "priority", "request_id"] {
        let mut call = json!({ "to": "w1", "message": "x" });
        call[field] = "".into();
        assert!(!mcp.ask("send", &call).0, "{field}");
    }
    bed.ok("request shutdown @w1 --as 'lead' --on-silence FORCE");
    let mut command = bed.command(&["agent", "whoami", "--json"]);
    let ran = crate::bed::ran(command.env("ENSEMBLE_AGENT_ID", " \"@w1\"\r").output().unwrap());
    ran.ends(0).shows([r#""w1""#]);
    api.send(99, "send", &json!({ "to": "w1", "text": "x", "task": "", "priority": null }));
    assert!(api.line().unwrap()["error"].is_null());
}

#[test]
fn tools_name_the_field_of_a_wrong_name_and_hints_name_tools() {
    let bed = Bed::new();
    let mut mcp = Mcp::of(&bed, "w1");
    for (tool, field, mut call) in [
        ("assign", "worker", json!({ "instruction": "x" })),
        ("claim_task", "task_id", json!({})),
        ("plan_approval", "to", json!({ "plan": "x" })),
        ("settle", "id", json!({})),
        ("recall", "mailbox", json!({ "id": "m-1" })),
    ] {
        call[field] = "a b".into();
        let (refused, said) = mcp.ask(tool, &call);
        let fault = format!("nothing was done: {field}: `a b` has ' '");
        assert!(refused && said.starts_with(&fault), "{tool}: {said}");
    }
    send_each_kind(&bed);
    let taken = |mcp: &mut Mcp, id: &str| mcp.object("recv", &json!({ "id": id }));
    let message = taken(&mut mcp, "plain");
    let settle = r#"settle {"id":"plain"}"#;
    assert_eq!(message["commands"]["settle"], settle);
    assert_eq!(message["commands"]["reply"], r#"reply {"id":"plain","message":"TEXT"}"#);
    let asked = taken(&mut mcp, "stop.request");
    let no = r#"shutdown_response {"request_id":"stop","approve":false,"reason":"TEXT"}"#;
    assert_eq!(asked["commands"]["reject"], no);
    let gated = taken(&mut mcp, "needs-plan");
    assert!(gated["plan"].as_str().unwrap().contains("`plan_approval {"), "{gated}");
    let (refused, why) = mcp.ask("settle", &json!({ "id": "needs-plan" }));
    let hint = r#"plan_approval {"plan":"TEXT","task_id":"t-9","to":"lead"}"#;
    assert!(refused && why.contains(hint) && !why.contains("ensemble"), "{why}");
    // What is said can be called as it is said, with its shortened id.
    let message = taken(&mut mcp, &bed.send("under a whole id"));
    let said = message["commands"]["settle"].as_str().unwrap().split_once(' ').unwrap();
    assert!(!said.1.contains(message["id"].as_str().unwrap()), "{message}");
    let settled = mcp.object(said.0, &serde_json::from_str(said.1).unwrap());
    settled.fits(json!({ "id": message["id"], "state": "settled" }));
}
