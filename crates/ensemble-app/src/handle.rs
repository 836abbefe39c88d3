//! The handle with which a verb works. Nothing is opened before a verb asks for it.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_core::document::SharedFiles;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{EventLog, LogOptions, Recorder, types};
use ensemble_core::message::{Envelope, KnownSender, Name, ReservedName, SenderProof, Timestamp};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_project::{Project, QUEUE_VARIABLE};
use ensemble_team::board::BoardOptions;
use ensemble_team::roster::{CallerEvidence, CallerIdentity, NameRefusal, identify, refuse_agent};
use ensemble_tmux::reaper::PASS_VARIABLE;
use ensemble_tmux::terminal::hosted::addresses_around;
use serde_json::json;

use crate::diagnostics::say;
use crate::environment::AGENT_VARIABLES;
use crate::failure::{Failure, Outcome};

/// The project as one caller sees it: a run of the command, a call of the API, an agent's session.
#[derive(Debug, Default)]
pub struct App {
    queue: Option<PathBuf>,
    agent: Option<Name>,
    /// The origin that the events it records name.
    pub(crate) caller: &'static str,
    identity: OnceCell<CallerIdentity>,
    project: OnceCell<Project>,
    log: OnceCell<Arc<EventLog>>,
    pub(crate) shared: OnceCell<Arc<dyn SharedFiles>>,
    /// Whether connections outlive one call, so that their calls share no patience.
    pub(crate) is_lasting: bool,
    /// Whether a person has typed this command at a shell.
    is_typed: bool,
}

impl App {
    /// For `caller`, such as `send`: the queue and the agent as it names them.
    pub fn new(queue: Option<PathBuf>, agent: Option<Name>, caller: &'static str) -> Self {
        Self { queue, agent, caller, ..Self::default() }
    }

    /// For a command that a person has typed at a shell.
    pub const fn typed(mut self, is_typed: bool) -> Self {
        self.is_typed = is_typed;
        self
    }

    /// For a caller that runs for as long as the team works, so that no patience can be that of the whole run.
    pub const fn lasting(mut self) -> Self {
        self.is_lasting = true;
        self
    }

    /// The same for a server, with the identity that is found now.
    pub fn settled(&self) -> Outcome<Self> {
        self.identity()?;
        Ok(Self {
            identity: self.identity.clone(),
            project: self.project.clone(),
            log: self.log.clone(),
            ..Self::new(self.queue.clone(), self.agent.clone(), self.caller).lasting()
        })
    }

    pub fn queue_flag(&self) -> Option<&Path> {
        self.queue.as_deref()
    }

    pub const fn agent_flag(&self) -> Option<&Name> {
        self.agent.as_ref()
    }

    pub fn project(&self) -> Outcome<&Project> {
        if self.project.get().is_none() {
            let project = Project::discover(self.queue.as_deref())?;
            return Ok(self.project.get_or_init(|| project));
        }
        self.project.get().ok_or_else(|| Failure::refused("there is no project"))
    }

    /// The project, which must exist: it has a queue, or at least a state directory.
    pub fn existing_project(&self) -> Outcome<&Project> {
        let project = self.project()?;
        if !project.state.is_dir() {
            self.spool()?;
        }
        Ok(project)
    }

    /// The queue's directory, which must exist.
    pub fn spool(&self) -> Outcome<Spool> {
        let project = self.project()?;
        Ok(Spool::open(&project.queue, self.spool_options(project))?)
    }

    /// Now, by the calendar of the queue, which a jump of the wall clock does not move.
    pub fn now(&self) -> Timestamp {
        self.spool().map_or_else(|_| SystemClock.wall(), |spool| spool.now())
    }

    /// How this command opens a queue: what it does is recorded, if it does anything. The log is
    /// touched by the first record only, and no trouble with it stops a verb.
    pub fn spool_options(&self, project: &Project) -> SpoolOptions {
        let mut options = project.spool_options(self.log(project));
        // Each run receives one message: it must not list a deep mailbox for it.
        options.share_backlog = true;
        // Nor wait for long enough to see a lease expire.
        options.observations = Some(project.state.join("leases"));
        options.quota = project.config.sender_quota.quota();
        options
    }

    pub fn board_options(&self, project: &Project) -> Outcome<BoardOptions> {
        Ok(self.board_options_for(project, self.actor()?.to_string()))
    }

    /// As [`App::board_options`], in another one's name, which must have been checked.
    pub fn board_options_for(&self, project: &Project, actor: impl Into<String>) -> BoardOptions {
        project.board_options(actor, self.log(project))
    }

    /// Refuses a name that is not this one's to use.
    pub fn check_name(&self, name: &Name) -> Outcome {
        self.identify(Some(name)).map(drop)
    }

    pub fn recorder(&self) -> Outcome<Arc<dyn Recorder>> {
        Ok(self.log(self.project()?))
    }

    /// The event log itself, for a verb that has to know whether an event was written.
    pub fn event_log(&self) -> Outcome<Arc<EventLog>> {
        Ok(self.log(self.project()?))
    }

    pub(crate) fn log(&self, project: &Project) -> Arc<EventLog> {
        let open = || Arc::new(EventLog::deferred(&project.logs(), LogOptions::default()));
        Arc::<EventLog>::clone(self.log.get_or_init(open))
    }

    /// The agent that runs this command, if it has a name. Only this function turns a name into an
    /// identity: the command line and the environment merely claim one (`roster::identify`).
    pub fn agent(&self) -> Outcome<Option<Name>> {
        Ok(self.identity()?.name.clone())
    }

    pub fn identity(&self) -> Outcome<&CallerIdentity> {
        if let Some(identity) = self.identity.get() {
            return Ok(identity);
        }
        let claimed = self.claimed()?;
        let identity = self.identify(claimed.as_ref())?;
        Ok(self.identity.get_or_init(|| identity))
    }

    fn identify(&self, claimed: Option<&Name>) -> Outcome<CallerIdentity> {
        let project = self.project()?;
        let (members, errors) = project.roster().entries()?;
        let mut asking = CallerEvidence::new();
        if !members.is_empty() {
            asking = asking.with_process(std::process::id());
            if let (Ok(tmux), Ok(pane)) = (std::env::var("TMUX"), std::env::var("TMUX_PANE")) {
                asking = asking.with_hidden_pane(&tmux, &pane);
            }
            let around = addresses_around(&|name| std::env::var(name).ok());
            let around = around.iter().map(ToString::to_string).collect();
            asking = asking.with_hosted_panes(around);
            if let Some(pass) = pass_for(project) {
                asking = asking.with_pass(&pass);
            }
        }
        let outsiders = project.config.identity.outsiders.unwrap_or_default();
        match identify(&members, &asking, claimed, outsiders) {
            Ok(identity) => {
                // An agent whose file cannot be read may still be a member.
                if let Some(name) = claimed.filter(|_| !errors.is_empty()) {
                    project.roster().get(name)?;
                }
                Ok(identity)
            }
            Err(refusal) => {
                let actual = refusal.actual();
                let actor = actual.map_or("outside", Name::as_str);
                let data = json!({
                    "claimed": claimed, "actual": actual, "why": refusal.word(), "verb": self.caller,
                });
                self.log(project).record(types::IDENTITY_REFUSED, actor, data);
                Err(Failure::refused(refusal.to_string()).with_hint(advice(&refusal, self.caller)))
            }
        }
    }

    fn claimed(&self) -> Outcome<Option<Name>> {
        let claimed = self.given_name()?;
        if let Some(name) = &claimed {
            ReservedName::refuse_mailbox(name).map_err(ensemble_core::Error::from)?;
        }
        Ok(claimed)
    }

    fn given_name(&self) -> Outcome<Option<Name>> {
        if self.agent.is_some() {
            return Ok(self.agent.clone());
        }
        for variable in AGENT_VARIABLES {
            let Some(value) = std::env::var_os(variable).filter(|v| !v.is_empty()) else {
                continue;
            };
            let name = value.to_string_lossy().parse::<Name>();
            return name.map(Some).map_err(|e| Failure::usage(format!("{variable}: {e}")));
        }
        Ok(None)
    }

    /// The name to act under, for a verb that a person may run without giving one: that of the person, `operator` unless
    /// the configuration says otherwise.
    pub fn actor(&self) -> Outcome<Name> {
        if let Some(agent) = self.agent()? {
            return Ok(agent);
        }
        let person = self.project()?.person();
        self.check_name(&person)?;
        Ok(person)
    }

    pub fn reporter(&self) -> Outcome<String> {
        Ok(self.actor()?.to_string())
    }

    /// Puts the sender into a message, and how it is known.
    pub fn sign(&self, envelope: Envelope) -> Outcome<Envelope> {
        Ok(self.sender()?.sign(envelope))
    }

    pub fn sender(&self) -> Outcome<KnownSender> {
        self.sender_named(self.actor()?)
    }

    /// The sender of what this command writes under this name. The caller proves it: an agent its name alone, the person
    /// every name.
    pub fn sender_named(&self, name: Name) -> Outcome<KnownSender> {
        let identity = self.identity()?;
        let proof = match identity.sender_proof() {
            None if self.is_typed || self.project()?.is_person(&name) => Some(SenderProof::Person),
            Some(SenderProof::Person) => Some(SenderProof::Person),
            by_agent => by_agent.filter(|_| identity.name.as_ref() == Some(&name)),
        };
        Ok(KnownSender { name, proof })
    }

    /// Whether the person who runs the team runs this command: outside of all agents, without another name.
    pub fn is_person(&self) -> Outcome<bool> {
        let (agent, project) = (self.agent()?, self.project()?);
        Ok(agent.is_none_or(|name| project.is_person(&name)))
    }

    /// The mailbox that the caller reads.
    pub fn own_mailbox(&self) -> Outcome<Name> {
        Ok(self.project()?.mailbox_of(&self.actor()?))
    }

    /// The agent, which has no name that means something else.
    pub fn agent_itself(&self) -> Outcome<Name> {
        let agent = self.agent_required()?;
        refuse_agent(&agent, &self.project()?.config.people)?;
        Ok(agent)
    }

    /// The name of an agent, for a verb that acts on what this agent holds.
    pub fn agent_required(&self) -> Outcome<Name> {
        let unknown = || {
            Failure::usage("no agent name: pass --as NAME or set ENSEMBLE_AGENT_ID")
                .with_hint("this acts on what an agent holds, so it has no default name")
        };
        self.agent()?.ok_or_else(unknown)
    }

    /// Says on stderr that something was done but not recorded.
    pub fn warn_about_log(&self) {
        if let Some((count, Some(last))) = self.log.get().map(|log| log.failures()) {
            let records = crate::text::plural(count, "record");
            say(&format!("warning: {records} missing in the event log: {last}"));
        }
    }
}

/// The pass in the environment, unless it was given for the team of another queue.
fn pass_for(project: &Project) -> Option<String> {
    let pass = std::env::var_os(PASS_VARIABLE).filter(|pass| !pass.is_empty())?;
    let is_ours = match std::env::var_os(QUEUE_VARIABLE).filter(|queue| !queue.is_empty()) {
        None => true,
        Some(queue) => is_same_place(Path::new(&queue), &project.queue),
    };
    is_ours.then(|| pass.to_string_lossy().into_owned())
}

pub(crate) fn is_same_place(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // A bind mount is the same directory under two names that no link explains.
    let place = |path: &Path| std::fs::metadata(path).map(|it| (it.dev(), it.ino()));
    one == other || matches!((place(one), place(other)), (Ok(a), Ok(b)) if a == b)
}

fn advice(refusal: &NameRefusal, verb: &str) -> &'static str {
    match refusal {
        NameRefusal::Mismatch { .. } => "`ensemble agent whoami` says who this is",
        NameRefusal::Outsider { .. } if verb == "admin mcp" => {
            "`ensemble admin mcp install --provider claude` lets the agent's program start it in that pane"
        }
        NameRefusal::Outsider { .. } => {
            "use your own name, such as `--as operator`, or allow it to all programs outside of panes, with \
             `identity: {outsiders: allow}` in ensemble.yaml"
        }
        NameRefusal::Contradiction { .. }
        | NameRefusal::UnknownPass { .. }
        | NameRefusal::Ended { .. } => {
            "without ENSEMBLE_AGENT_PASS in the environment, the pane it runs in decides"
        }
    }
}
