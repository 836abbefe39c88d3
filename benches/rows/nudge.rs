//! Measures from a rename to the keystroke read by the program in the pane. Compares the real
//! watcher with raw inotify and one persistent control-mode client, and with common alternatives.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_project::panes::{self, PaneEntry};
use ensemble_tmux::tmux::TmuxServer;
use notify::Watcher as _;

use super::detect::each_rename;
use crate::support::latency::{self, Latency};
use crate::support::process::{Guard, Stamper, Stamps, end_with_parent, in_role, watcher};
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, Spread, go_on, micros, now_ns, place, size};

/// Slightly longer than the watcher's interval between two nudges to the same agent.
const BETWEEN_NUDGES: Duration = Duration::from_millis(1_050);
/// Time limit for a starting watcher to see its first file.
const START_PATIENCE: Duration = Duration::from_secs(1);
/// Condition under which the second limit types. It asks the watcher's questions: which pane,
/// whether a shell waits on an empty line, and whether the command waited in a hung server.
const CONDITION: &str = "#{==:#{pane_id} #{@bench_token} #{pane_dead} #{pane_in_mode} #{pane_input_off} \
    #{pane_synchronized} #{cursor_x} #{cursor_character}. #{m:*/#{pane_current_command}/*,/sh/bash/dash/zsh/} \
    #{e|<=:#{T:@bench_clock},99999999999},PANE token 0 0 0 0 0  . 1 1}";
/// As long as the line that the watcher types.
const LINE: &str = ": ensemble - 1 message for mail - run ensemble recv --as mail";

pub fn run() -> Outcome<()> {
    let home = place::on_disk()?;
    let tmux =
        Tmux { server: TmuxServer::new(home.path().join("tmux")), home: home.path().to_owned() };
    let queue = Queue::new(&tmux)?;
    let _watcher = watcher(&queue.home)?;
    let mut subjects =
        vec![bare(&tmux)?, guarded(&tmux)?, mail(&tmux, &queue)?, report(&tmux, &queue)?];
    match shell(&tmux) {
        Ok(subject) => subjects.push(subject),
        Err(why) => table::note(&format!("the shell loop is left out: {why}")),
    }
    subjects.push(spawning(&tmux)?);
    for subject in &mut subjects {
        subject.warm_up()?;
    }
    let rounds = size("ENSEMBLE_BENCH_NUDGES", 100);
    for (loaded, first) in [(false, 0), (true, rounds)] {
        let _busy = if loaded { latency::load()? } else { Vec::new() };
        let how = if loaded { "every processor busy" } else { "idle" };
        table::heading(&format!("rename -> line read by the program in the pane, {how}"));
        let samples = measure(&mut subjects, first..first + rounds)?;
        compare(&subjects, &samples);
        latency::heading("the same, late samples too");
        let all: Vec<Latency> = samples.iter().map(|samples| latencies(samples)).collect();
        for (subject, own) in subjects.iter().zip(&all) {
            latency::line(subject.name, own, &all[MESSAGE]);
        }
    }
    Ok(())
}

const MESSAGE: usize = 2;

/// Collects a row of samples for each subject, in turns. Each number is used once, since the
/// watcher ignores a repeated report.
fn measure(subjects: &mut [Subject<'_>], rounds: Range<usize>) -> Outcome<Vec<Vec<f64>>> {
    let mut spread = Spread::new();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    for round in rounds {
        let began = now_ns();
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            go_on()?;
            spread.pause(20_000, 60_000);
            samples.push(subject.sample(round)?);
        }
        let spent = Duration::from_nanos(now_ns() - began);
        std::thread::sleep(BETWEEN_NUDGES.saturating_sub(spent));
    }
    Ok(samples)
}

fn compare(subjects: &[Subject<'_>], samples: &[Vec<f64>]) {
    let pairs = |ours: usize, limit: usize| {
        let mut pairs = Pairs::default();
        for (a, b) in samples[ours].iter().zip(&samples[limit]) {
            pairs.push(vec![*a], vec![*b]);
        }
        pairs
    };
    table::pairs(subjects[MESSAGE].name, "us", &pairs(MESSAGE, 0), Goal::AtMost(1.8));
    table::pairs(subjects[3].name, "us", &pairs(3, 0), Goal::AtMost(2.2));
    table::note("share of tmux's own check of whether typing is safe:");
    table::pairs("the bare client, under a condition", "us", &pairs(1, 0), Goal::None);
    table::pairs("a message, against that", "us", &pairs(MESSAGE, 1), Goal::None);
    table::note(
        "below, common alternatives appear as `ours` and a report to the watcher as `limit`",
    );
    for (index, subject) in subjects.iter().enumerate().skip(4) {
        let goal = Goal::AtLeast(if subject.name.starts_with("inotifywait") { 10.0 } else { 5.0 });
        table::pairs(subject.name, "us", &pairs(index, 3), goal);
    }
}

/// Number of rounds, each with its own median.
fn latencies(samples: &[f64]) -> Latency {
    let mut all = Latency::default();
    for (number, sample) in samples.iter().enumerate() {
        all.push(number / 10, *sample);
    }
    all
}

/// A private server; dropping it ends the server and its panes.
struct Tmux {
    server: TmuxServer,
    home: PathBuf,
}

impl Tmux {
    /// A pane in which a program stamps each line it reads.
    fn pane(&self, name: &str) -> Outcome<(String, Stamps)> {
        let stamps = Stamps::new(&self.home, name)?;
        // The program stands for an agent that is a shell script, so it has a shell's name.
        let program = self.home.join("dash");
        if !program.exists() {
            symlink(std::env::current_exe()?, &program)?;
        }
        let role = crate::support::process::ROLE;
        let command = format!("exec {} {role} pane {}", program.display(), stamps.path().display());
        self.server.new_session(name, &command, 120, 30)?;
        stamps.next()?;
        let panes = self.server.run(&["list-panes", "-t", name, "-F", "#{pane_id}"])?;
        Ok((panes.into_iter().next().ok_or("no pane")?, stamps))
    }

    fn socket(&self) -> &Path {
        self.server.socket()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.server.kill_server();
    }
}

/// The queue that the watcher watches.
struct Queue {
    home: PathBuf,
    spool: Spool,
}

impl Queue {
    fn new(tmux: &Tmux) -> Outcome<Self> {
        let home = place::child(&tmux.home, "project")?;
        place::child(&home, ".ensemble/panes")?;
        // Applies only to messages the bench itself receives; the watcher runs with its defaults.
        let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
        let spool = Spool::create(&home.join("queue"), options)?;
        for mailbox in ["mail", "dispatch"] {
            spool.add_mailbox(&Name::new(mailbox)?, &Default::default())?;
        }
        Ok(Self { home, spool })
    }

    fn bind(&self, tmux: &Tmux, mailbox: &Name, pane: &str) -> Outcome<()> {
        let entry =
            PaneEntry::new(mailbox.clone(), mailbox.clone(), "shell", tmux.server.bind(pane)?);
        Ok(panes::write(&self.home.join(".ensemble/panes"), &entry)?)
    }

    /// Receives all waiting messages, as a notified agent does.
    fn drain(&self, mailbox: &Name) -> Outcome<()> {
        while let Some(delivery) = self.spool.receive(mailbox, mailbox)? {
            self.spool.settle(&delivery.lease)?;
        }
        Ok(())
    }
}

/// One path from a file to a keystroke.
struct Subject<'a> {
    name: &'static str,
    stamps: Stamps,
    /// Puts a file into place and returns the time at which the rename began.
    land: Box<dyn FnMut(usize) -> Outcome<u64> + 'a>,
    /// Removes the file to make room for the next one.
    after: Box<dyn FnMut() -> Outcome<()> + 'a>,
    _process: Option<Guard>,
}

impl Subject<'_> {
    fn sample(&mut self, number: usize) -> Outcome<f64> {
        let began = (self.land)(number)?;
        let (stamp, _) = self.stamps.next().map_err(|e| format!("{}: {e}", self.name))?;
        (self.after)()?;
        Ok(micros(began, stamp))
    }

    /// Runs once without measuring; a watcher that has just started may miss a few files.
    fn warm_up(&mut self) -> Outcome<()> {
        for number in 0..10 {
            (self.land)(1_000_000 + number)?;
            if self.stamps.next_within(START_PATIENCE).is_some() {
                (self.after)()?;
                std::thread::sleep(BETWEEN_NUDGES);
                return Ok(());
            }
        }
        Err(format!("{}: no line has reached the pane", self.name).into())
    }
}

/// Renames a file with this content from `tmp` into `dir`.
fn land(tmp: &Path, dir: &Path, name: &str, content: &[u8]) -> Outcome<u64> {
    let (from, to) = (tmp.join(name), dir.join(name));
    std::fs::write(&from, content)?;
    let began = now_ns();
    std::fs::rename(from, to)?;
    Ok(began)
}

/// A subject notified by files in its own directory.
fn by_files<'a>(
    tmux: &Tmux,
    name: &'static str,
    tag: &str,
    start: impl FnOnce(&Path, &str, &Path) -> Outcome<Guard>,
) -> Outcome<Subject<'a>> {
    let (pane, stamps) = tmux.pane(tag)?;
    let dir = place::child(&tmux.home, &format!("{tag}.dir"))?;
    let tmp = place::child(&tmux.home, "tmp")?;
    let ready = Stamps::new(&tmux.home, &format!("{tag}.ready"))?;
    let process = start(&dir, &pane, ready.path())?;
    // Warm-up runs show readiness for subjects that cannot report it.
    if tag != "shell" {
        ready.next()?;
    }
    Ok(Subject {
        name,
        stamps,
        land: Box::new(move |number| {
            land(&tmp, &dir, &format!("task-{number}-completed.yaml"), b"status: done\n")
        }),
        after: Box::new(|| Ok(())),
        _process: Some(process),
    })
}

fn bare<'a>(tmux: &Tmux) -> Outcome<Subject<'a>> {
    by_control_client(tmux, "raw inotify + control client", "bare", "")
}

fn guarded<'a>(tmux: &Tmux) -> Outcome<Subject<'a>> {
    tmux.server.run(&["set-option", "-g", "@bench_clock", "%s"])?;
    by_control_client(tmux, "the same, under a condition", "guarded", CONDITION)
}

fn by_control_client<'a>(
    tmux: &Tmux,
    name: &'static str,
    tag: &str,
    condition: &str,
) -> Outcome<Subject<'a>> {
    by_files(tmux, name, tag, |dir, pane, ready| {
        tmux.server.run(&["set-option", "-p", "-t", pane, "@bench_token", "token"])?;
        let condition = condition.replace("PANE", pane);
        let socket = tmux.socket().as_ref();
        in_role(
            "bare-pane-worker",
            &[dir.as_ref(), socket, pane.as_ref(), ready.as_os_str(), condition.as_ref()],
        )
    })
}

fn spawning<'a>(tmux: &Tmux) -> Outcome<Subject<'a>> {
    by_files(tmux, "notify + one tmux started", "spawning", |dir, pane, ready| {
        in_role(
            "spawning-pane-worker",
            &[dir.as_ref(), tmux.socket().as_ref(), pane.as_ref(), ready.as_os_str()],
        )
    })
}

/// A shell loop of `inotifywait` and tmux.
fn shell<'a>(tmux: &Tmux) -> Outcome<Subject<'a>> {
    let found = Command::new("inotifywait").arg("--help").stdout(Stdio::null()).status();
    found.map_err(|_| "inotifywait is missing (package inotify-tools)")?;
    by_files(tmux, "inotifywait loop + tmux started twice", "shell", |dir, pane, _| {
        let script = format!(
            "inotifywait -m -q -e moved_to --format %f {dir} | while read -r file; do \
             tmux -S {socket} send-keys -t {pane} -l '{LINE}'; \
             tmux -S {socket} send-keys -t {pane} Enter; done",
            dir = dir.display(),
            socket = tmux.socket().display(),
        );
        Guard::start_group(Command::new("sh").arg("-c").arg(script))
    })
}

fn mail<'a>(tmux: &Tmux, queue: &'a Queue) -> Outcome<Subject<'a>> {
    let (pane, stamps) = tmux.pane("mail")?;
    let mailbox = Name::new("mail")?;
    queue.bind(tmux, &mailbox, &pane)?;
    let (tmp, to) = (queue.home.join("queue/tmp"), mailbox.clone());
    let new = queue.home.join("queue/mailbox/mail/new");
    Ok(Subject {
        name: "a message renamed into a mailbox",
        stamps,
        land: Box::new(move |number| {
            let envelope = Envelope::new(to.clone(), format!("message {number}\n"));
            land(&tmp, &new, &format!("{}.yaml", envelope.id), &envelope.encode()?)
        }),
        after: Box::new(move || queue.drain(&mailbox)),
        _process: None,
    })
}

fn report<'a>(tmux: &Tmux, queue: &'a Queue) -> Outcome<Subject<'a>> {
    let (pane, stamps) = tmux.pane("dispatch")?;
    let mailbox = Name::new("dispatch")?;
    queue.bind(tmux, &mailbox, &pane)?;
    let (tmp, reports) = (queue.home.join("queue/tmp"), queue.home.join("queue/reports"));
    Ok(Subject {
        name: "a report renamed into reports/",
        stamps,
        land: Box::new(move |number| {
            let content = format!("task_id: task-{number}\nworker_id: worker-1\nstatus: success\n");
            land(&tmp, &reports, &format!("task-{number}-completed.yaml"), content.as_bytes())
        }),
        after: Box::new(move || queue.drain(&mailbox)),
        _process: None,
    })
}

pub fn pane_reader(stamps: &str) -> Outcome<()> {
    let stamps = Stamper::new(stamps)?;
    stamps.ready();
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    while input.read_line(&mut line)? > 0 {
        stamps.send(now_ns(), line.trim_end());
        line.clear();
    }
    Ok(())
}

/// The limits: raw inotify and one control-mode client, which types without checking the pane, or
/// under a condition if one is given.
pub fn bare_nudger(
    dir: &str,
    server: &str,
    pane: &str,
    stamps: &str,
    condition: &str,
) -> Outcome<()> {
    let mut client = Command::new("tmux")
        .args(["-S", server, "-C", "attach-session", "-f", "no-output,ignore-size"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = client.stdin.take().ok_or("no pipe")?;
    let mut output = BufReader::new(client.stdout.take().ok_or("no pipe")?);
    end_with_parent();
    // Older servers exit if a window opens while a client attaches (tmux#4980).
    let mut line = Vec::new();
    while !line.starts_with(b"%session-changed") {
        line.clear();
        if output.read_until(b'\n', &mut line)? == 0 {
            return Err("the control client has ended".into());
        }
    }
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    let stamps = Stamper::new(stamps)?;
    let mut command = format!("send-keys -t '{pane}' -l -- '{LINE}' ; send-keys -t '{pane}' Enter");
    if !condition.is_empty() {
        command = format!("if-shell -F -t '{pane}' '{condition}' {{ {command} }}");
    }
    command.push('\n');
    each_rename(
        dir,
        || stamps.ready(),
        |_, _| {
            // The reader of the line detects a server that is gone.
            let _ = input.write_all(command.as_bytes());
        },
    )
}

/// The usual design of similar tools: `notify`, a channel, and one tmux process for text and Enter.
pub fn spawning_nudger(dir: &str, server: &str, pane: &str, stamps: &str) -> Outcome<()> {
    end_with_parent();
    let (sender, events) = channel();
    let mut watcher = notify::recommended_watcher(sender)?;
    watcher.watch(Path::new(dir), notify::RecursiveMode::NonRecursive)?;
    Stamper::new(stamps)?.ready();
    for event in events {
        if event?.kind.is_modify() {
            let typing =
                ["send-keys", "-t", pane, "-l", "--", LINE, ";", "send-keys", "-t", pane, "Enter"];
            Command::new("tmux").args(["-S", server]).args(typing).status()?;
        }
    }
    Ok(())
}
