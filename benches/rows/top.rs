//! Measures the live view of a large team: its processor time, and the time from a change to the screen.

use std::io::Read as _;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::EventLog;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_team::roster::Member;
use ensemble_tmux::session::Activity;

use crate::support::peak::UsedShare;
use crate::support::process::{PATIENCE, watcher};
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Summary, go_on, now_ns, place, rest, size};

const AGENTS: usize = 50;
/// Requests to a model in the transcript of each agent.
const REQUESTS: usize = 400;
/// Time limit for the view to finish its start.
const SETTLING: Duration = Duration::from_secs(8);
/// Pause between two changes. So each agent does something every 25 s.
const CHANGE_INTERVAL: Duration = Duration::from_millis(500);

pub fn run() -> Outcome<()> {
    let ensemble = place::beside_this_program()?.join("ensemble");
    if !ensemble.is_file() {
        return Err("build it first: cargo build --release --package ensemble-broker".into());
    }
    let seconds = size("ENSEMBLE_BENCH_TOP_SECONDS", 20);
    let home = place::on_disk()?;
    let team = Team::new(home.path())?;
    let _watcher = watcher(home.path())?;
    table::heading(&format!("live view of {AGENTS} agents, {seconds} s each"));
    for (columns, lines) in [(80, 24), (200, 50)] {
        let view = Screen::start(&ensemble, home.path(), (columns, lines))?;
        view.wait_until(|_| true)?;
        std::thread::sleep(SETTLING);
        let idle = view.cpu_during(|| rest(seconds))?;
        let mut delays = Vec::new();
        let busy = view.cpu_during(|| {
            let until = Instant::now() + Duration::from_secs(seconds as u64);
            for turn in 0.. {
                if Instant::now() >= until {
                    break;
                }
                go_on()?;
                std::thread::sleep(CHANGE_INTERVAL);
                let (at, waiting) = team.change(turn)?;
                delays.push((view.wait_until(|shown| shown == waiting)? - at) as f64 / 1e6);
            }
            Ok(())
        })?;
        let size = format!("{columns}x{lines}");
        table::value(&format!("{size}, nothing happens"), idle, "%", Goal::AtMost(1.0));
        table::value(&format!("{size}, 2 changes a second"), busy, "%", Goal::None);
        delays.sort_by(f64::total_cmp);
        let (all, slowest) = (Summary::of(&delays).ok_or("no change")?, delays[delays.len() - 1]);
        table::value(&format!("{size}, change to screen, median"), all.median, "ms", Goal::None);
        table::value(&format!("{size}, the slowest"), slowest, "ms", Goal::AtMost(200.0));
    }
    Ok(())
}

/// A team in which each agent holds a task and has a transcript. Mail waits for the first one alone: if it waited for
/// all, what needs a person would fill the screen after half a minute.
struct Team {
    project: Project,
    spool: Spool,
}

impl Team {
    fn new(home: &Path) -> Outcome<Self> {
        std::fs::write(home.join("ensemble.yaml"), "{}\n")?;
        Spool::create(&home.join("queue"), Default::default())?;
        let project = Project::discover(Some(&home.join("queue")))?;
        project.ensure_state()?;
        let spool = project.open_spool(Arc::new(EventLog::open(&project.logs())?))?;
        let team = Self { project, spool };
        for number in 0..AGENTS {
            team.add(home, &name(number)?)?;
        }
        Ok(team)
    }

    fn add(&self, home: &Path, agent: &Name) -> Outcome<()> {
        self.spool.add_mailbox(agent, &Default::default())?;
        let member = Member::new(agent.clone(), Name::new("worker")?, "claude", SystemClock.wall());
        self.project.roster().change(agent, |_| Ok(Some(member)))?;
        let transcript = home.join(format!("{agent}.jsonl"));
        let line = |number: usize| {
            let usage = r#"{"input_tokens":10,"output_tokens":20,"cache_read_input_tokens":3000}"#;
            format!(
                r#"{{"type":"assistant","timestamp":"2026-11-26T08:00:00.000Z","requestId":"r{number}","message":{{"id":"m{number}","model":"claude-opus-4-5","role":"assistant","content":[],"usage":{usage}}}}}"#
            )
        };
        let lines: Vec<String> = (0..REQUESTS).map(line).collect();
        std::fs::write(&transcript, lines.join("\n") + "\n")?;
        self.project.sessions().change(agent, |session| {
            "claude".clone_into(&mut session.provider);
            session.records = vec![transcript];
            // Mail that waits for an idle agent would need a person after a minute, and take its row from the table.
            session.activity = Activity::Working;
        })?;
        let tasks = if *agent == name(0)? { 3 } else { 1 };
        for task in 0..tasks {
            self.publish(agent, task)?;
        }
        self.spool.receive(agent, agent)?;
        Ok(())
    }

    fn publish(&self, agent: &Name, task: usize) -> Outcome<()> {
        let task = Envelope::new(agent.clone(), "work\n").with_task(format!("task-{agent}-{task}"));
        self.spool.publish(&task.with_kind(Name::new("task")?))?;
        Ok(())
    }

    /// The first agent settles its task, takes another, and two more arrive. Returns the time before the last of these,
    /// and how many messages wait for it then.
    fn change(&self, turn: usize) -> Outcome<(u64, u64)> {
        let agent = name(0)?;
        for observed in self.spool.observe(&agent)? {
            self.spool.settle(&observed.lease)?;
        }
        self.spool.receive(&agent, &agent)?;
        self.publish(&agent, turn + 3)?;
        let at = now_ns();
        self.publish(&agent, turn + 3_000_000)?;
        Ok((at, self.spool.waiting(&agent, u64::MAX)?))
    }
}

fn name(number: usize) -> Outcome<Name> {
    Ok(Name::new(format!("worker-{number:02}"))?)
}

struct Screen {
    child: Child,
    /// How many messages the view says that wait for the first agent, and the time at which it did.
    shown: Receiver<(u64, u64)>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Screen {
    fn start(ensemble: &Path, home: &Path, (columns, lines): (u16, u16)) -> Outcome<Self> {
        let (mut pty, inner) = pty_process::blocking::open()?;
        pty.resize(pty_process::Size::new(lines, columns))?;
        let command = pty_process::blocking::Command::new(ensemble)
            .arg("--queue")
            .arg(home.join("queue"))
            .arg("top")
            .env("XDG_CONFIG_HOME", home)
            .env("TERM", "xterm-256color")
            .env_remove("ENSEMBLE_AGENT_ID");
        let child = command.spawn(inner)?;
        let (rows, width) = (lines.try_into()?, columns.try_into()?);
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut parser = vt100::Parser::new(rows, width, 0);
            let (mut buffer, mut last) = ([0; 64 * 1024], None);
            while let Ok(count @ 1..) = pty.read(&mut buffer) {
                let at = now_ns();
                parser.process(&buffer[..count]);
                let now = waiting_in(&parser.screen().contents());
                if now != last && now.is_some_and(|now| sender.send((at, now)).is_err()) {
                    break;
                }
                last = now;
            }
        });
        Ok(Self { child, shown })
    }

    /// The time at which the view shows such a number of waiting messages.
    fn wait_until(&self, is_it: impl Fn(u64) -> bool) -> Outcome<u64> {
        loop {
            match self.shown.recv_timeout(PATIENCE) {
                Ok((at, shown)) if is_it(shown) => return Ok(at),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err("the view shows no change".into()),
                Err(RecvTimeoutError::Disconnected) => return Err("the view has ended".into()),
            }
        }
    }

    fn cpu_during(&self, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
        Ok(UsedShare::during(self.child.id(), work)?.cpu_percent)
    }
}

/// The number of unread messages that the row of the first agent shows.
fn waiting_in(screen: &str) -> Option<u64> {
    // What needs a person names it, too.
    let row = screen.lines().find(|line| line.contains("worker-00") && line.contains(" unread"))?;
    row.split(" unread").next()?.rsplit(' ').next()?.parse().ok()
}
