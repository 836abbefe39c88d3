//! The live view: what needs a person, the agents, and the last events, on the whole terminal.
//!
//! ```text
//! a file changed, or REFRESH_MAX is over    look at what has changed, at most every PAUSE_MIN    draw
//! a second is over                          ages grow                                            draw
//! a key                                     `view` decides what it means                         draw, or run a verb
//! the end, a signal, a panic                the terminal is as it was
//! the terminal is gone                      the process ends
//! ```
//!
//! It only reads. The keys that change something run a verb of this program, after a question. A look reads what
//! has changed only (`OverviewReader`). Between two looks, changes wake nothing, so a busy team costs little more.

mod draw;
mod events;
mod spent;
mod view;
mod wakes;

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_app::diagnostics::silence;
use ensemble_app::environment::own_program;
use ensemble_app::overview::{FRESH, OpenedQueue, asking_person, open_to_watch};
use ensemble_app::story::story_lines;
use ensemble_app::usage::open_usage;
use ensemble_core::broker::Broker;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_project::attention::join_by_cause;
use ensemble_project::overview::{Overview, OverviewReader, ProjectChanges};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyEvent, KeyEventKind,
};
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::{Context, Failure, Outcome};
use crate::printing::overview;
use events::LastEvents;
use spent::{SpentByAgent, UsedAmounts};
use view::{ViewAction, ViewState};
use wakes::ViewWakes;

/// How long a change waits for others that come with it.
const SETTLE: Duration = Duration::from_millis(40);
/// The least time between two looks. A change is shown within 200 ms.
const PAUSE_MIN: Duration = Duration::from_millis(150);
/// Pause after a look, as a multiple of the processor time that it took: for queues so large that this is much.
const PAUSE_PER_COST: u32 = 20;
/// The longest time between two looks: mail grows overdue, and what is on servers changes, without a file.
const REFRESH_MAX: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);

struct LiveScene<'a> {
    overview: Overview,
    project: &'a Project,
    events: LastEvents,
    spent: UsedAmounts,
}

pub(crate) fn run(context: &Context) -> Outcome {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage("the live view needs a terminal")
            .with_hint("`ensemble status` prints the same once"));
    }
    // A failure is said on the ordinary screen.
    let queue = open_to_watch(context)?;
    let (project, person) = (context.project()?, asking_person(context)?);
    let mut wakes = ViewWakes::new()?;
    let mut reader = OverviewReader::new(project);
    let mut overview =
        gather_overview(&mut reader, &ProjectChanges::Anywhere, &queue, person.as_ref());
    // Another look sees changes from before the place was watched.
    while wakes.watch(reader.places()) {
        overview = gather_overview(&mut reader, &ProjectChanges::Anywhere, &queue, person.as_ref());
    }
    overview::note_look(context);
    end_on_signals()?;
    let spent = SpentByAgent::follow(open_usage(project)?, wakes.waker()?);
    let mut events = LastEvents::of(project);
    events.update(broker(&queue))?;
    let scene = LiveScene { overview, project, events, spent: spent.get() };
    silence(true);
    let mut terminal = take_terminal()?;
    let view = ViewState::of(person.clone().unwrap_or_else(|| project.person()));
    let result =
        LiveView { context, person, queue, reader, scene, view, wakes, spent }.run(&mut terminal);
    restore_terminal()?;
    silence(false);
    result
}

/// Takes the whole terminal. What is pasted arrives as text: its characters are not keys.
fn take_terminal() -> io::Result<DefaultTerminal> {
    let terminal = ratatui::try_init()?;
    execute!(io::stdout(), EnableBracketedPaste)?;
    Ok(terminal)
}

fn restore_terminal() -> io::Result<()> {
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    ratatui::try_restore()
}

/// Ends the process on a signal, no matter what it does: it may wait for a terminal that is gone.
fn end_on_signals() -> Outcome {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = restore_terminal();
            std::process::exit(0);
        }
    });
    Ok(())
}

fn gather_overview(
    reader: &mut OverviewReader,
    changes: &ProjectChanges,
    queue: &OpenedQueue,
    person: Option<&Name>,
) -> Overview {
    let mut overview = reader.refresh_overview(changes, queue.source(), FRESH);
    if let Some(person) = person {
        overview.keep_needs_of(person);
    }
    overview.needs = join_by_cause(&overview.needs);
    overview
}

fn broker(queue: &OpenedQueue) -> Option<&dyn Broker> {
    match queue {
        OpenedQueue::Queue(queue) => Some(&**queue),
        OpenedQueue::Away(_) => None,
    }
}

struct LiveView<'a> {
    context: &'a Context,
    /// Whose mail is shown, if the team has several people.
    person: Option<Name>,
    queue: OpenedQueue,
    reader: OverviewReader,
    scene: LiveScene<'a>,
    view: ViewState,
    wakes: ViewWakes,
    spent: SpentByAgent,
}

struct LookPace {
    looked: Instant,
    pause: Duration,
    changed: Option<Instant>,
}

impl LookPace {
    fn due(&self) -> Instant {
        let regular = self.looked + REFRESH_MAX.max(self.pause);
        match self.changed {
            Some(changed) => regular.min((changed + SETTLE).max(self.looked + self.pause)),
            None => regular,
        }
    }

    fn looked(&mut self, cost: Duration) {
        self.looked = Instant::now();
        self.pause = PAUSE_MIN.max(cost * PAUSE_PER_COST);
        self.changed = None;
    }
}

/// Processor time of this thread so far. On a busy machine a look takes longer, and costs no more.
fn used_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl LiveView<'_> {
    fn run(&mut self, terminal: &mut DefaultTerminal) -> Outcome {
        let now = Instant::now();
        let mut pace = LookPace { looked: now, pause: PAUSE_MIN, changed: None };
        let (mut is_stale, mut drawn) = (true, now);
        loop {
            if Instant::now() >= pace.due() {
                let began = used_time();
                self.refresh_view();
                pace.looked(used_time().saturating_sub(began));
                is_stale = true;
            }
            if is_stale || drawn.elapsed() >= TICK {
                self.scene.overview.at = SystemClock.wall();
                terminal.draw(|frame| draw::draw(frame, &self.scene, &self.view))?;
                (is_stale, drawn) = (false, Instant::now());
            }
            let next = pace.due().min(drawn + TICK);
            let patience = next.saturating_duration_since(Instant::now());
            let woken = self.wakes.wait(patience, pace.changed.is_none())?;
            if woken.by_files {
                pace.changed = Some(Instant::now());
            }
            if !woken.by_terminal {
                continue;
            }
            // Reading from a terminal that was closed would never end.
            if rustix::termios::tcgetattr(io::stdin()).is_err() {
                return Ok(());
            }
            self.scene.spent = self.spent.get();
            is_stale = true;
            while event::poll(Duration::ZERO)? {
                let said = event::read()?;
                if let Event::Paste(text) = &said {
                    self.view.paste(text);
                }
                if let Event::Key(key) = said
                    && key.kind != KeyEventKind::Release
                    && self.press(key, terminal)?
                {
                    return Ok(());
                }
            }
        }
    }

    fn refresh_view(&mut self) {
        let changes = self.wakes.take_changes();
        // Servers that were away when they were asked first are asked again.
        if let OpenedQueue::Away(_) = self.queue
            && let Ok(queue) = open_to_watch(self.context)
        {
            self.queue = queue;
        }
        let _ = self.scene.events.update(broker(&self.queue));
        let person = self.person.as_ref();
        self.scene.overview = gather_overview(&mut self.reader, &changes, &self.queue, person);
        if self.wakes.watch(self.reader.places()) {
            self.scene.overview =
                gather_overview(&mut self.reader, &ProjectChanges::Anywhere, &self.queue, person);
        }
        if !self.scene.overview.unreadable.is_empty() {
            self.wakes.distrust();
        }
        self.view.clamp(&self.scene.overview);
    }

    /// Does what a key means. Whether the view is to be left.
    fn press(&mut self, key: KeyEvent, terminal: &mut DefaultTerminal) -> Outcome<bool> {
        overview::note_look(self.context);
        match self.view.press(key, &self.scene.overview) {
            ViewAction::None => {}
            ViewAction::Quit => return Ok(true),
            ViewAction::Story(id) => {
                let width = usize::from(terminal.size()?.width);
                let lines = story_lines(self.context, &id, width)
                    .unwrap_or_else(|failure| vec![failure.text()]);
                self.view.show(&id, lines);
            }
            ViewAction::Run(arguments) => {
                let said = self.verb(&arguments);
                self.view.say(said);
                self.refresh_view();
            }
            ViewAction::Attach(name) => {
                restore_terminal()?;
                silence(false);
                let mut attach = self.command(&["agent", "attach", name.as_str()]);
                attach.stderr(Stdio::piped());
                let ended = attach.stdin(Stdio::inherit()).stdout(Stdio::inherit()).output();
                silence(true);
                *terminal = take_terminal()?;
                if let Some(output) = ended.ok().filter(|output| !output.status.success()) {
                    self.view.say(first_line(&output.stderr));
                }
            }
        }
        Ok(false)
    }

    fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(own_program());
        command.arg("--queue").arg(&self.scene.project.queue).args(arguments);
        command
    }

    fn verb(&self, arguments: &[String]) -> String {
        let output = self.command(arguments).stdin(Stdio::null()).output();
        let Ok(output) = output else { return "cannot start the command".to_owned() };
        first_line(if output.status.success() { &output.stdout } else { &output.stderr })
    }
}

fn first_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or("done");
    let first = first.strip_prefix("ensemble: ").unwrap_or(first);
    let hint = lines.find_map(|line| line.strip_prefix("hint: "));
    let hint = hint.map_or_else(String::new, |hint| format!(": {hint}"));
    ensemble_app::text::one_line(&format!("{first}{hint}"))
}
