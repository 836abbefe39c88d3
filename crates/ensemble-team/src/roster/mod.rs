//! The team: who belongs to it, where each runs, and who is asking. In seed 004, "Shutdown", a
//! member's status is what the team's file says, and must be true.
//!
//! Each agent has one file, `.ensemble/roster/<name>.yaml`, so that two agents never wait for each
//! other. It is changed under its own lock and replaced as a whole, so reading needs no lock and
//! sees the old or the new content. It says what is *meant* to be; what is the case is observed.
//!
//! ```text
//!              spawn, join                request, down               its processes are gone
//!   (no file) ─────────────▶ up ──────────────────────▶ leaving ─────────────────────────────▶ shutdown
//!                            ▲  ◀── rejected, cancelled ───┘                                       │
//!                            └──────────────────── spawn, join: generation + 1 ────────────────────┘
//! ```
//!
//! A crash leaves a file as it was before or after a change. The writer of a change orders it with
//! the changes to panes and processes: docs/protocol/roster.md.

mod identity;
mod member;
mod place;
mod presence;
mod reported;
mod supervised;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::durable::{Dir, FileModes};
use ensemble_core::message::{Name, ReservedName, Timestamp, yaml};
use ensemble_core::{AreaError, Error, Result, allow_misplaced};

pub use identity::{
    CallerEvidence, CallerIdentity, IdentityProof, NameRefusal, OutsiderPolicy, identify,
};
pub use member::{
    EndCause, Member, MemberEnd, MemberOrigin, MemberState, ROSTER_VERSION, SupervisorProcess,
};
pub use place::RecordedPlace;
pub use presence::{PaneObservation, Presence, PresenceEvidence, State, presence};
pub use reported::ReportedActivity;
pub use supervised::{Enrolment, SupervisorFarewell};

pub const ROSTER_DIRECTORY: &str = "roster";
pub const MEMBER_BYTES_MAX: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);
const FILE_END: &str = ".yaml";

/// The roster was not changed. Callers find it by [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    #[error("the roster has no agent `{agent}`")]
    Unknown { agent: Name },
    #[error("member `{member}` cannot be written as `{name}`")]
    OtherName { name: Name, member: Name },
    #[error("`{agent}` is an agent of the team on host {host}")]
    Elsewhere { agent: Name, host: Name },
    #[error("pane {pane} belongs to {owner}: each agent needs its own pane")]
    PaneTaken { pane: String, owner: Name },
}

impl AreaError for RosterError {
    fn is_invariant_broken(&self) -> bool {
        !matches!(self, Self::Elsewhere { .. } | Self::PaneTaken { .. })
    }
}

#[derive(Clone, Debug)]
pub struct Roster {
    dir: PathBuf,
    state: PathBuf,
    people: Vec<Name>,
}

/// Refuses a name that no agent may take: a reserved one, or that of a person who runs the team.
pub fn refuse_agent(name: &Name, people: &[Name]) -> Result<()> {
    if people.contains(name) {
        let meaning = "a person who runs the team";
        return Err(ReservedName { name: name.clone(), meaning }.into());
    }
    Ok(ReservedName::refuse_agent(name)?)
}

impl Roster {
    /// The roster below this state directory. Nothing is opened or made yet.
    pub fn open(state_dir: &Path) -> Self {
        let dir = state_dir.join(ROSTER_DIRECTORY);
        Self { dir, state: state_dir.to_owned(), people: Vec::new() }
    }

    /// The same in a team that these people run: no agent takes one of their names.
    #[must_use]
    pub fn with_people(self, people: &[Name]) -> Self {
        Self { people: people.to_vec(), ..self }
    }

    /// The people who are named; none for `operator` alone.
    pub fn people(&self) -> &[Name] {
        &self.people
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All members by name, and beside them what could not be read. No roster is an empty one.
    pub fn entries(&self) -> Result<(Vec<Member>, Vec<Error>)> {
        let (mut members, mut errors) = (Vec::new(), Vec::new());
        let Some(dir) = self.directory()? else { return Ok((members, errors)) };
        let mut names: Vec<Name> = dir
            .names()?
            .iter()
            .filter_map(|file| file.strip_suffix(FILE_END))
            .filter_map(|name| Name::new(name).ok())
            .collect();
        names.sort_unstable();
        for name in names {
            match read(&dir, &name) {
                Ok(Some(member)) => members.push(member),
                // Removed in the meantime.
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        Ok((members, errors))
    }

    /// One member; `None` if the roster does not know the name.
    pub fn get(&self, name: &Name) -> Result<Option<Member>> {
        match self.directory()? {
            Some(dir) => read(&dir, name),
            None => Ok(None),
        }
    }

    /// Changes one member under the lock of its file, and returns it as it is then. `change` gets
    /// what is recorded and returns what is to be, or `None` to leave it. It must start no program.
    ///
    /// Blocks for at most 5 s while others change the same member.
    ///
    /// # Errors
    /// [`Error::Locked`] names who holds the lock. [`Error::Malformed`] if the file is none of the
    /// roster (it is left as it is). Any error that `change` returns. Or the disk failed. After an
    /// error the file is as it was.
    pub fn change(
        &self,
        name: &Name,
        change: impl FnOnce(Option<Member>) -> Result<Option<Member>>,
    ) -> Result<Option<Member>> {
        let state = Dir::open(&self.state)?;
        let dir = state.ensure_child(ROSTER_DIRECTORY, FileModes::default())?;
        let path = dir.path().join(format!("{name}{FILE_END}"));
        let options = DocumentOptions { bytes_max: MEMBER_BYTES_MAX, ..DocumentOptions::default() };
        let document = LockedDocument::lock_with(&path, PATIENCE, options)?;
        let content = document.read()?;
        let current = content.map(|text| Member::parse(&text, name, &path)).transpose()?;
        match change(current.clone())? {
            None => Ok(current),
            Some(member) if member.name != *name => {
                Err(RosterError::OtherName { name: name.clone(), member: member.name }.into())
            }
            Some(member) => {
                // A member with such a name from before it was reserved can still be changed.
                if current.is_none() {
                    refuse_agent(name, &self.people)?;
                }
                let place = RecordedPlace::of(&self.dir);
                let written = Member { place, ..member.clone() };
                document.replace(yaml::render(&written).as_bytes())?;
                Ok(Some(member))
            }
        }
    }

    /// Notes that a member has agreed to its shutdown at this time: from now on it begins no work. The watcher ends
    /// it; where none runs, it stays `leaving` until one does. A member that was brought up since is not changed: the
    /// asked generation decides, regardless of clocks, or the time stamps if there is none.
    pub fn agree_to_leave(&self, name: &Name, asked: Option<u64>, at: Timestamp) -> Result<()> {
        if self.get(name)?.is_none() {
            return Ok(());
        }
        self.change(name, |member| {
            let is_same = |m: &Member| asked == Some(m.generation) || m.since <= at;
            let is_meant = |m: &Member| m.state == MemberState::Up && is_same(m);
            Ok(member.filter(is_meant).map(|mut member| {
                (member.state, member.since) = (MemberState::Leaving, at);
                member
            }))
        })
        .map(drop)
    }

    fn directory(&self) -> Result<Option<Dir>> {
        allow_misplaced(Dir::open(&self.dir))
    }
}

fn read(dir: &Dir, name: &Name) -> Result<Option<Member>> {
    let file = format!("{name}{FILE_END}");
    let Some(content) = dir.read(&file, MEMBER_BYTES_MAX)? else { return Ok(None) };
    Member::parse(&content, name, &dir.path().join(&file)).map(Some)
}

#[cfg(test)]
mod tests;
