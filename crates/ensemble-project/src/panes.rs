//! Which agent runs in which pane: `.ensemble/panes/<agent>.yaml`.

use std::path::Path;
use std::sync::Arc;

use ensemble_core::durable::{self, Dir, Durability};
use ensemble_core::message::{Name, ReservedName, yaml};
use ensemble_core::{Error, Result, allow_missing};
use ensemble_team::roster::{Member, PaneObservation, RecordedPlace};
use ensemble_tmux::provider::Profile;
use ensemble_tmux::terminal::BoundPane;
use ensemble_tmux::tmux::{Binding, TmuxServer};
use serde::{Deserialize, Serialize};

use crate::sources::AgentSources;

/// The largest such file, in bytes.
const BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaneEntry {
    pub agent: Name,
    pub mailbox: Name,
    /// Which program it is; names a profile.
    pub provider: String,
    /// The pane, beyond doubt.
    pub binding: Binding,
    /// Directory in which the file was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<RecordedPlace>,
}

impl PaneEntry {
    pub fn new(agent: Name, mailbox: Name, provider: impl Into<String>, binding: Binding) -> Self {
        Self { agent, mailbox, provider: provider.into(), binding, place: None }
    }

    /// The place of a member; `None` if it has no pane.
    pub fn of(member: &Member) -> Option<Self> {
        let (agent, mailbox) = (member.name.clone(), member.mailbox.clone());
        let (provider, binding) = (member.provider.clone(), member.binding.clone()?);
        Some(Self::new(agent, mailbox, provider, binding))
    }

    /// The pane itself, with the agent of `profile` in it. Also uses what agents report over their own interfaces
    /// ([`Project::sources`](crate::project::Project::sources)). `server` may be shared between panes; `locks` is
    /// [`Project::locks`](crate::project::Project::locks).
    pub fn open(
        &self,
        server: TmuxServer,
        profile: Arc<Profile>,
        sources: &AgentSources,
        locks: &Path,
    ) -> Result<BoundPane> {
        let observer = sources.observer(Some(&self.agent), profile);
        BoundPane::open(server, self.binding.clone(), observer, locks)
    }
}

pub fn observe(pane: &mut BoundPane) -> PaneObservation {
    match pane.diagnose() {
        Ok(diagnosis) => PaneObservation::Seen(diagnosis),
        Err(_) => match pane.check() {
            Ok(Some(deferral)) => PaneObservation::Missing(deferral),
            Ok(None) | Err(_) => PaneObservation::Unseen,
        },
    }
}

pub fn find(panes: &Path, agent: &Name) -> Result<Option<PaneEntry>> {
    let Some(dir) = allow_missing(Dir::open(panes))? else { return Ok(None) };
    read(&dir, &format!("{agent}.yaml"))
}

/// All bindings of a project, by agent; files that cannot be read are reported beside them.
pub fn read_all(panes: &Path) -> Result<(Vec<PaneEntry>, Vec<Error>)> {
    let Some(dir) = allow_missing(Dir::open(panes))? else { return Ok((Vec::new(), Vec::new())) };
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    let mut names = dir.names()?;
    names.sort_unstable();
    for file in names.iter().filter(|file| file.ends_with(".yaml") && !file.starts_with('.')) {
        match read(&dir, file) {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    Ok((entries, errors))
}

fn read(dir: &Dir, file: &str) -> Result<Option<PaneEntry>> {
    let Some(content) = dir.read(file, BYTES_MAX)? else { return Ok(None) };
    let path = dir.path().join(file);
    let mut entry: PaneEntry = yaml::parse(&String::from_utf8_lossy(&content), &path)?;
    // In a copy of the project, its pane is that of the original.
    let is_copied = entry.place.take().is_some_and(|it| it.original_of(dir.path()).is_some());
    Ok((!is_copied).then_some(entry))
}

/// Writes an agent's place. No agent has a reserved name, and none reads the person's mail.
pub fn write(panes: &Path, entry: &PaneEntry) -> Result<()> {
    ReservedName::refuse_agent(&entry.agent)?;
    ReservedName::refuse_agent(&entry.mailbox)?;
    let path = panes.join(format!("{}.yaml", entry.agent));
    let written = PaneEntry { place: RecordedPlace::of(panes), ..entry.clone() };
    durable::write_document(&path, yaml::render(&written).as_bytes(), Durability::Process)
}

/// Forgets an agent's place. Returns whether there was one.
pub fn forget(panes: &Path, agent: &Name) -> Result<bool> {
    let path = panes.join(format!("{agent}.yaml"));
    let removed = std::fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error));
    Ok(allow_missing(removed)?.is_some())
}
