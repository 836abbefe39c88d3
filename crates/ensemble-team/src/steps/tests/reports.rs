//! Reports that are refused, each mistake with what to write.

use super::*;

over_databases![failure_without_a_reason_is_refused_and_nothing_changes];

fn failure_without_a_reason_is_refused_and_nothing_changes() {
    let bed = Bed::new(&[THREE]);
    let step = bed.take("Tara").unwrap();
    let silent = Completion::new(step.key.clone(), step.agent.clone(), CompletionStatus::Failure);
    let error = bed.store.submit(&silent, &step.agent, None).unwrap_err().to_string();
    assert!(error.contains("`failure` needs a reason: write in `summary`"), "{error}");
    assert_eq!(bed.status(&step), "IN_PROGRESS");
    bed.submit(&step, "failure").unwrap();
}

#[test]
fn invalid_reports_list_all_mistakes() {
    let parse = |value| Completion::from_json(&value).unwrap_err().to_string();
    let error =
        parse(json!({ "step_index": 1.5, "agent": "a b", "status": "later", "artifacts": 7 }));
    for field in [
        "task_id: is missing",
        "1.5 is not a step",
        "agent: ",
        "`later` is unknown",
        "artifacts: is a number",
    ] {
        assert!(error.contains(field), "{error}");
    }
    assert!(parse(json!([])).contains("pass one JSON object"));
    for none in [" ", "None"] {
        let blocked = json!({ "task_id": "t", "step_index": 1.0, "agent": "A", "status": "blocked", "blockers": [none] });
        assert!(parse(blocked).contains("needs a reason"), "{none}");
    }
    let failure = json!({ "task_id": "t", "step_index": 1, "agent": "A", "status": "failure", "summary": " " });
    assert!(parse(failure).contains("summary: `failure` needs a reason: write in `summary`"));
    let unknown = json!({ "task_id": "t", "step_index": 1, "agent": "A", "status": "success",
        "artefacts": [], "contextForStep": "x", "bogus": 1, "a\nb": null });
    let error = parse(unknown);
    for part in [
        "artefacts: is not a member of submit_step_completion: write `artifacts`",
        "contextForStep: is not a member of submit_step_completion: leave it out",
        "bogus: is not a member of submit_step_completion: leave it out; the members are task_id, ",
        "a\\nb: is not a member",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    for index in [json!(-1), json!("one"), json!(1e300), json!(null)] {
        let report =
            json!({ "task_id": "t", "step_index": index, "agent": "A", "status": "success" });
        let error = parse(report);
        assert!(error.contains("step_index: "), "{error}");
    }
}

#[test]
fn reports_are_read_as_models_write_them() {
    let usual = json!({ "task_id": "7 ", "step_index": 1, "agent": "A", "status": "failure",
        "artifacts": ["src/a.rs", "b.rs"], "summary": "no key", "blockers": ["a key, a host"] });
    let written = json!({ "taskId": 7, "step-index": "1", "Agent": "`@A`\n", "result": "Failed",
        "artifacts": "src/a.rs, b.rs", "summary": "no key", "blockers": "a key, a host", "context_for_next_step": "N/A" });
    let read = |value| Completion::from_json(&value).unwrap();
    assert_eq!(read(written), read(usual));
    let twice = json!({ "task_id": "7", "taskId": "8", "step_index": 1, "agent": "A", "status": "success" });
    let error = Completion::from_json(&twice).unwrap_err().to_string();
    assert!(error.contains("taskId: is not a member"), "{error}");
}
