//! Agents without a terminal: a program that speaks the Agent Client Protocol. The one here speaks as much of it as
//! `gemini --acp` 0.61.0, `opencode acp` 1.18.33 and `claude-agent-acp` 0.101.0 were seen to.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Team, kill};
use crate::bed::{Bed, JsonMembers as _, SaidText as _, is_running, objects};
use crate::mcp_client::Mcp;
use crate::tmux_support::eventually;

/// Notes what it is asked, in `asked`. A prompt with the line `HANG` has no answer before the turn is cancelled. For one
/// with a line `RUN:rm,it` it asks for leave to run that, and notes in `answers` what it got. Beside a file `steers` it
/// takes words into a turn, which ends with them. Without a file `lifted` it is at a usage limit for a line `LIMIT`. It
/// refuses one with a line `REFUSE`.
const AGENT: &str = r#"
import json, os, re, sys
asked, answers = open("asked", "a"), open("answers", "a")
open("pids", "a").write(f"{os.getpid()}\n")

def note(file, value):
    file.write(json.dumps(value) + "\n")
    file.flush()

def say(value):
    print(json.dumps({"jsonrpc": "2.0", **value}), flush=True)

def end(prompt, reason):
    usage = {"inputTokens": 7, "outputTokens": 2}
    quota = {"model_usage": [{"model": "m", "token_count": {"input_tokens": 70, "output_tokens": 20}}]}
    say({"id": prompt, "result": {"stopReason": reason, "usage": usage, "_meta": {"quota": quota}}})

waiting = None
print("a line that is no message", flush=True)
for line in sys.stdin:
    call = json.loads(line)
    method, id = call.get("method"), call.get("id")
    if method is None:
        note(answers, call["result"]["outcome"])
        if waiting is not None:
            end(waiting, "end_turn")
            waiting = None
        continue
    note(asked, call)
    if method == "initialize":
        steering = {"supported": os.path.exists("steers")}
        say({"id": id, "result": {"protocolVersion": 1, "_meta": {"steering": steering}}})
    elif method == "session/new":
        say({"id": id, "result": {"sessionId": f"s{os.getpid()}", "models": {"currentModelId": "m"}}})
    elif method == "session/cancel":
        prompt, waiting = waiting, None
        end(prompt, "cancelled")
    elif method == "_session/steering":
        say({"id": id, "result": {"outcome": "injected" if waiting is not None else "promptRequired"}})
        if waiting is not None:
            end(waiting, "end_turn")
            waiting = None
    elif method == "session/prompt":
        text = call["params"]["prompt"][0]["text"]
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "I read it."}}
        say({"method": "session/update", "params": {"update": update}})
        runs = re.search(r"^RUN:(.*)$", text, re.M)
        if runs:
            waiting = id
            options = [{"optionId": kind, "kind": kind} for kind in ("allow_always", "allow_once", "reject_once")]
            tool = {"title": runs[1].replace(",", " "), "kind": "execute", "toolCallId": "t"}
            say({"id": 0, "method": "session/request_permission", "params": {"toolCall": tool, "options": options}})
        elif re.search(r"^HANG$", text, re.M):
            waiting = id
        elif re.search(r"^REFUSE$", text, re.M):
            end(id, "refusal")
        elif re.search(r"^LIMIT$", text, re.M) and not os.path.exists("lifted"):
            say({"id": id, "error": {"code": 429, "message": "Too many requests"}})
        else:
            end(id, "end_turn")
"#;

struct Spoken(Team);

impl Spoken {
    fn new() -> Self {
        Self::beside(&[])
    }

    /// An agent that finds these files where it is started.
    fn beside(files: &[&str]) -> Self {
        let bed = Bed::empty();
        bed.ok("init");
        let config = "team: {name: crew}\nidentity: {outsiders: allow}\nagents:\n  \
                      w1: {provider: acp, command: python3 agent.py}\n";
        bed.configure(config);
        for (name, text) in files.iter().map(|name| (*name, "")).chain([("agent.py", AGENT)]) {
            bed.write_file(name, text);
        }
        let spoken = Self(Team { bed });
        spoken.0.bed.ok("up");
        spoken.0.wait_for_evidence("w1", "idle", "no turn runs");
        spoken
    }

    fn notes(&self, file: &str) -> Vec<Value> {
        objects(&fs::read_to_string(self.0.bed.project().join(file)).unwrap_or_default())
    }

    fn prompts(&self) -> Vec<String> {
        self.texts_of("session/prompt")
    }

    fn texts_of(&self, method: &str) -> Vec<String> {
        let prompts = self.notes("asked").into_iter().filter(|it| it["method"] == method);
        let text = |it: Value| it["params"]["prompt"][0]["text"].as_str().unwrap().to_owned();
        prompts.map(text).collect()
    }

    #[track_caller]
    fn is_told(&self, words: &str) {
        let is_said = || self.prompts().iter().any(|text| text.contains(words));
        eventually(&format!("it is told `{words}`"), is_said);
    }

    #[track_caller]
    fn settle(&self, id: &str) {
        self.0.bed.ok(&format!("settle --as w1 {id}"));
    }

    fn question(&self) -> String {
        let mut id = None;
        eventually("it asks for permission", || {
            let all = self.0.bed.json("request list");
            let open = all.iter().find(|it| it["kind"] == "permission" && it["state"] == "pending");
            id = open.and_then(|it| it["request_id"].as_str().map(str::to_owned));
            id.is_some()
        });
        id.unwrap()
    }

    fn pid(&self) -> u32 {
        let pids = self.0.bed.read_file("pids");
        pids.lines().last().unwrap().parse().unwrap()
    }
}

#[test]
fn mail_is_a_prompt_and_what_is_held_is_reminded_of() {
    let agent = Spoken::new();
    let bed = &agent.0.bed;
    assert_eq!(agent.0.member("w1")["way_in"], "waiter");
    bed.ok("send --to w1 --id first -m hello");
    agent.is_told("hello");
    assert!(agent.prompts()[0].starts_with("[ensemble] You are w1"), "{:?}", agent.prompts());
    // The end of the turn settles nothing, and is not the end of it.
    agent.is_told("Reminder: you still hold first");
    assert!(bed.mailbox("w1/cur/first@w1@1.yaml").exists());
    agent.settle("first");
    agent.0.wait_for_evidence("w1", "idle", "no turn runs");
    let usage = bed.object("agent usage w1");
    usage.fits(json!({ "requests": 2, "turns": 2 }));
    assert_eq!(usage["tokens"]["input"], 14, "it is counted once: {usage}");
    // A message that comes into a turn waits until it has ended, and one that interrupts ends it.
    bed.ok("send --to w1 --id second -m HANG");
    agent.0.wait_for_state("w1", "working");
    bed.ok("send --to w1 --id third -m more");
    bed.ok("send --to w1 --id fourth --when interrupt -m stop");
    agent.is_told("stop");
    agent.is_told("more");
    let asked = agent.notes("asked");
    assert_eq!(asked.iter().filter(|it| it["method"] == "session/cancel").count(), 1, "{asked:?}");
    for id in ["second", "third", "fourth"] {
        agent.settle(id);
    }
    let told = agent.prompts().concat();
    for words in ["\nhello\n", "\nHANG\n", "\nmore\n", "\nstop\n"] {
        assert_eq!(told.matches(words).count(), 1, "{words}: {told}");
    }
    // Idle by its own word: it is not pinged.
    agent.0.wait_for_evidence("w1", "idle", "no turn runs");
    assert_eq!(bed.object("assign w1 count --task t1")["state"], "acked");
    for kind in ["nudge.sent", "ready.ping", "hook.failed"] {
        assert_eq!(agent.0.records(kind), [] as [Value; 0], "{kind}");
    }
}

#[test]
fn what_interrupts_goes_into_the_turn_of_an_agent_that_offers_that() {
    let agent = Spoken::beside(&["steers"]);
    let bed = &agent.0.bed;
    bed.ok("send --to w1 --id first -m HANG");
    agent.0.wait_for_state("w1", "working");
    bed.ok("send --to w1 --id second --when interrupt -m stop");
    let steered = || agent.texts_of("_session/steering").concat();
    eventually("it is said into the turn", || steered().contains("\nstop\n"));
    agent.settle("first");
    agent.settle("second");
    agent.0.wait_for_evidence("w1", "idle", "no turn runs");
    assert_eq!(agent.texts_of("_session/steering").len(), 1, "{}", steered());
    assert!(!agent.prompts().concat().contains("\nstop\n"), "{:?}", agent.prompts());
    let asked = agent.notes("asked");
    assert!(asked.iter().all(|it| it["method"] != "session/cancel"), "{asked:?}");
    assert_eq!(agent.0.records("hook.failed"), [] as [Value; 0]);
}

#[test]
fn what_interrupts_and_is_only_announced_ends_one_turn() {
    let agent = Spoken::new();
    let bed = &agent.0.bed;
    bed.ok("send --to w1 --id first -m HANG");
    agent.0.wait_for_state("w1", "working");
    bed.ok(&format!("send --to w1 --id long --when interrupt -m {}", "x".repeat(9_000)));
    agent.is_told("1 message waits in mailbox w1");
    agent.0.wait_for_evidence("w1", "idle", "no turn runs");
    // The message still waits when the next turn begins.
    bed.ok("send --to w1 --id second -m HANG");
    eventually("another turn runs", || agent.prompts().concat().matches("\nHANG\n").count() == 2);
    agent.0.wait_for_state("w1", "working");
    bed.ok("send --to w1 --id third --when interrupt -m stop");
    agent.is_told("\nstop\n");
    let asked = agent.notes("asked");
    assert_eq!(asked.iter().filter(|it| it["method"] == "session/cancel").count(), 2, "{asked:?}");
}

#[test]
fn a_refusal_of_the_model_is_a_failure() {
    let agent = Spoken::new();
    let bed = &agent.0.bed;
    bed.ok("send --to w1 --id first -m REFUSE");
    let session = || bed.read_file(".ensemble/sessions/w1.json");
    eventually("its turn has failed", || session().contains("the model has refused the prompt"));
    assert!(bed.mailbox("w1/cur/first@w1@1.yaml").exists());
    let input = bed.object("agent usage w1")["tokens"]["input"].as_u64();
    assert!(input >= Some(7), "its tokens count: {input:?}");
}

#[test]
#[ignore = "long"]
fn what_a_usage_limit_has_refused_is_kept_and_said_again() {
    let agent = Spoken::new();
    let bed = &agent.0.bed;
    bed.ok("send --to w1 --id first -m LIMIT");
    agent.0.wait_for_evidence("w1", "limited", "rate_limit: Too many requests");
    eventually("its lease is extended", || bed.mailbox("w1/lease/first@1.yaml").exists());
    bed.write_file("lifted", "");
    agent.is_told("Reminder: you still hold first");
    let told = agent.prompts();
    assert!(told.len() >= 3 && told[0].contains("\nLIMIT\n"), "{told:?}");
    assert!(told[1..told.len() - 1].iter().all(|again| *again == told[0]), "{told:?}");
    assert!(bed.mailbox("w1/cur/first@w1@1.yaml").exists());
}

#[test]
fn it_has_our_tools_under_its_own_name_and_what_it_asks_is_decided_by_the_person() {
    let agent = Spoken::new();
    let asked = agent.notes("asked");
    let begun = asked.iter().find(|it| it["method"] == "session/new").unwrap();
    let server = &begun["params"]["mcpServers"][0];
    let args = server["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let mut tools = Command::new(server["command"].as_str().unwrap());
    tools.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
    for variable in server["env"].as_array().unwrap() {
        tools.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
    }
    let mut tools = Mcp::at(tools.spawn().unwrap());
    assert_eq!(tools.object("whoami", &json!({}))["agent"], "w1");
    let bed = &agent.0.bed;
    bed.ok("send --to w1 --id first -m RUN:ensemble,settle,first");
    eventually("our verbs are allowed", || agent.notes("answers").len() == 1);
    assert_eq!(agent.notes("answers")[0]["optionId"], "allow_once");
    agent.settle("first");
    for (number, (answer, option)) in
        [("--approve", "allow_once"), ("--reject", "reject_once")].into_iter().enumerate()
    {
        bed.ok(&format!("send --to w1 --id ask{number} -m RUN:rm,{number}"));
        let question = agent.question();
        agent.0.wait_for_evidence("w1", "waiting", "operator");
        bed.ok("status").has(["NEEDS YOU: 1"]);
        bed.ok(&format!("request answer {question} {answer}"));
        eventually("it is answered", || agent.notes("answers").len() == number + 2);
        assert_eq!(agent.notes("answers")[number + 1]["optionId"], option);
        agent.settle(&format!("ask{number}"));
        agent.0.wait_for_evidence("w1", "idle", "no turn runs");
    }
    // A question is taken back once its agent does not wait for the answer any more.
    bed.ok("send --to w1 --id last -m RUN:rm,it");
    let question = agent.question();
    bed.ok("send --to w1 --id stop --when interrupt -m stop");
    eventually("it is taken back", || {
        bed.object(&format!("request list {question}"))["state"] == "cancelled"
    });
    eventually("the agent knows", || {
        agent.notes("answers").last().is_some_and(|answer| answer["outcome"] == "cancelled")
    });
    assert!(agent.prompts().iter().all(|text| !text.contains("permission_response")));
}

#[test]
fn a_killed_part_loses_nothing_and_leaves_nothing() {
    let agent = Spoken::new();
    let bed = &agent.0.bed;
    bed.ok("send --to w1 --id held -m HANG");
    agent.is_told("\nHANG\n");
    for part in ["agent", "client"] {
        let pane = agent.0.member("w1")["pid"].as_u64().unwrap();
        match part {
            "agent" => kill(agent.pid()),
            _ => kill(u32::try_from(pane).unwrap()),
        }
        let was = agent.pid();
        agent.0.wait_for_state("w1", "gone");
        let is_there = || fs::exists(format!("/proc/{was}")).unwrap();
        eventually("the agent has ended", || !is_there() || !is_running("agent.py"));
        bed.ok("up");
        let told = |count: usize| {
            agent.prompts().iter().filter(|text| text.contains("\nHANG\n")).count() >= count
        };
        let count = if part == "agent" { 2 } else { 3 };
        eventually("the message comes again", || told(count));
    }
    agent.settle("held");
    bed.ok("down --force");
    let project = bed.project().display().to_string();
    eventually("nothing is left", || !is_running(&project) && !is_running("agent.py"));
}
