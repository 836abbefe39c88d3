use serde_json::json;

use super::*;
use crate::steps::tests::Bed;
use crate::steps::{ClaimOutcome, ClaimRequest, Completion};

fn take(store: &StepStore) -> ClaimedStep {
    match store.claim_step(&ClaimRequest::for_task("0-4-1")).unwrap() {
        ClaimOutcome::Handed(handed) => *handed,
        ClaimOutcome::Nothing(nothing) => panic!("{nothing}"),
    }
}

fn report(store: &StepStore, handed: &ClaimedStep, status: &str, summary: &str, context: &str) {
    let completion = Completion::from_json(&json!({
        "task_id": "0-4-1", "step_index": handed.key.step_index, "agent": handed.agent,
        "status": status, "summary": summary, "context_for_next_step": context,
    }));
    store.submit(&completion.unwrap(), &handed.agent, None).unwrap();
}

const PLAN: &str = "
task_id: 0-4-1
policy: tdd
constraints: [Use Rust 1.89]
resources: [{path: docs/api.md}]
steps:
  - agent: Tara
    phase: red
    goal: Write a failing test for login
    instructions: [Add one test, Run it and see it fail]
    files: [tests/login.rs]
  - agent: Devon
    phase: green
    goal: Make it pass
    files: [src/login.rs]
    context: [tests/login.rs]
";

#[test]
fn prompts_have_the_form_of_the_seed() {
    let Bed { home, store, .. } = Bed::new(&[PLAN]);
    std::fs::create_dir_all(home.path().join("docs")).unwrap();
    std::fs::write(home.path().join("docs/api.md"), "POST /login\n```\n").unwrap();
    let step = take(&store);
    let prompt = store.prompt(&step).unwrap();
    let expected = "\
ROLE: Tara
GOAL: Write a failing test for login
CONTEXT FILES:
- tests/login.rs: (there is no such file: create it if that is your task, otherwise report it in `blockers`)
- docs/api.md: (16 bytes, sha256 28e96afd347f)
````
POST /login
```
````

INSTRUCTIONS:
1. Add one test
2. Run it and see it fail

CONSTRAINTS:
- Use Rust 1.89
- Strict TDD, red: write a test that fails for the right reason; change no implementation.
- Change only these files: tests/login.rs.
- No placeholders: write complete code and text.

OUTPUT REQUIREMENT:
You must Call the Tool `submit_step_completion` with your JSON result. Do NOT output the JSON in text.
It is about task_id \"0-4-1\", step_index 1, agent \"Tara\". `status` is success, failure (state the error in `summary`) or blocked (state why in `blockers`).
Without that tool, pipe the same JSON into `ensemble step submit --epoch 1 -`.
";
    assert_eq!(prompt.text, expected, "{}", prompt.text);
    let how: Vec<FileDisplay> = prompt.shown.iter().map(|shown| shown.how).collect();
    assert_eq!(how, [FileDisplay::Missing, FileDisplay::Whole]);
}

#[test]
fn context_and_errors_reach_the_next_prompt() {
    let Bed { home: _home, store, .. } = Bed::new(&[PLAN]);
    report(&store, &take(&store), "success", "done", "The test is `login_fails`.");
    let step = take(&store);
    let text = store.prompt(&step).unwrap().text;
    let left = "CONTEXT FILES:\n- from step 1, by Tara: (its message to the next agent)\n```\nThe test \
                is `login_fails`.\n```\n- src/login.rs: ";
    assert!(text.contains(left), "{text}");
    report(&store, &step, "failure", "login_fails: 401 expected", "");
    let text = store.prompt(&take(&store)).unwrap().text;
    let fix = "INSTRUCTIONS:\n1. The last attempt failed with this error. Remove its cause first (this is \
               attempt 2 of 3); if a constraint below forbids that, report `blocked` and say what \
               must change:\n```\nlogin_fails: 401 expected\n```\n";
    assert!(text.contains(fix) && text.contains("login_fails`."), "{text}");
}

#[test]
fn large_binary_and_special_files_are_described() {
    let home = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let put = |path: &str, content: &[u8]| std::fs::write(home.path().join(path), content).unwrap();
    std::fs::create_dir(home.path().join("dir")).unwrap();
    put("large.rs", "fn f() {}\n    let x = 1;\n".repeat(2_000).as_bytes());
    put("binary", b"\xff\0\x01");
    put("small", b"text");
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), home.path().join("link")).unwrap();
    let (fifo, pipe) = (rustix::fs::FileType::Fifo, home.path().join("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o600.into(), 0).unwrap();
    let paths = ["large.rs", "binary", "small", "link", "dir", "pipe", "none"];
    let resources = paths.map(|path| (path.to_owned(), false));
    let (text, shown) = context::render(home.path(), &resources);
    let how: Vec<FileDisplay> = shown.iter().map(|shown| shown.how).collect();
    let how = serde_json::to_value(how).unwrap();
    let expected = ["skeleton", "binary", "whole", "no_file", "no_file", "no_file", "missing"];
    assert_eq!(how, json!(expected));
    assert!(!text.contains("secret"));
    assert!(text.contains("    1: fn f() {}\n       … 1 line\n    3: fn f() {}\n"), "{text}");
    assert!(text.len() < 6_000, "{}", text.len());
}

#[test]
fn total_size_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    let resources: Vec<(String, bool)> = (0..20).map(|n| (format!("f{n}"), false)).collect();
    for (path, _) in &resources {
        std::fs::write(home.path().join(path), "x".repeat(10_000)).unwrap();
    }
    let (text, shown) = context::render(home.path(), &resources);
    assert!(text.len() < 46 * 1024, "{}", text.len());
    assert_eq!(shown.iter().filter(|shown| shown.how == FileDisplay::Named).count(), 16);
    assert!(shown.iter().all(|shown| shown.sha256.is_some()), "also of those not shown");
}

#[test]
fn queues_may_have_their_own_template() {
    let plan = "{task_id: 0-4-1, template: '{{role}}: {{goal}} ({{attempt}}/{{attempts_max}}) \
                {{output_requirement}}', steps: [{agent: Tara, goal: '{{role}}'}]}";
    let Bed { home: _home, store, .. } = Bed::new(&[plan]);
    let text = store.prompt(&take(&store)).unwrap().text;
    assert!(text.starts_with("Tara: {{role}} (1/3) You must Call the Tool"), "{text}");
}
