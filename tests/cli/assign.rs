//! Assignments to agents in a real tmux server: scripts that answer pings or do not, and receive
//! their mail at the n-th nudge or never.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, Ran, Running, SaidText as _, end, keys, objects, program};
use crate::tmux_support::{TestServer, bash_command, eventually};

/// Waits until the watcher of a project has reported; its first beat alone says only that it starts.
fn until_it_watches(bed: &Bed) {
    let status = bed.project().join(".ensemble/watch.json");
    let has_reported = |text: String| {
        serde_json::from_str::<Value>(&text).is_ok_and(|status| status["pid"].is_u64())
    };
    eventually("the watcher watches", || fs::read_to_string(&status).is_ok_and(has_reported));
}

/// An agent: `sh agent.sh PONG ACK`, where PONG is `file`, `touch`, `screen`, `busy` or `mute`, and
/// ACK is the number of the nudge at which it takes its mail.
const AGENT: &str = r#"
pong=$1 ack=$2 nudges=0
: >"$HERE/ready"
while IFS= read -r line; do
    printf '%s\n' "$line" >>"$HERE/received"
    case $line in
    "AGENT_TEAM_PING "*)
        set -- $line
        case $pong in
        file) "$ENSEMBLE" --queue "$QUEUE" agent pong "$2" "$3" >/dev/null ;;
        touch) : >"$QUEUE/../.ensemble/ready/$2@$3.pong" ;;
        screen) echo "* AGENT_TEAM_PONG $2 $3" ;;
        busy) # It answers once it can be seen to work.
            echo WORKING
            until tmux capture-pane -p -t "$TMUX_PANE" | grep -q WORKING; do :; done
            : >"$QUEUE/../.ensemble/ready/$2@$3.pong" ;;
        esac ;;
    *)
        nudges=$((nudges + 1))
        [ "$nudges" = "$ack" ] || continue
        for message in "$QUEUE"/mailbox/w1/new/*.yaml; do
            name=${message##*/}
            mv "$message" "$QUEUE/mailbox/w1/cur/${name%.yaml}@w1@1.yaml"
        done ;;
    esac
done
"#;
pub(crate) const NEVER: &str = "never";
/// Pongs and acks that come have time to, also on a machine that pauses for seconds.
const PATIENT: &str = "readiness: {wait: 120, retry: 1}\nladder: {phase: 6, ceiling: 0}\n";
/// For those that never come.
pub(crate) const HASTY: &str = "readiness: {wait: 1, retry: 0}\nladder: {phase: 1, ceiling: 0}\n";

/// A project whose `w1` runs in the first pane of a test server.
pub(crate) struct Team {
    pub(crate) bed: Bed,
    pub(crate) tmux: TestServer,
}

impl Team {
    pub(crate) fn new(config: &str, pong: &str, ack: &str) -> Self {
        let team = Self::with_pane(config, |dir, bed| agent_command(dir, bed, pong, ack));
        team.tmux.wait_for_reader();
        team.bind("shell");
        team
    }

    fn with_pane(config: &str, command: impl Fn(&Path, &Bed) -> String) -> Self {
        let bed = Bed::new();
        bed.configure(config);
        bed.write_file("task.md", "count the lines\n");
        let dir = tempfile::tempdir().unwrap();
        let command = command(dir.path(), &bed);
        let tmux = TestServer::start_in(dir, &command);
        Self { bed, tmux }
    }

    fn bind(&self, provider: &str) {
        let socket = self.tmux.server.socket().display().to_string();
        let bind =
            format!("mailbox bind w1 --pane %0 --provider {provider} --tmux-socket {socket}");
        // Where the agent does not run yet, it says so on stderr.
        self.bed.run(&bind).ends(0);
    }

    fn pongs(&self) -> PathBuf {
        self.bed.project().join(".ensemble/ready")
    }

    pub(crate) fn assign(&self) -> Ran {
        self.bed.run("assign w1 -f task.md --task t1 --json")
    }

    pub(crate) fn records(&self, kind: &str) -> Vec<Value> {
        let all = self.bed.json("log");
        all.into_iter().filter(|record| record["type"] == kind).collect()
    }

    /// The lines that the agent received besides pings.
    pub(crate) fn nudges(&self) -> usize {
        self.tmux.received().iter().filter(|line| !line.starts_with("AGENT_TEAM_PING")).count()
    }
}

fn agent_command(dir: &Path, bed: &Bed, pong: &str, ack: &str) -> String {
    let script = dir.join("agent.sh");
    fs::write(&script, AGENT).unwrap();
    format!(
        "exec env HERE='{}' QUEUE='{}' ENSEMBLE='{}' sh '{}' {pong} {ack}",
        dir.display(),
        bed.project().join("queue").display(),
        program().display(),
        script.display()
    )
}

#[track_caller]
pub(crate) fn object(ran: &Ran) -> Value {
    let mut all = objects(&ran.stdout);
    assert_eq!(all.len(), 1, "{ran:?}");
    all.remove(0)
}

#[test]
fn a_worker_that_answers_gets_its_task() {
    for pong in ["file", "screen"] {
        let team = Team::new(PATIENT, pong, "1");
        let done = team.assign();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{pong}: {done:?}");
        let object = object(&done);
        assert_eq!(keys(&object)[..5], ["id", "mailbox", "state", "attempt", "phase"]);
        assert_eq!(object["id"], "t1.1");
        assert_eq!((&object["state"], &object["phase"]), (&"acked".into(), &0.into()), "{pong}");
        assert_eq!(team.tmux.received()[0], "AGENT_TEAM_PING w1 1");
        assert_eq!(team.records("ready.pong").len(), 1);
        assert_eq!(team.records("worker_assign").len(), 1);
        assert_eq!(team.records("task_start")[0]["data"]["task_id"], "t1");
        assert!(team.bed.mailbox("w1/cur/t1.1@w1@1.yaml").exists());
        // Again: the attempt is under way, and the worker is asked again.
        assert_eq!(self::object(&team.assign())["id"], "t1.1");
    }
}

#[test]
fn a_silent_worker_is_assigned_nothing() {
    let team = Team::new(HASTY, "mute", NEVER);
    // Answers of an earlier time, as a file and on the screen.
    fs::create_dir_all(team.pongs()).unwrap();
    fs::write(team.pongs().join("w1@1.pong"), "").unwrap();
    team.tmux.human(&["-l", "AGENT_TEAM_PONG w1 1"]);
    team.tmux.human(&["Enter"]);
    eventually("the old pong stands there", || team.tmux.received().len() == 1);
    // A short wait for the ack cuts no ping short.
    let ran = team.bed.run("assign w1 -f task.md --task t1 --wait 1ms");
    let block = "ensemble: w1 is not ready: pinged 3 times, and no answer\n\
                 hint: `ensemble agent inspect w1` shows its screen\n\
                 [Assign Readiness Error]\n\
                 worker-id: w1\n\
                 attempt: 3\n\
                 error_type: no_pong_timeout\n\
                 window_inspected: true\n\
                 open_command_sent: false\n\
                 observation: shell is ready and sent no AGENT_TEAM_PONG; seen: AGENT_TEAM_PING w1 3\n\
                 action: assign_stopped\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (1, "", block));
    let pings = ["AGENT_TEAM_PING w1 1", "AGENT_TEAM_PING w1 2", "AGENT_TEAM_PING w1 3"];
    eventually("it has read the last ping", || team.tmux.received().len() == 1 + pings.len());
    assert_eq!(team.tmux.received()[1..], pings);
    assert_eq!(team.records("ready.retry").len(), 2);
    assert_eq!(team.records("ready.failed").len(), 1);
    assert_eq!(team.records("worker_assign").len(), 0);
    assert_eq!(fs::read_dir(team.bed.mailbox("w1/new")).unwrap().count(), 0);
    team.tmux.server.kill_server().unwrap();
    let said = team.bed.fails(1, "assign w1 -f task.md --task t1 --wait 1ms");
    said.begins("ensemble: w1 is not ready: it could not be pinged: ");
}

#[test]
fn a_late_worker_is_taken_up_to_its_phase() {
    std::thread::scope(|scope| {
        for phase in 1..=3_u8 {
            scope.spawn(move || {
                let team = Team::new(PATIENT, "touch", &format!("{}", phase + 1));
                let object = object(&team.assign());
                assert_eq!(object["phase"], phase, "{object}");
                let attempt = if phase == 3 { 2 } else { 1 };
                assert_eq!(object["attempt"], attempt, "a reset begins a new attempt: {object}");
                assert_eq!(object["id"], format!("t1.{attempt}"));
                let entered: Vec<_> = team.records("ladder.phase");
                assert_eq!(entered.len(), usize::from(phase));
                assert_eq!(team.nudges(), usize::from(phase) + 1);
                let taken_back = team.bed.mailbox("w1/dead/t1.1.yaml").exists();
                assert_eq!(taken_back, phase == 3);
            });
        }
    });
}

#[test]
fn an_untaken_task_is_reported_to_the_conductor_once() {
    let config = HASTY.replace("wait: 1", "wait: 120");
    let team = Team::new(&config, "touch", NEVER);
    let watcher = Running(team.bed.start("watch"));
    until_it_watches(&team.bed);
    team.assign().ends(1).says(["w1 has not taken t1", "queue/reports/escalation-t1.yaml"]);
    eventually("it is routed", || team.records("file.routed").len() == 1);
    drop(watcher);
    let told = team.bed.object("recv --as conductor");
    told.fits(json!({ "type": "report.escalation", "task_id": "t1" }));
    team.bed.fails(3, "recv --as conductor");
    assert_eq!(team.records("escalation").len(), 1);
    let rows = team.bed.json("log escalations");
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0].fits(json!({ "reason": "unanswered", "phase": 3, "attempt": 2, "message": "t1.2" }));
    assert!(team.bed.ok("log escalations").contains("t1"));
}

#[test]
fn one_controller_at_a_time() {
    let team = Team::new(PATIENT, "mute", NEVER);
    let _first = Running(team.bed.start("assign w1 -f task.md --task t1"));
    eventually("the first asks", || team.pongs().join("w1.ping").exists());
    for line in ["assign w1 -f task.md --task t2", "agent ping w1"] {
        team.bed.fails(75, line).has(["ensemble (pid "]);
    }
    // A pong of another attempt does not count, the right one does.
    team.bed.run("agent pong w1 2").says(["AGENT_TEAM_PING w1 1"]);
    eventually("it was heard", || team.records("ready.stray_pong").len() == 1);
    assert_eq!(team.records("worker_assign").len(), 0);
    team.bed.fails(1, "agent pong w1 1 --as lead").has(["the ping asks w1, and you are lead"]);
    team.bed.ok("agent pong w1 1");
    eventually("it is delivered", || team.records("worker_assign").len() == 1);
}

#[test]
fn a_program_that_is_not_open_is_opened() {
    let team = Team::with_pane(HASTY, |_, _| bash_command().to_owned());
    team.tmux.wait_for_line(crate::tmux_support::PROMPT);
    let command = agent_command(team.tmux.dir.path(), &team.bed, "touch", "1");
    let providers = serde_json::json!({ "fake": {
        "open": command, "programs": ["sh"], "nudge": [": mail for {mailbox}"],
        "composer": { "kind": "shell-line" }, "otherwise": "ready",
    }});
    // Asked again once it had time to start, and then with time to answer; the first time it has not.
    let config = HASTY.replace("retry: 0", "retry: 6");
    let config = config.replace("wait: 1", "wait: 6");
    team.bed.configure(&format!("{config}providers: {providers}\n"));
    team.bind("fake");
    let inspected = team.bed.object("agent inspect w1");
    assert_eq!(inspected["state"], "crashed");
    assert_eq!(inspected["would"]["open"]["allowed"], true);
    let ready = team.bed.object("agent ping w1");
    ready.fits(json!({ "ready": true, "attempt": 2 }));
    assert_eq!(team.records("ready.open")[0]["data"]["sent"], true);
    assert_eq!(team.records("ready.retry")[0]["data"]["error_type"], "workspace_not_open");
}

#[test]
fn a_pane_is_inspected_with_evidence_and_a_refused_nudge_names_its_reason() {
    let team = Team::new(PATIENT, "mute", NEVER);
    let seen = team.bed.object("agent inspect w1");
    assert_eq!(keys(&seen)[..4], ["pane", "socket", "agent", "provider"]);
    seen.fits(json!({ "state": "ready", "source": "screen" }));
    assert_eq!(seen["would"]["nudge"]["allowed"], true);
    let socket = team.tmux.server.socket().display().to_string();
    let line = format!("agent inspect %0 --provider claude --tmux-socket {socket}");
    let seen = team.bed.object(&line);
    seen.fits(json!({ "state": "crashed", "source": "process" }));
    assert_eq!(seen["would"]["nudge"]["reason"], "bare_shell");
    assert!(team.bed.ok(&line).contains("nudge     not now: bare_shell"));
    team.bed.fails(3, "agent inspect w2");
    assert_eq!(team.tmux.received().len(), 0, "nothing was typed");
    team.bed.fails(3, "agent nudge w1");
    team.bed.send("x");
    assert_eq!(team.bed.object("agent nudge w1")["sent"], true);
    eventually("it was read", || team.nudges() == 1);
    team.tmux.human(&["-l", "half a line"]);
    eventually("a draft", || team.tmux.screen("%0").last().is_some_and(|l| l == "half a line"));
    team.bed.fails(75, "agent nudge w1").has(["draft"]);
    assert_eq!(team.bed.fails(3, "agent nudge no-such-agent").lines().count(), 2);
}

#[test]
fn an_agent_without_a_pane_is_assigned_by_files() {
    let bed = Bed::new();
    bed.configure(PATIENT);
    bed.write_file("task.md", "x");
    let asking = bed.start("assign w1 -f task.md --task t1 --until settled --json");
    let asked = bed.project().join(".ensemble/ready/w1.ping");
    eventually("it is asked", || asked.exists());
    assert_eq!(fs::read_to_string(asked).unwrap(), "AGENT_TEAM_PING w1 1\n");
    bed.write_file(".ensemble/ready/w1@1.pong", "");
    eventually("it is there", || bed.mailbox("w1/new/t1.1.yaml").exists());
    let id = bed.object("recv --as w1")["id"].as_str().unwrap().to_owned();
    bed.ok(&format!("settle --as w1 {id}"));
    let done = end(asking);
    assert_eq!((done.code, &object(&done)["state"]), (0, &"settled".into()), "{done:?}");
    // The task was settled, so assigning it again is another attempt. Nothing receives it in time, and it stays.
    let asking = bed.start("assign w1 -f task.md --task t1 --wait 1 --json");
    let pong = bed.project().join(".ensemble/ready/w1.ping");
    eventually("it is asked", || pong.exists());
    bed.write_file(".ensemble/ready/w1@1.pong", "");
    let late = end(asking);
    assert_eq!((late.code, &object(&late)["id"]), (3, &"t1.2".into()), "{late:?}");
}

#[test]
fn a_task_that_is_settled_past_its_plan_is_not_reported_as_settled() {
    let bed = Bed::new();
    bed.configure(PATIENT);
    bed.ok("mailbox add lead");
    let asking = bed.start("assign w1 count --as lead --task t1 --plan --until settled --wait 60s");
    let asked = bed.project().join(".ensemble/ready/w1.ping");
    eventually("it is asked", || asked.exists());
    bed.write_file(".ensemble/ready/w1@1.pong", "");
    eventually("it is there", || bed.mailbox("w1/new/t1.1.yaml").exists());
    // A worker of nothing but `mv`, which reads no gates.
    let held = bed.mailbox("w1/cur/t1.1@w1@1.yaml");
    fs::rename(bed.mailbox("w1/new/t1.1.yaml"), &held).unwrap();
    fs::rename(&held, bed.mailbox("w1/done/t1.1.yaml")).unwrap();
    let done = end(asking);
    assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:?}");
    done.says(["w1 has settled t1, and lead demands a plan first"]);
    let record = bed.json("log --type plan.passed").remove(0);
    record["data"].fits(json!({ "task_id": "t1", "agent": "w1" }));
    let need = bed.json("status").pop().unwrap()["needs"][0].take();
    assert_eq!(need["text"], "w1 has settled task t1 without an approved plan");
    assert_eq!(bed.object("recv --as lead")["type"], "request.unplanned");
    let left = bed.json("status").pop().unwrap()["needs"].take();
    assert_eq!(left, Value::Array(Vec::new()), "its reviewer has read of it");
}

#[test]
fn roles_wait_for_what_was_sent_directly_and_say_so() {
    let bed = Bed::new();
    bed.configure("dispatch_patience: 5\n");
    let _watcher = Running(bed.start("watch"));
    until_it_watches(&bed);
    bed.ok("send --to w1 --type task --task t1 -m work");
    let role = |number: usize| {
        let watcher = bed.json("status").pop().unwrap();
        watcher["watcher"]["status"]["roles"][number].clone()
    };
    eventually("conductor waits", || role(1)["waits"] == true);
    assert!(role(1)["deadline_in_seconds"].as_u64().is_some_and(|left| left > 1700));
    let ended = || bed.json("log").iter().filter(|r| r["type"] == "role.patience_ended").count();
    eventually("dispatch was not told", || ended() == 1 && role(0)["patience_ended"] == true);
    bed.ok("send --to dispatch --type report.completed --task t1 -m done");
    eventually("it was told", || role(0)["patience_ended"] == false);
}
