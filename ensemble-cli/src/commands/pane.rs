use std::path::PathBuf;
use std::sync::Arc;

use ensemble_app::agent_panes::named_server;
use ensemble_app::overview::agent_without_pane;
use ensemble_app::text::{one_line, with_members};
use ensemble_core::agent::{AgentDiagnosis, Evidence};
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, Key};
use ensemble_project::panes::{self, PaneEntry};
use ensemble_tmux::provider::{Profile, TypingPurpose};
use ensemble_tmux::terminal::BoundPane;
use ensemble_tmux::tmux::{PaneExamination, TmuxServer};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::{Context, Outcome};
use crate::output::{GOOD, WARNING};

const PURPOSES: [(&str, TypingPurpose<'_>); 5] = [
    ("nudge", TypingPurpose::Nudge),
    ("open", TypingPurpose::Open),
    ("enter", TypingPurpose::Press(Key::Enter)),
    ("escape", TypingPurpose::Press(Key::Escape)),
    ("ctrl-c", TypingPurpose::Press(Key::CtrlC)),
];

/// Show what the agent in a pane is doing, and how Ensemble knows
///
/// Also says what would be typed or pressed now, and why not. Types nothing. States: ready, busy, permission, trust, dialog, login, rate_limited, crashed,
/// draft, starting, unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble agent inspect worker-1
  ensemble agent inspect %3 --provider claude --json")]
pub(crate) struct Arguments {
    /// An agent that is bound to a pane, a pane's id (%3), or its exact name (=session:window.0)
    #[arg(value_name = "PANE|AGENT")]
    target: String,
    /// Program in the pane [default: that of the agent's binding; for a pane, shell]
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// The tmux server's socket [default: the agent's; for a pane, the one of $TMUX]
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath)]
    tmux_socket: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let entry = self.find(context)?;
        let profile = self.profile(context, entry.as_ref())?;
        let mut pane = match &entry {
            Some(entry) => {
                let server = TmuxServer::brief(entry.binding.socket.clone());
                let project = context.project()?;
                let (sources, locks) = (project.sources(), project.locks());
                entry.open(server, Arc::clone(&profile), &sources, &locks)?
            }
            None => self.bind(context, &profile)?,
        };
        let examined = pane.examine(&PURPOSES.map(|(_, purpose)| purpose))?;
        let agent = entry.map(|entry| entry.agent);
        let seen = InspectedPane { agent, pane: &pane, examined: &examined };
        match context.out.is_json() {
            true => context.out.object(&seen.object()),
            false => seen.print(context),
        }
    }

    fn find(&self, context: &Context) -> Outcome<Option<PaneEntry>> {
        let Ok(agent) = Name::new(&self.target) else { return Ok(None) };
        let project = context.project()?;
        let entry = panes::find(&project.panes(), &agent)?;
        entry.map(Some).ok_or_else(|| {
            agent_without_pane(project, &agent)
                .with_hint("`ensemble team` lists the agents; a pane is named %3 or =session:0.0")
        })
    }

    fn profile(&self, context: &Context, entry: Option<&PaneEntry>) -> Outcome<Arc<Profile>> {
        let bound = entry.map(|entry| entry.provider.as_str());
        let name = self.provider.as_deref().or(bound).unwrap_or("shell");
        Ok(context.project()?.profiles()?.get(name)?)
    }

    fn bind(&self, context: &Context, profile: &Arc<Profile>) -> Outcome<BoundPane> {
        let server = named_server(self.tmux_socket.as_deref())?;
        let binding = server.bind(&self.target)?;
        let project = context.project()?;
        let observer = project.sources().observer(None, Arc::clone(profile));
        Ok(BoundPane::open(server, binding, observer, &project.locks())?)
    }
}

struct InspectedPane<'a> {
    agent: Option<Name>,
    pane: &'a BoundPane,
    examined: &'a PaneExamination,
}

#[derive(Serialize)]
struct TypingVerdict<'a> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a Deferral>,
}

impl InspectedPane<'_> {
    fn object(&self) -> Value {
        let PaneExamination { judgement, pane, .. } = self.examined;
        let object = json!({
            "pane": self.pane.binding().id,
            "socket": self.pane.binding().socket,
            "agent": self.agent,
            "provider": self.pane.profile().name(),
            "command": pane.command,
            "title": pane.title,
        });
        let mut object = with_members(object, judgement);
        for ((word, _), objection) in PURPOSES.iter().zip(&self.examined.objections) {
            let reason = objection.as_ref().map(Deferral::word);
            let verdict =
                TypingVerdict { allowed: reason.is_none(), reason, detail: objection.as_ref() };
            object["would"][word] = serde_json::to_value(verdict).unwrap_or_default();
        }
        object
    }

    fn print(&self, context: &Context) -> Outcome {
        let PaneExamination { judgement, pane, .. } = self.examined;
        let out = &context.out;
        let row = |name: &str, text: String| out.line(format!("{name:<9} {}", one_line(&text)));
        if let Some(agent) = &self.agent {
            row("agent", agent.to_string())?;
        }
        let (id, provider) = (&self.pane.binding().id, self.pane.profile().name());
        row("pane", format!("{id}, {provider}, running {}", pane.command))?;
        let AgentDiagnosis { state, deferral, .. } = &judgement.diagnosis;
        let style = if deferral.is_none() { GOOD } else { WARNING };
        out.line(format!("{:<9} {}", "state", out.paint(style, state.word())))?;
        for Evidence { source, what, text, .. } in &judgement.evidence {
            let source = serde_json::to_value(source).unwrap_or_default();
            let source = source.as_str().unwrap_or_default();
            row("evidence", format!("{source}: {what}: {text:?}"))?;
        }
        if let Some(reset) = &judgement.resets_at {
            let until = judgement.limited_until.map(|until| format!(" ({until})"));
            row("resets", format!("{reset}{}", until.unwrap_or_default()))?;
        }
        for ((word, _), objection) in PURPOSES.iter().zip(&self.examined.objections) {
            let verdict = match objection {
                None => "allowed now".to_owned(),
                Some(deferral) => format!("not now: {} ({deferral})", deferral.word()),
            };
            row(word, verdict)?;
        }
        Ok(())
    }
}
