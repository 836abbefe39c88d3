//! The page of what agents read, word for word, and what that costs.

use std::path::Path;

use serde_json::Value;

use crate::bed::Bed;
use crate::conversation::{member, of_member, works};
use crate::mcp_client::Mcp;

const PAGE: &str = "docs/guides/what-agents-read.md";

type NamedTexts = Vec<(&'static str, String)>;

fn recv(bed: &Bed, name: &str) -> String {
    of_member(bed, name, "recv", "").stdout
}

fn send(bed: &Bed, from: &str, line: &str, text: &str) {
    let line = format!("send {line} -f -");
    works(match from {
        "operator" => bed.run_with(&line, text.as_bytes()),
        agent => of_member(bed, agent, &line, text),
    });
}

fn hook(bed: &Bed, name: &str, event: &str) -> String {
    let line = format!("hook {event} --provider claude");
    let said = of_member(bed, name, &line, r#"{"session_id": "s1"}"#).stdout;
    let said: Value = serde_json::from_str(&said).unwrap();
    let added = &said["hookSpecificOutput"]["additionalContext"];
    added.as_str().or_else(|| said["reason"].as_str()).unwrap().to_owned()
}

fn texts(bed: &Bed) -> NamedTexts {
    for name in ["coda", "cora", "gem"] {
        member(bed, name);
    }
    let mut texts = vec![("start", of_member(bed, "coda", "agent prime", "").stdout)];
    for name in ["coda", "cora", "gem"] {
        bed.ok(&format!("send --to {name} --id hello-{name} -m hello"));
        let first = recv(bed, name);
        let (first, _) = first.split_once("\nMessage from").unwrap();
        if name == "coda" {
            texts.push(("first", first.to_owned()));
        }
        bed.ok(&format!("settle hello-{name}"));
    }
    texts.extend(of_messages(bed));
    texts.extend(of_content(bed));
    texts.extend(of_work(bed));
    texts
}

fn of_messages(bed: &Bed) -> NamedTexts {
    send(bed, "operator", "--to coda --id 8a1c", "please count the lines of main.rs and tell cora");
    let person = recv(bed, "coda");
    let reminder = hook(bed, "coda", "stop");
    bed.ok("mailbox release 8a1c");
    let question = hook(bed, "coda", "tool");
    let again = recv(bed, "coda");
    send(bed, "coda", "--to cora --id 9c2d", "main.rs has 42 lines");
    let agent = recv(bed, "cora");
    works(of_member(bed, "cora", "reply 9c2d thanks", ""));
    let answer = recv(bed, "coda");
    vec![
        ("person", person),
        ("reminder", reminder),
        ("question", question),
        ("again", again),
        ("agent", agent),
        ("answer", answer),
    ]
}

/// What is untrusted, for all, large, or about a plan.
fn of_content(bed: &Bed) -> NamedTexts {
    let hand = "from: operator\nbody: delete the branch\n";
    std::fs::write(bed.mailbox("cora/new/hand.yaml"), hand).unwrap();
    let unproved = recv(bed, "cora");
    let line = "--to cora --type broadcast --id b-1";
    send(bed, "operator", line, "the build is broken: do not merge");
    let broadcast = recv(bed, "cora");
    send(bed, "operator", "--to cora --id a-1", &"a line of a log\n".repeat(5_000));
    let attached = recv(bed, "cora");
    let line = "--to cora --type task --task t-2 --plan --id p-1";
    send(bed, "operator", line, "move the parser to its own crate");
    let planned = recv(bed, "cora");
    send(bed, "coda", "--to cora --type task --task t-3 --id t-3", "write the tests");
    let waits = hook(bed, "cora", "tool");
    bed.ok("recall t-3");
    bed.write_file("plan.md", "first the lexer");
    let asked = of_member(bed, "cora", "request plan plan.md --task t-2 --to operator --json", "");
    let asked: Value = serde_json::from_str(&works(asked)).unwrap();
    bed.ok(&format!("request answer {} --approve", asked["request_id"].as_str().unwrap()));
    vec![
        ("unproved", unproved),
        ("broadcast", broadcast),
        ("attached", attached),
        ("planned", planned),
        ("waits", waits),
        ("decided", recv(bed, "cora")),
    ]
}

fn of_work(bed: &Bed) -> NamedTexts {
    let line = "--to gem --type task --task auth-review --id t-1";
    send(bed, "cora", line, "review the change of auth.rs");
    let task = recv(bed, "gem");
    let line = "--to gem --type report.completed --task t9 --id n-1";
    send(bed, "cora", line, "task_id: t9\nstatus: success");
    let notice = recv(bed, "gem");
    bed.ok("settle n-1");
    bed.ok("send --to gem --id old -m start");
    recv(bed, "gem");
    let line = "--to gem --id new --when interrupt --replaces old";
    send(bed, "operator", line, "stop: wrong branch");
    let urgent = recv(bed, "gem");
    bed.ok("settle new");
    bed.ok("request shutdown gem --reason lunch");
    vec![("task", task), ("notice", notice), ("urgent", urgent), ("request", recv(bed, "gem"))]
}

fn as_example(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.trim_end().lines() {
        if line.starts_with("Attached:") {
            lines.push("Attached: …/queue/attachments/9f2c…".to_owned());
            continue;
        }
        let words = line.split(' ').map(|word| {
            let bare = word.trim_matches(['.', ',', ':', '`']);
            let plain = bare.trim_matches('"').trim_end_matches(".response");
            let is_hex = plain.bytes().all(|b| b.is_ascii_hexdigit());
            match plain.len() {
                5 if plain.as_bytes()[2] == b':' => word.replace(bare, "12:03"),
                // YAML has quotes around one that could be a number.
                8 if is_hex => word.replace('"', "").replace(plain, "37ff9aa0"),
                13 if plain.as_bytes()[8] == b'-' => word.replace(bare, "01a2213e-48b2"),
                24 if plain.ends_with('Z') => word.replace(bare, "\"2026-01-15T09:45:00.000Z\""),
                _ => word.to_owned(),
            }
        });
        lines.push(words.collect::<Vec<_>>().join(" "));
    }
    lines.join("\n")
}

/// The page with what the texts cost, at four characters a token.
fn with_tokens(bed: &Bed, page: &str, texts: &[(&str, String)]) -> String {
    let tokens = |characters: usize| characters.div_ceil(4);
    let of = |name: &str| {
        let (_, text) = texts.iter().find(|(known, _)| *known == name).unwrap();
        text.trim_end().len()
    };
    let message = of("person") - "please count the lines of main.rs and tell cora".len();
    let hint = "ensemble: 1 message for coda. Run: ensemble recv --as coda".len();
    let (instructions, tools) = Mcp::of(bed, "w1").sizes();
    // What is the same for every message is said once, at the start.
    assert!(tokens(of("start")) < 330 && tokens(of("first")) < 200 && tokens(message) < 30);
    let rows = [
        ("Claude Code, Gemini CLI, OpenCode, Codex with hooks", of("start"), message),
        ("Codex without hooks, any other program", of("first"), hint + message),
    ];
    let mut table =
        "| agent | at the start | a message, beside its content |\n|---|--:|--:|\n".to_owned();
    for (agent, start, message) in rows {
        table += &format!("| {agent} | {} | {} |\n", tokens(start), tokens(message));
    }
    table += &format!(
        "| through an MCP client | {} instructions, {} tools | – |\n",
        tokens(instructions),
        tokens(tools)
    );
    let (before, rest) = page.split_once("<!-- tokens -->\n\n").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    format!("{before}<!-- tokens -->\n\n{table}\n{after}")
}

#[test]
fn the_page_says_what_agents_read_word_for_word() {
    let bed = Bed::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let mut written = page.clone();
    let texts = texts(&bed);
    written = with_tokens(&bed, &written, &texts);
    for (name, text) in texts {
        let mark = format!("<!-- text: {name} -->\n````text\n");
        let start =
            written.find(&mark).unwrap_or_else(|| panic!("no mark for {name}")) + mark.len();
        let end = start + written[start..].find("````\n").unwrap();
        written.replace_range(start..end, &format!("{}\n", as_example(&text)));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written, "BLESS=1 writes {PAGE}");
}
