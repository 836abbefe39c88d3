//! The live view in a real tmux, by what is on the screen.

use std::fs;
use std::path::Path;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use rustix::process::{Pid, Signal, kill_process};

use crate::bed::{Bed, SaidText as _, program, ran, words};
use crate::tmux_support::{TestServer, eventually};

/// A terminal of this size in which the view of a project runs. After it, the shell says how it has ended.
pub(crate) struct Screen {
    tmux: TestServer,
}

impl Screen {
    pub(crate) fn start(project: &Path, verb: &str, (columns, lines): (u16, u16)) -> Self {
        let mut tmux = TestServer::around(tempfile::tempdir().unwrap());
        let script = format!(
            "export HOME={project}; cd {project}; sh -c 'echo $$ > {pid}; exec {program} {verb}'; \
             echo \"left $? $(stty -a | grep -o -e '[-]*icanon')\"; exec sleep 100000",
            project = project.display(),
            pid = tmux.dir.path().join("pid").display(),
            program = program().display(),
        );
        let file = tmux.dir.path().join("view.sh");
        fs::write(&file, script).unwrap();
        let command = format!("exec sh {}", file.display());
        tmux.server.new_session("main", &command, columns, lines).unwrap();
        tmux.adopt();
        Self { tmux }
    }

    fn pid(&self) -> String {
        fs::read_to_string(self.tmux.dir.path().join("pid")).unwrap().trim().to_owned()
    }

    pub(crate) fn listen_for_bells(&self) {
        let note = format!("run-shell 'touch {}'", self.bell().display());
        let mut tmux = std::process::Command::new("tmux");
        tmux.arg("-S").arg(self.tmux.server.socket()).args(["set-hook", "-g", "alert-bell", &note]);
        assert!(tmux.status().unwrap().success());
    }

    pub(crate) fn has_rung(&self) -> bool {
        self.bell().exists()
    }

    fn bell(&self) -> std::path::PathBuf {
        self.tmux.dir.path().join("bell")
    }

    pub(crate) fn text(&self) -> String {
        self.tmux.screen("%0").join("\n")
    }

    pub(crate) fn coloured(&self) -> String {
        let mut tmux = std::process::Command::new("tmux");
        tmux.arg("-S").arg(self.tmux.server.socket()).args(words("capture-pane -e -p -t %0"));
        String::from_utf8(tmux.output().unwrap().stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        let shown = || self.text().contains(text);
        eventually(&format!("the screen shows `{text}`:\n{}", self.text()), shown);
    }

    #[track_caller]
    pub(crate) fn shows_all<const N: usize>(&self, texts: [&str; N]) {
        for text in texts {
            self.shows(text);
        }
    }

    #[track_caller]
    pub(crate) fn shows_no_more(&self, text: &str) {
        let shown = || !self.text().contains(text);
        eventually(&format!("the screen shows `{text}` no more:\n{}", self.text()), shown);
    }

    fn press(&self, keys: &[&str]) {
        self.tmux.human(keys);
    }
}

/// A project with troubles, and its view.
fn viewed(verb: &str, size: (u16, u16)) -> (Bed, Screen) {
    let bed = troubled();
    let screen = Screen::start(&bed.project(), verb, size);
    (bed, screen)
}

fn troubled() -> Bed {
    let bed = Bed::new();
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    let spool = Spool::open(&bed.project().join("queue"), options).unwrap();
    let (w1, id) = (Name::new("w1").unwrap(), MessageId::new("dead-1").unwrap());
    let task = Envelope::new(w1.clone(), "work\n").with_task("t-dead").with_id(id.clone());
    spool.publish(&task.with_kind(Name::new("task").unwrap())).unwrap();
    spool.dead_letter_waiting(&w1, &id, "after 5 attempts").unwrap();
    bed.write_file("plan.md", "the plan\n");
    bed.ok("request plan plan.md --task t1 --to conductor --as w1");
    bed
}

#[test]
fn what_needs_a_person_is_seen_at_once_and_helped_by_keys() {
    let (bed, screen) = viewed("top", (80, 24));
    screen.shows_all(["NEEDS YOU: 2", "w1 waits for conductor to decide on its plan"]);
    screen.shows_all(["task t-dead of w1 is a dead letter", "dead retry dead-1"]);
    let text = screen.text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let heading = text.lines().next().unwrap();
    assert!(heading.ends_with("watcher not running"), "a command is whole or left out: {heading}");
    // A change is seen without a key.
    bed.send("news");
    screen.shows("operator -> w1  news");

    screen.shows(">!  w1 waits for conductor");
    screen.press(&["C-x", "?"]);
    screen.shows("run the command of the selected need");
    screen.press(&["q", "x"]);
    screen.shows("    the plan");
    screen.press(&["y"]);
    screen.shows("--approve --as conductor`? y/n");
    screen.press(&["z"]);
    screen.shows("enter look");
    assert!(bed.ok("request list --json").contains("\"pending\""));
    screen.press(&["y"]);
    screen.shows("? y/n");
    screen.press(&["y"]);
    screen.shows_no_more("to decide on");
    assert!(bed.ok("request list --json").contains("\"approved\""));
    screen.shows(">!  task t-dead");

    screen.press(&["x"]);
    screen.shows("run `ensemble dead retry dead-1`? y/n");
    screen.press(&["y"]);
    screen.shows("nothing needs you");
    bed.ok("inbox w1 --json").has(["dead-1"]);
    screen.press(&["q"]);
    screen.shows("left 0 icanon");
}

#[test]
fn a_story_a_filter_and_a_message_are_keys_away() {
    let (bed, screen) = viewed("", (200, 50));
    screen.shows("NEEDS YOU: 2");
    screen.press(&["Down", "Enter"]);
    screen.shows_all(["story of dead-1", " -> w1, "]);
    screen.shows("a dead letter (`ensemble dead show dead-1`)");
    screen.press(&["q"]);
    screen.shows("enter look");
    // Once the request of a story is decided, no key there answers the request that is selected instead.
    bed.ok("request plan plan.md --task t2 --to conductor --as w1");
    screen.shows("NEEDS YOU: 3");
    screen.press(&["Home", "Enter"]);
    screen.shows("story of ");
    let text = screen.text();
    let (_, story) = text.split_once("story of ").unwrap();
    let (id, _) = story.split_once(' ').unwrap();
    bed.ok(&format!("request answer {id} --approve --as conductor"));
    screen.shows("NEEDS YOU: 2");
    screen.press(&["y"]);
    screen.shows("enter look");
    screen.press(&["/"]);
    screen.press(&["-l", "t-dead"]);
    screen.press(&["Enter"]);
    screen.shows("filter: t-dead");
    screen.shows_no_more("to decide on");
    // What is pasted is text: it quits nothing, and sends nothing.
    let pasted = screen.tmux.dir.path().join("pasted");
    fs::write(&pasted, "there?\nq").unwrap();
    screen.tmux.server.run(&["load-buffer", pasted.to_str().unwrap()]).unwrap();
    let paste = || screen.tmux.server.run(&["paste-buffer", "-p", "-t", "%0"]).unwrap();
    paste();
    screen.press(&["s"]);
    screen.press(&["-l", "are you "]);
    paste();
    screen.shows("to w1: are you there? q_");
    screen.press(&["Enter"]);
    eventually("it is sent", || bed.run("recv --as w1").stdout.contains("are you there? q"));
    screen.press(&["C-c"]);
    screen.shows("left 0 icanon");
}

#[test]
fn a_need_that_no_answer_decides_is_not_answered_by_a_key() {
    let bed = Bed::new();
    let body = "task_id: t1\nsettled_by: w1\n";
    let notice = ["send", "--to", "conductor", "--id", "t1.unplanned", "-m", body];
    assert_eq!(ran(bed.command(&notice).output().unwrap()).code, 0);
    let screen = Screen::start(&bed.project(), "top", (80, 24));
    screen.shows(">!  w1 has settled task t1");
    screen.press(&["y"]);
    screen.shows("nothing to answer");
    // What a key runs is for the queue that is shown, wherever the view was started.
    screen.press(&["a"]);
    screen.shows("`ensemble --queue");
    // Nor does that key nudge its agent.
    screen.press(&["n"]);
    screen.shows("nothing to answer");
    // The last word of a long text is seen.
    screen.press(&["s"]);
    screen.press(&["-l", &"word ".repeat(20)]);
    screen.press(&["-l", "end"]);
    screen.shows("word end_");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was_and_a_view_ends_with_its_terminal() {
    let (bed, screen) = viewed("top", (80, 24));
    screen.shows("NEEDS YOU: 2");
    let pid = screen.pid();
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    screen.shows("left 0 icanon");
    assert!(!screen.text().contains("NEEDS YOU"), "the screen of before is back");
    let screen = Screen::start(&bed.project(), "top", (80, 24));
    screen.shows("NEEDS YOU: 2");
    let pid = screen.pid();
    screen.tmux.server.run(&["kill-server"]).ok();
    let process = format!("/proc/{pid}");
    eventually("the process has ended", || !Path::new(&process).exists());
}

#[test]
fn a_pipe_gets_no_live_view() {
    let bed = Bed::new();
    bed.fails(2, "top").has(["needs a terminal", "`ensemble status`"]);
    assert_eq!(bed.run("").code, 2, "without a terminal, the help is shown");
}

#[test]
fn a_watched_status_shows_each_change_in_the_same_place() {
    let (bed, screen) = viewed("status --watch", (80, 24));
    screen.shows("NEEDS YOU: 2");
    bed.ok("mailbox add later");
    bed.ok("send --to later --type task --task t2 --id m2 -m work");
    screen.shows("later");
    let headings = |text: String| text.lines().filter(|line| line.contains("NEEDS YOU")).count();
    assert_eq!(headings(screen.text()), 1, "{}", screen.text());
}

#[test]
fn a_thread_and_the_last_messages_of_a_mailbox_are_opened_from_their_lines() {
    let bed = Bed::new();
    let asked = bed.send("how many lines?");
    bed.ok("recv --as w1");
    bed.ok(&format!("reply {asked} forty-two --as w1"));
    bed.ok("send --to conductor -m look-here");
    let screen = Screen::start(&bed.project(), "top", (80, 24));
    screen.shows(">!  w1 answered you");
    screen.press(&["Enter"]);
    screen.shows_all(["story of", "operator -> w1  how many lines?", "w1 -> operator  forty-two"]);
    // A mailbox that no agent reads, and the person's own one.
    screen.press(&["q", "Down"]);
    screen.shows(">  conductor      1 unread");
    screen.press(&["Enter"]);
    screen.shows("mailbox conductor: 1 message not read yet");
    screen.shows("operator -> conductor  look-here");
    screen.press(&["q", "End", "Enter"]);
    screen.shows_all(["operator, the person who runs this team", "Before that:"]);
}
