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
    pub(crate) fn shows_no_more(&self, text: &str) {
        let shown = || !self.text().contains(text);
        eventually(&format!("the screen shows `{text}` no more:\n{}", self.text()), shown);
    }

    fn press(&self, keys: &[&str]) {
        self.tmux.human(keys);
    }
}

struct Viewed {
    bed: Bed,
    screen: Screen,
}

impl Viewed {
    fn start(verb: &str, size: (u16, u16)) -> Self {
        let bed = troubled();
        let screen = Screen::start(&bed.project(), verb, size);
        Self { bed, screen }
    }
}

impl std::ops::Deref for Viewed {
    type Target = Screen;

    fn deref(&self) -> &Screen {
        &self.screen
    }
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
    let viewed = Viewed::start("top", (80, 24));
    viewed.shows("NEEDS YOU: 2");
    viewed.shows("w1 waits for conductor to decide on its plan");
    viewed.shows("task t-dead of w1 is a dead letter");
    viewed.shows("dead retry dead-1");
    let screen = viewed.text();
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let heading = screen.lines().next().unwrap();
    assert!(heading.ends_with("watcher not running"), "a command is whole or left out: {heading}");
    // A change is seen without a key.
    viewed.bed.send("news");
    viewed.shows("operator -> w1  news");

    viewed.shows(">!  w1 waits for conductor");
    viewed.press(&["C-x", "?"]);
    viewed.shows("run the command of the selected need");
    viewed.press(&["q", "x"]);
    viewed.shows("    the plan");
    viewed.press(&["y"]);
    viewed.shows("--approve --as conductor`? y/n");
    viewed.press(&["z"]);
    viewed.shows("enter look");
    assert!(viewed.bed.ok("request list --json").contains("\"pending\""));
    viewed.press(&["y"]);
    viewed.shows("? y/n");
    viewed.press(&["y"]);
    viewed.shows_no_more("to decide on");
    assert!(viewed.bed.ok("request list --json").contains("\"approved\""));
    viewed.shows(">!  task t-dead");

    viewed.press(&["x"]);
    viewed.shows("run `ensemble dead retry dead-1`? y/n");
    viewed.press(&["y"]);
    viewed.shows("nothing needs you");
    viewed.bed.ok("inbox w1 --json").has(["dead-1"]);
    viewed.press(&["q"]);
    viewed.shows("left 0 icanon");
}

#[test]
fn a_story_a_filter_and_a_message_are_keys_away() {
    let viewed = Viewed::start("", (200, 50));
    viewed.shows("NEEDS YOU: 2");
    viewed.press(&["Down", "Enter"]);
    viewed.shows("story of dead-1");
    viewed.shows(" -> w1, ");
    viewed.shows("a dead letter (`ensemble dead show dead-1`)");
    viewed.press(&["q"]);
    viewed.shows("enter look");
    // Once the request of a story is decided, no key there answers the request that is selected instead.
    viewed.bed.ok("request plan plan.md --task t2 --to conductor --as w1");
    viewed.shows("NEEDS YOU: 3");
    viewed.press(&["Home", "Enter"]);
    viewed.shows("story of ");
    let text = viewed.text();
    let (_, story) = text.split_once("story of ").unwrap();
    let (id, _) = story.split_once(' ').unwrap();
    viewed.bed.ok(&format!("request answer {id} --approve --as conductor"));
    viewed.shows("NEEDS YOU: 2");
    viewed.press(&["y"]);
    viewed.shows("enter look");
    viewed.press(&["/"]);
    viewed.press(&["-l", "t-dead"]);
    viewed.press(&["Enter"]);
    viewed.shows("filter: t-dead");
    viewed.shows_no_more("to decide on");
    // What is pasted is text: it quits nothing, and sends nothing.
    let pasted = viewed.tmux.dir.path().join("pasted");
    fs::write(&pasted, "there?\nq").unwrap();
    viewed.tmux.server.run(&["load-buffer", pasted.to_str().unwrap()]).unwrap();
    let paste = || viewed.tmux.server.run(&["paste-buffer", "-p", "-t", "%0"]).unwrap();
    paste();
    viewed.press(&["s"]);
    viewed.press(&["-l", "are you "]);
    paste();
    viewed.shows("to w1: are you there? q_");
    viewed.press(&["Enter"]);
    eventually("it is sent", || viewed.bed.run("recv --as w1").stdout.contains("are you there? q"));
    viewed.press(&["C-c"]);
    viewed.shows("left 0 icanon");
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
    let viewed = Viewed::start("top", (80, 24));
    viewed.shows("NEEDS YOU: 2");
    let pid = viewed.pid();
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    viewed.shows("left 0 icanon");
    assert!(!viewed.text().contains("NEEDS YOU"), "the screen of before is back");
    let screen = Screen::start(&viewed.bed.project(), "top", (80, 24));
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
    let viewed = Viewed::start("status --watch", (80, 24));
    viewed.shows("NEEDS YOU: 2");
    viewed.bed.ok("mailbox add later");
    viewed.bed.ok("send --to later --type task --task t2 --id m2 -m work");
    viewed.shows("later");
    let headings = |text: String| text.lines().filter(|line| line.contains("NEEDS YOU")).count();
    assert_eq!(headings(viewed.text()), 1, "{}", viewed.text());
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
    screen.shows("story of");
    screen.shows("operator -> w1  how many lines?");
    screen.shows("w1 -> operator  forty-two");
    // A mailbox that no agent reads, and the person's own one.
    screen.press(&["q", "Down"]);
    screen.shows(">  conductor      1 unread");
    screen.press(&["Enter"]);
    screen.shows("mailbox conductor: 1 message not read yet");
    screen.shows("operator -> conductor  look-here");
    screen.press(&["q", "End", "Enter"]);
    screen.shows("operator, the person who runs this team");
    screen.shows("Before that:");
}
