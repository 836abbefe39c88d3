//! The command finds out the caller's identity and does not believe a claim.

use serde_json::json;

use super::Team;
use crate::bed::{JsonMembers as _, SaidText as _};

#[test]
fn another_name_is_refused_and_recorded_and_a_member_is_who_it_is() {
    let team = Team::new();
    team.up();
    let as_other = team.order("worker-1", "$E send --as worker-2 --to conductor -m done");
    assert_eq!((as_other.code, as_other.stdout.as_str()), (1, ""), "{as_other:?}");
    as_other.says(["this is worker-1"]);
    // The variable is a claim like the flag; without the pass, the pane identifies it correctly.
    let by_variable = team.order(
        "worker-1",
        "env -u ENSEMBLE_AGENT_PASS ENSEMBLE_AGENT_ID=conductor $E recv --mailbox conductor",
    );
    by_variable.ends(1);
    let forged = team.order(
        "worker-1",
        "ENSEMBLE_AGENT_PASS=00000000000000000000000000000000 $E send --to conductor -m x",
    );
    forged.ends(1).says(["belongs to no agent"]);
    // Another agent's pass in one's own pane.
    let pass = team.order("worker-2", "echo $ENSEMBLE_AGENT_PASS").stdout;
    let stolen = format!("ENSEMBLE_AGENT_PASS={} $E send --to conductor -m x", pass.trim());
    team.order("worker-1", &stolen).ends(1).says(["with the pass of worker-2"]);
    let refused = team.records("identity.refused");
    let why: Vec<&str> = refused.iter().map(|r| r["why"].as_str().unwrap()).collect();
    assert_eq!(why, ["mismatch", "mismatch", "unknown_pass", "contradiction"]);
    refused[0].fits(json!({ "claimed": "worker-2", "actual": "worker-1", "verb": "send" }));
    assert_eq!(team.member("conductor")["unread"], 0);
    team.bed.ok("send --as operator --to worker-1 --id first -m work");
    // By its pass.
    let who = team.order("worker-1", "$E agent whoami --json");
    who.shows([r#""agent":"worker-1","known_by":"pass""#]);
    // Without the pass, by its pane, even from a deep descendant and without its name.
    let bare = "env -u ENSEMBLE_AGENT_PASS -u ENSEMBLE_AGENT_ID -u LIZA_AGENT_ID";
    let deep = format!("{bare} sh -c 'sh -c \"\\$E agent whoami --json; true\"; true'");
    team.order("worker-1", &deep).shows([r#""agent":"worker-1","known_by":"process_tree""#]);
    // From a sandbox with its own PID namespace, which hides its ancestors: by the pane it was started in.
    let sandbox = "unshare --user --map-root-user --pid --fork --mount-proc";
    if team.order("worker-1", &format!("{sandbox} true")).code == 0 {
        let who = team.order("worker-1", &format!("{bare} {sandbox} $E agent whoami --json"));
        who.shows([r#""agent":"worker-1","known_by":"hidden_pane""#]);
    } else {
        println!("skipped: this machine allows no process namespace");
    }
    // In its own name without `--as`.
    team.order("worker-1", &format!("{bare} $E recv --json")).shows([r#""holder":"worker-1""#]);
    assert_eq!(team.order("worker-1", "$E settle first").code, 0);
    team.order("worker-1", "$E send --to worker-2 --id from-1 -m hello").ends(0);
    let envelope = std::fs::read_to_string(team.bed.mailbox("worker-2/new/from-1.yaml")).unwrap();
    envelope.has(["from: worker-1\n"]);
}

#[test]
fn outsiders_use_names_of_their_own() {
    let team = Team::new();
    team.up();
    let refused = team.bed.fails(1, "recv --as worker-1");
    refused.has(["`worker-1` is an agent of the team"]);
    assert!(refused.contains("--as operator"), "it says what to do: {refused}");
    team.bed.ok("send --as operator --to worker-1 -m hello");
    team.bed.ok("send --to worker-1 -m hello");
    team.bed.ok("mailbox add bound");
    assert_eq!(team.bed.run("recv --as bound").code, 3);
    assert_eq!(team.records("identity.refused").len(), 1);
    team.bed.fails(1, "--as worker-1 mcp").has(["`ensemble admin mcp install --provider claude`"]);
    // Unless that is allowed.
    team.bed.add_config("identity: {outsiders: allow}\n");
    team.bed.ok("recv --as worker-1");
}

#[test]
fn what_is_left_of_an_earlier_generation_is_refused() {
    let team = Team::with(&["worker-1"], "");
    let first = team.up();
    let old = team.order("worker-1", "echo $ENSEMBLE_AGENT_PASS").stdout.trim().to_owned();
    let asks = format!("ENSEMBLE_AGENT_PASS={old} ENSEMBLE_AGENT_ID=worker-1 $E agent whoami");
    assert_eq!(team.shell(&asks).code, 0, "it is its own pass, wherever it runs");
    super::kill(u32::try_from(first[1]["pid"].as_u64().unwrap()).unwrap());
    crate::tmux_support::eventually("the pane is dead", || team.pane("worker-1").dead);
    team.up();
    team.shell(&asks).ends(1).says(["earlier run"]);
    // A pass for the team of another queue is none of this one's business.
    let elsewhere = format!(
        "ENSEMBLE_QUEUE=/somewhere/else ENSEMBLE_AGENT_PASS={old} $E --queue queue agent whoami --as guest"
    );
    assert_eq!(team.shell(&elsewhere).code, 0);
}
