//! The live view: what needs a person, the agents, and the last events, on the whole terminal.
//!
//! ```text
//! a file changed, or REFRESH_MAX is over    gather the overview, at most every REFRESH_MIN    draw
//! a second is over                          ages grow                                         draw
//! a key                                     `view` decides what it means                      draw, or run a verb
//! the end, a signal, a panic                the terminal is as it was
//! the terminal is gone                      the process ends
//! ```
//!
//! It only reads. The keys that change something run a verb of this program, after a question. A look costs some
//! milliseconds; looks are as far apart as [`PAUSE_PER_COST`] times the last one, so that a busy team costs little.

mod draw;
mod spent;
mod view;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{self, Record};
use ensemble_core::message::Name;
use ensemble_core::watch::Waiter;
use ensemble_team::usage::Spent;
use ensemble_watch::overview::{Evidence, Overview};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::commands::{UsageReader, story_lines};
use crate::context::Context;
use crate::exit::{Failure, Outcome, silence};
use crate::overview;
use crate::own_program::own_program;
use crate::queue::Queue;
use spent::SpentByAgent;
use view::{Action, View};

/// How long a key or a change may wait to be seen.
const POLL: Duration = Duration::from_millis(50);
/// The least time between two looks.
const REFRESH_MIN: Duration = Duration::from_millis(100);
/// The longest time between two looks: what lies on servers changes without a file.
const REFRESH_MAX: Duration = Duration::from_secs(5);
/// How long a change waits for others that come with it.
const SETTLE: Duration = Duration::from_millis(80);
/// How often ages are shown anew.
const TICK: Duration = Duration::from_secs(1);
/// Pause after a look, as a multiple of its cost.
const PAUSE_PER_COST: u32 = 20;
/// How much of the end of the log is read for the last events, in bytes.
const EVENTS_BYTES_MAX: u64 = 64 * 1024;

/// All that is drawn.
struct Scene {
    overview: Overview,
    project: String,
    /// The last events, oldest first.
    events: Vec<Record>,
    /// What each agent has used.
    spent: BTreeMap<Name, Spent>,
}

/// Shows the view until a person leaves it.
pub(crate) fn run(context: &Context) -> Outcome {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage("the live view needs a terminal")
            .with_hint("`ensemble status` prints the same once"));
    }
    // A failure is said on the ordinary screen.
    let queue = overview::open(context)?;
    let mut scene = gather(context, &queue)?;
    overview::note_look(context);
    end_on_signals()?;
    let changed = watch_files(context)?;
    let reader = UsageReader::new(context.project()?)?;
    let spent = SpentByAgent::follow(reader, Arc::clone(&changed));
    scene.spent = spent.get();
    silence(true);
    let mut terminal = ratatui::try_init()?;
    let result =
        Live { context, queue, scene, view: View::default(), changed, spent }.run(&mut terminal);
    ratatui::try_restore()?;
    silence(false);
    result
}

/// Ends the process on a signal, whatever it does: it may wait for a terminal that is gone.
fn end_on_signals() -> Outcome {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = ratatui::try_restore();
            std::process::exit(0);
        }
    });
    Ok(())
}

fn gather(context: &Context, queue: &Queue) -> Outcome<Scene> {
    let overview = overview::look(context, queue, Evidence::Watcher)?;
    let project = context.project()?;
    let root = project.root();
    let name = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
    let events = event_log::recent(&project.logs(), EVENTS_BYTES_MAX)?;
    Ok(Scene { overview, project: name, events, spent: BTreeMap::new() })
}

/// A flag that is set when a file of the project has changed.
fn watch_files(context: &Context) -> Outcome<Arc<AtomicBool>> {
    let places = overview::places(context.project()?);
    let changed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&changed);
    std::thread::spawn(move || {
        let waiter = Waiter::for_logs(&places);
        loop {
            let began = Instant::now();
            waiter.wait(REFRESH_MAX);
            // After all of that time, nothing has happened.
            if began.elapsed() < REFRESH_MAX {
                flag.store(true, Ordering::Relaxed);
            }
        }
    });
    Ok(changed)
}

struct Live<'a> {
    context: &'a Context,
    queue: Queue,
    scene: Scene,
    view: View,
    changed: Arc<AtomicBool>,
    spent: SpentByAgent,
}

impl Live<'_> {
    fn run(&mut self, terminal: &mut DefaultTerminal) -> Outcome {
        let (mut looked, mut pause) = (Instant::now(), REFRESH_MIN);
        let (mut is_stale, mut drawn) = (true, Instant::now());
        let mut news: Option<Instant> = None;
        loop {
            if self.changed.swap(false, Ordering::Relaxed) {
                news.get_or_insert_with(Instant::now);
            }
            let is_due = news.is_some_and(|news| news.elapsed() >= SETTLE);
            if (is_due && looked.elapsed() >= pause) || looked.elapsed() >= REFRESH_MAX {
                news = None;
                let began = Instant::now();
                // What cannot be read now is shown as it was.
                if let Ok(scene) = gather(self.context, &self.queue) {
                    self.scene = scene;
                    self.scene.spent = self.spent.get();
                    self.view.clamp(&self.scene.overview);
                }
                pause = REFRESH_MIN.max(began.elapsed() * PAUSE_PER_COST);
                looked = Instant::now();
                is_stale = true;
            }
            if drawn.elapsed() >= TICK {
                self.scene.overview.at = SystemClock.wall();
                is_stale = true;
            }
            if is_stale {
                drawn = Instant::now();
                terminal.draw(|frame| draw::draw(frame, &self.scene, &self.view))?;
                is_stale = false;
            }
            let has_input = event::poll(POLL)?;
            // Reading from a terminal that was closed would never end.
            if rustix::termios::tcgetattr(io::stdin()).is_err() {
                return Ok(());
            }
            if !has_input {
                continue;
            }
            is_stale = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && self.press(key, terminal)?
            {
                return Ok(());
            }
        }
    }

    /// Does what a key means. Whether the view is to be left.
    fn press(&mut self, key: KeyEvent, terminal: &mut DefaultTerminal) -> Outcome<bool> {
        overview::note_look(self.context);
        match self.view.press(key, &self.scene.overview) {
            Action::None => {}
            Action::Quit => return Ok(true),
            Action::Story(id) => {
                let lines =
                    story_lines(self.context, &id).unwrap_or_else(|failure| vec![failure.text()]);
                self.view.tell(id, lines);
            }
            Action::Run(arguments) => {
                let said = self.verb(&arguments);
                self.view.say(said);
                self.changed.store(true, Ordering::Relaxed);
            }
            Action::Attach(name) => {
                ratatui::try_restore()?;
                silence(false);
                let said = Command::new(own_program()).args(["attach", name.as_str()]).status();
                silence(true);
                *terminal = ratatui::try_init()?;
                if said.is_ok_and(|status| !status.success()) {
                    self.view.say(format!(
                        "cannot attach to {name}: see `ensemble agent attach {name}`"
                    ));
                }
            }
        }
        Ok(false)
    }

    /// Runs a verb of this program. What it said, in one line.
    fn verb(&self, arguments: &[String]) -> String {
        let mut command = Command::new(own_program());
        if let Ok(project) = self.context.project() {
            command.arg("--queue").arg(&project.queue);
        }
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let Ok(output) = output else { return "cannot start the command".to_owned() };
        let text = if output.status.success() { output.stdout } else { output.stderr };
        let text = String::from_utf8_lossy(&text);
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("done");
        crate::text::one_line(first)
    }
}
