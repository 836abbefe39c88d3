//! Why a use case failed: what a person or a program gets to know of it, and the exit code of a command that ends with it.

use std::fmt::{self, Display};
use std::io::{self, Write as _};
use std::path::Path;

use ensemble_core::message::{Name, NameError, TimestampError, shell_word};
use ensemble_core::proto::request::DecisionRefusal;
use ensemble_core::requests::{GatedTask, PlanGate, UndecidedRequest};
use ensemble_core::{AreaError, Error};
use ensemble_project::overview::server_remedy;
use ensemble_project::troubles::budget_help;
use ensemble_project::{CONFIG_FILE, USER_CONFIG};
use ensemble_team::admission::NotAdmitted;
use ensemble_team::board::{BoardError, ControlFile};
use ensemble_team::driver::BatchError;
use ensemble_team::steps::StepError;
use ensemble_team::worktree::{GitError, WorktreeError, WorktreeFault};
use ensemble_tmux::tmux::TmuxError;
use serde_json::Value;

use crate::diagnostics::{is_json, say, tell_program, write_line};
use crate::door_hints::{name_queue, render_hints};
use crate::error_line::{ErrorBody, ErrorLine, FailureCode, repeats};
use crate::exit_code::VerbExit;

/// Commands of hints that act in the name of their caller.
const ACTING: &str =
    "inbox, reply, request answer, request cancel, request plan, settle, step submit, task claim";

/// Why a verb ended early.
#[derive(Debug)]
pub enum Failure {
    /// Something to say, and how to continue from there.
    Told {
        exit: VerbExit,
        code: FailureCode,
        text: String,
        hint: Option<String>,
        /// What a program reads on stdout besides, under `--json`.
        object: Option<Box<Value>>,
    },
    /// Lines that others parse, said as they are.
    Block { exit: VerbExit, text: String },
    /// The reader of stdout has gone, as in `ensemble log | head`.
    ClosedPipe,
}

/// The result of a verb and its parts.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with the code for programs that its exit code has.
    pub fn new(exit: VerbExit, text: impl Into<String>) -> Self {
        Self::Told { exit, code: exit.into(), text: text.into(), hint: None, object: None }
    }

    /// The operation was refused; nothing changed.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::new(VerbExit::Failed, text)
    }

    /// A mistake of the caller.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(VerbExit::Usage, text)
    }

    /// An error about a file that the command line names: what is wrong in it is a mistake of its caller,
    /// and no corrupt data.
    pub fn input(error: Error) -> Self {
        match error {
            Error::Malformed { .. } => Self::usage(error.to_string()),
            error => error.into(),
        }
    }

    /// There is nothing, or a wait timed out.
    pub fn nothing(text: impl Into<String>) -> Self {
        Self::new(VerbExit::Nothing, text)
    }

    pub fn with_exit(mut self, other: VerbExit) -> Self {
        if let Self::Told { exit, code, .. } = &mut self {
            if *code == FailureCode::from(*exit) {
                *code = other.into();
            }
            *exit = other;
        }
        self
    }

    pub fn with_code(mut self, other: FailureCode) -> Self {
        if let Self::Told { code, .. } = &mut self {
            *code = other;
        }
        self
    }

    pub fn with_hint(mut self, advice: impl Into<String>) -> Self {
        if let Self::Told { hint, .. } = &mut self {
            *hint = Some(advice.into());
        }
        self
    }

    /// With what the caller has named in the commands of the hint: the queue, and in those that act for whom they are
    /// run by, the agent.
    pub fn acting_as(mut self, agent: Option<&Name>, queue: Option<&Path>) -> Self {
        if let Self::Told { hint: Some(hint), .. } = &mut self {
            let acts = |line: &str| {
                let verb = line.strip_prefix("ensemble ").filter(|_| !line.contains(" --as "));
                verb.is_some_and(|verb| ACTING.split(", ").any(|it| verb.starts_with(it)))
            };
            let act = |line: &str| Some(format!("{line} --as {}", agent.filter(|_| acts(line))?));
            *hint = name_queue(&render_hints(hint, &act), queue);
        }
        self
    }

    pub fn with_object(mut self, value: Value) -> Self {
        if let Self::Told { object, .. } = &mut self {
            *object = Some(Box::new(value));
        }
        self
    }

    /// What a program reads on stdout besides, which is taken.
    pub fn take_object(&mut self) -> Option<Value> {
        match self {
            Self::Told { object, .. } => object.take().map(|object| *object),
            Self::Block { .. } | Self::ClosedPipe => None,
        }
    }

    pub const fn is_busy(&self) -> bool {
        matches!(self, Self::Told { exit: VerbExit::Busy, .. })
    }

    pub fn is_server_away(&self) -> bool {
        self.is_busy() && matches!(self, Self::Told { code: FailureCode::Server, .. })
    }

    pub const fn exit(&self) -> VerbExit {
        match self {
            Self::Told { exit, .. } | Self::Block { exit, .. } => *exit,
            Self::ClosedPipe => VerbExit::Done,
        }
    }

    /// The failure in one line, for a verb that continues with others.
    pub fn text(&self) -> String {
        match self {
            Self::Told { text, .. } | Self::Block { text, .. } => crate::text::one_line(text),
            Self::ClosedPipe => "the reader of stdout has gone".to_owned(),
        }
    }

    pub fn into_line(self) -> ErrorLine {
        match self {
            Self::ClosedPipe => {
                ErrorLine::new(FailureCode::Io, self.text(), None, VerbExit::Failed)
            }
            Self::Block { exit, text } => ErrorLine::new(exit.into(), text, None, exit),
            Self::Told { exit, code, text, hint, .. } => ErrorLine::new(code, text, hint, exit),
        }
    }

    pub fn report(self) -> VerbExit {
        let exit = self.exit();
        match self {
            Self::ClosedPipe => {}
            Self::Block { text, .. } if text.is_empty() => {}
            failure if is_json() => {
                let ErrorBody { code, message, hint, .. } = failure.into_line().error;
                tell_program(code, message, hint, exit);
            }
            Self::Block { text, .. } => {
                let _ = writeln!(io::stderr(), "{}", crate::text::printable(&text));
            }
            Self::Told { text, hint, .. } => {
                say(&text);
                if let Some(hint) = hint.filter(|hint| !repeats(hint, typed_words())) {
                    write_line(&format!("hint: {}", crate::text::printable(&hint)));
                }
            }
        }
        exit
    }
}

/// The words of the command line, readable even where they are not UTF-8.
pub fn typed_words() -> impl Iterator<Item = String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = exit_for(&error);
        let failure = Self::new(exit, error.to_string()).with_code(FailureCode::of(&error, exit));
        match hint_for(&error) {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

/// The command that fixes an error; the library names none.
fn hint_for(error: &Error) -> Option<String> {
    let hint = match error {
        Error::Ambiguous { .. } => "`--mailbox NAME` says which",
        Error::Full { mailbox, .. } | Error::Quota { mailbox, .. } => {
            return Some(format!("`ensemble inbox {mailbox}` shows what waits, and since when"));
        }
        Error::NoQueue { path } if path.join("queue/mailbox").is_dir() => {
            return Some(format!("{} is the queue of that project", path.join("queue").display()));
        }
        Error::NoQueue { .. } => {
            "`ensemble init` creates one; `--queue DIR` or ENSEMBLE_QUEUE names another place"
        }
        Error::NoMailbox { name, nearest } if nearest.is_empty() => {
            let list = "`ensemble mailbox list` lists the mailboxes";
            return Some(format!("{list}; `ensemble mailbox add {name}` creates it"));
        }
        Error::NoMessage { place, .. } if place.contains("dead letters") => {
            "`ensemble dead list` lists all"
        }
        Error::NoMessage { .. } => {
            "`ensemble inbox` lists your messages, `ensemble why ID` finds any"
        }
        Error::Server { unreachable: true, .. } => "`ensemble doctor` examines the server",
        Error::Server {
            operation: "connect" | "open the stream" | "find the team" | "work",
            ..
        } => server_remedy(&error.to_string()),
        Error::Area(_) => return area_hint(error),
        _ => return None,
    };
    Some(hint.to_owned())
}

fn area_hint(error: &Error) -> Option<String> {
    if let Some(GatedTask(gate)) = error.area() {
        return plan_hint(gate);
    }
    if let Some(obstacle) = error.area::<NotAdmitted>() {
        return obstacle_hint(obstacle);
    }
    if let Some(UndecidedRequest { request }) = error.area() {
        let answer = format!("`ensemble request answer {request} --approve`");
        return Some(format!("{answer}, or `--reject --reason TEXT`"));
    }
    if let Some(DecisionRefusal::PlanPending { id, .. }) = error.area() {
        return Some(format!("`ensemble request cancel {id}` cancels it"));
    }
    if let Some(BatchError::Undelivered { .. }) = error.area() {
        return Some(
            "`ensemble up` starts the watcher of a team; without one, `ensemble admin watch &` does"
                .to_owned(),
        );
    }
    if let Some(TmuxError::NotPrivate { .. }) = error.area() {
        return Some("`team: {socket: PATH}` in ensemble.yaml sets another socket".to_owned());
    }
    if let Some(failed) = error.area::<GitError>() {
        return failed.remedy().map(str::to_owned);
    }
    if let Some(refused) = error.area::<WorktreeError>() {
        return worktree_hint(&refused.fault);
    }
    if let Some(error) = error.area::<StepError>() {
        return step_hint(error).map(str::to_owned);
    }
    if let Some(DecisionRefusal::Unknown { .. }) = error.area() {
        return Some("`ensemble request list` shows those that are open".to_owned());
    }
    let hint = match error.area()? {
        BoardError::Missing { .. } => "`ensemble board init` creates one",
        BoardError::Invalid { .. } => "`ensemble board edit` repairs it",
        BoardError::Unknown { what: "task", .. } => "`ensemble task list` shows all",
        BoardError::Fenced { .. } => {
            "`ensemble task list` shows who holds what; `ensemble task claim ID`, or `ensemble task claim ID --review`, takes what is free"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

const fn step_hint(error: &StepError) -> Option<&'static str> {
    match error {
        StepError::NoTask { .. } | StepError::NoStep { .. } => {
            Some("`ensemble step list` shows what there is")
        }
        StepError::OtherPlan { .. } => {
            Some("`ensemble step split`, `skip` and `retry` change its steps")
        }
        _ => None,
    }
}

/// The command that takes an obstacle out of the way, if there is one.
pub fn obstacle_hint(obstacle: &NotAdmitted) -> Option<String> {
    match obstacle {
        NotAdmitted::Plan(GatedTask(gate)) => plan_hint(gate),
        NotAdmitted::Control(control) if control.file == ControlFile::Abort => {
            Some("`ensemble resume --lift-abort` continues the team's work".to_owned())
        }
        NotAdmitted::Control(_) => Some("`ensemble resume` continues the team's work".to_owned()),
        NotAdmitted::Leaving { .. } => None,
        NotAdmitted::Budget(parked) => Some(budget_help(&parked.scope.arguments())),
    }
}

fn worktree_hint(obstacle: &WorktreeFault) -> Option<String> {
    let hint = match obstacle {
        WorktreeFault::BrokenWorktree { .. } => {
            "`ensemble admin fsck --repair` makes it work again, and keeps its files"
        }
        WorktreeFault::NoWorktree { .. } => "`ensemble admin fsck --repair` makes it again",
        WorktreeFault::NothingCommitted => "`ensemble task submit ID --unchanged` declares it",
        WorktreeFault::CheckedOut { path } => {
            let place = shell_word(&path.to_string_lossy());
            return Some(format!("`git -C {place} switch --detach` leaves it"));
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// How an agent opens a plan gate, if that is up to the agent.
pub fn plan_hint(gate: &PlanGate) -> Option<String> {
    gate.needs_plan().then(|| format!("`{}` submits a plan", plan_command(gate)))
}

/// The command that submits a plan for a task, to the agent that demands it.
pub fn plan_command(gate: &PlanGate) -> String {
    let to = gate.waits_for.as_ref().filter(|to| **to != gate.agent);
    let to = to.map_or_else(String::new, |to| format!(" --to {to}"));
    let task = if Name::new(&gate.task_id).is_ok() { &gate.task_id } else { "TASK" };
    format!("ensemble request plan -f FILE --task {task}{to}")
}

/// A [`Failure`] that was turned into an error of the library, for a part of a verb that must return one. One that may
/// pass is still one that may pass.
#[derive(Debug)]
pub struct LibraryFailure {
    text: String,
    /// The exit code, if nothing handles it.
    exit: VerbExit,
}

impl fmt::Display for LibraryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LibraryFailure {}

impl AreaError for LibraryFailure {
    fn is_transient(&self) -> bool {
        self.exit == VerbExit::Busy
    }

    fn is_invariant_broken(&self) -> bool {
        self.exit == VerbExit::Corrupt
    }
}

/// The failure, which concerns this worker or mailbox.
pub fn failed(about: &impl Display, failure: &Failure) -> Error {
    LibraryFailure { text: format!("{about}: {}", failure.text()), exit: failure.exit() }.into()
}

impl From<io::Error> for Failure {
    /// For writing to stdout, the only IO that is done here without a path.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::refused(format!("cannot write to stdout: {error}")),
        }
    }
}

fn exit_for(error: &Error) -> VerbExit {
    match error {
        Error::Area(_) => exit_for_area(error),
        Error::NoMessage { .. } | Error::NoMailbox { .. } => VerbExit::Nothing,
        Error::Malformed { path, .. } if is_configuration(path) => VerbExit::Usage,
        Error::Malformed { .. } => VerbExit::Corrupt,
        Error::MissingProgram { .. } => VerbExit::MissingProgram,
        error if error.is_transient() => VerbExit::Busy,
        _ => VerbExit::Failed,
    }
}

fn exit_for_area(error: &Error) -> VerbExit {
    if let Some(failed) = error.area::<LibraryFailure>() {
        return failed.exit;
    }
    if error.area::<NameError>().is_some() || error.area::<TimestampError>().is_some() {
        return VerbExit::Usage;
    }
    if error.area().is_some_and(StepError::is_unknown) {
        return VerbExit::Nothing;
    }
    if matches!(error.area(), Some(DecisionRefusal::Unknown { .. })) {
        return VerbExit::Nothing;
    }
    match error.area() {
        Some(BoardError::Missing { .. } | BoardError::Unknown { .. }) => VerbExit::Nothing,
        Some(BoardError::Invalid { .. }) => VerbExit::Corrupt,
        _ if error.is_transient() => VerbExit::Busy,
        _ if error.is_invariant_broken() => VerbExit::Corrupt,
        _ => VerbExit::Failed,
    }
}

/// Whether a file is the project's or the user's configuration. A mistake in it is a mistake of its
/// author, as on a command line. A place within it follows a colon (`ensemble.yaml: providers.claude`).
fn is_configuration(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let file = name.split_once(':').map_or(&*name, |(file, _)| file);
    file == CONFIG_FILE || path.ends_with(USER_CONFIG)
}

#[cfg(test)]
mod tests {
    use ensemble_team::worktree::Operation;

    use super::*;

    #[test]
    fn errors_have_their_codes() {
        let full = Error::Full { mailbox: "m".to_owned(), capacity: 1 };
        assert_eq!(exit_for(&full), VerbExit::Busy);
        let lost = Error::LeaseLost { lease: "m/x@w@1".to_owned(), now: "settled".to_owned() };
        assert_eq!(exit_for(&lost), VerbExit::Failed);
        let absent = Error::NoMessage { id: "x".to_owned(), place: "here".to_owned() };
        assert_eq!(exit_for(&absent), VerbExit::Nothing);
        let absent = Error::from(BoardError::Missing { path: "state.yaml".into() });
        assert_eq!(exit_for(&absent), VerbExit::Nothing);
        let name = Error::from(ensemble_core::message::Name::new("../etc").unwrap_err());
        assert_eq!(exit_for(&name), VerbExit::Usage);
        let program = Error::MissingProgram { program: "tmux", remedy: "install it" };
        assert_eq!(exit_for(&program), VerbExit::MissingProgram);
    }

    #[test]
    fn hints_name_the_command_and_errors_do_not() {
        let path = || std::path::PathBuf::from("q");
        let errors = [
            (Error::NoQueue { path: path() }, "ensemble init"),
            (Error::NoMailbox { name: "m".to_owned(), nearest: vec![] }, "ensemble mailbox add"),
            (Error::Full { mailbox: "m".to_owned(), capacity: 1 }, "ensemble inbox m"),
            (StepError::NoTask { task_id: "t".to_owned() }.into(), "ensemble step list"),
            (StepError::OtherPlan { task_id: "t".to_owned() }.into(), "ensemble step split"),
            (
                WorktreeError::new(Operation::Claim, WorktreeFault::NothingCommitted).into(),
                "--unchanged",
            ),
            (BatchError::Undelivered { path: path() }.into(), "ensemble admin watch"),
            (BoardError::Missing { path: path() }.into(), "ensemble board init"),
        ];
        for (error, command) in errors {
            assert!(!error.to_string().contains("ensemble "), "{error}");
            let hint = hint_for(&error).unwrap();
            assert!(hint.contains(command), "{hint}");
        }
    }

    #[test]
    fn what_may_pass_still_may_and_keeps_its_exit_code() {
        let away = Error::Server {
            operation: "open the stream",
            server: "nats://hub".to_owned(),
            detail: "no answer in time".to_owned(),
            unreachable: true,
        };
        let refused = Failure::refused("no such worker");
        for (failure, is_transient, exit) in
            [(Failure::from(away), true, VerbExit::Busy), (refused, false, VerbExit::Failed)]
        {
            let error = failed(&"worker-2", &failure);
            assert_eq!(error.is_transient(), is_transient, "{error}");
            assert!(error.to_string().starts_with("worker-2: "), "{error}");
            assert_eq!(Failure::from(error).exit(), exit);
        }
    }
}
