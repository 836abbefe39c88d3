//! Who reads a mailbox on this host, for the ladders of its tasks.

use std::collections::BTreeSet;
use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::driver::{LadderFile, LadderHost, MailboxReader};
use ensemble_core::message::Name;
use ensemble_team::roster::Member;
use ensemble_tmux::provider::Profiles;

use crate::panes::{self, PaneEntry};
use crate::{LadderClaim, Project, TeamLink};

/// Runs ladders for a command where no watcher does. It types the lines itself.
pub struct ForegroundHost {
    project: Project,
    profiles: Profiles,
    claims: Option<Box<dyn LadderClaim>>,
}

impl ForegroundHost {
    /// The agents of this project. A team of several hosts claims a mailbox before it runs its ladders.
    pub fn new(project: &Project, team: Option<&Arc<dyn TeamLink>>) -> Result<Self> {
        let claims = team.map(|team| Arc::clone(team).ladder_claims(&project.state));
        Ok(Self { project: project.clone(), profiles: project.profiles()?, claims })
    }

    fn team(&self) -> Result<(Vec<PaneEntry>, Vec<Member>)> {
        let (entries, _) = panes::read_all(&self.project.panes())?;
        let (members, _) = self.project.roster().entries()?;
        Ok((entries, members))
    }
}

impl LadderHost for ForegroundHost {
    fn reader(&self, mailbox: &Name) -> Result<MailboxReader> {
        let (entries, members) = self.team()?;
        reader_of(&self.project, &self.profiles, mailbox, &entries, &members)
    }

    fn may_run(&self, mailbox: &Name, is_handing_out: bool) -> Result<bool> {
        let Some(claims) = &self.claims else { return Ok(true) };
        let (entries, members) = self.team()?;
        let has_reader = !readers_of(mailbox, &entries, &members).is_empty();
        claims.hold(mailbox, has_reader, is_handing_out)
    }

    fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>> {
        self.claims.as_ref().map_or_else(|| Ok(Vec::new()), |claims| claims.given_up(mailbox))
    }
}

pub fn readers_of<'t>(
    mailbox: &Name,
    entries: &'t [PaneEntry],
    members: &'t [Member],
) -> BTreeSet<&'t Name> {
    let bound = entries.iter().filter(|entry| entry.mailbox == *mailbox);
    let reads = |member: &&Member| member.mailbox == *mailbox && member.is_present();
    let members = members.iter().filter(reads).map(|member| &member.name);
    bound.map(|entry| &entry.agent).chain(members).collect()
}

/// The readers of a mailbox: the agents that are bound to it, and the members that read it without
/// a pane.
pub fn reader_of(
    project: &Project,
    profiles: &Profiles,
    mailbox: &Name,
    entries: &[PaneEntry],
    members: &[Member],
) -> Result<MailboxReader> {
    let bound: Vec<&PaneEntry> = entries.iter().filter(|e| e.mailbox == *mailbox).collect();
    let agents = readers_of(mailbox, entries, members);
    let only = if agents.len() == 1 { agents.first() } else { None };
    let agent = only.map_or(mailbox, |agent| *agent).clone();
    let [entry] = bound[..] else {
        let config = project.config.ladder_for(None);
        return Ok(MailboxReader::new(agent, config).of(agents.len().max(1)));
    };
    let profile = profiles.get(&entry.provider)?;
    let config = project.config.ladder_for(Some(&profile));
    let pane = project.open_pane(entry, profile)?;
    let place = format!("{:?}", entry.binding);
    let reader = MailboxReader::new(agent, config).in_pane(Box::new(pane), place);
    Ok(reader.of(agents.len().max(1)))
}
