//! Determines who a caller is from where its call comes from rather than from what it claims.
//!
//! A member of the team is identified by the pass that it received when it was spawned, or by the process tree: the
//! caller is a descendant of the first process of its pane. A sandbox with a separate PID namespace (Codex's) hides
//! the tree. Only there, the pane named in the environment is used instead.
//!
//! ```text
//!  pass        tree       claimed name                       answer
//!  ────────────────────────────────────────────────────────────────────────────────────────────
//!  none        none       none                               outside, without a name
//!  none        none       of no member who is up             outside, that name
//!  none        none       of a member who is up or leaving   refused (unless outsiders are allowed)
//!  A's         A or none  none, or A                         A
//!  none        A          none, or A                         A
//!  none        hidden, in A's pane      as for the tree of A
//!  A's and/or A's tree    another                            refused: mismatch
//!  A's         B          any                                refused: contradiction
//!  unknown     any        any                                refused: unknown pass
//!  of one who was shut down                                  refused: it has ended
//! ```
//!
//! This stops mistakes and agents that were talked into something: a process keeps its pass and its
//! parents without doing anything for it. It does not stop a program of the same user that means
//! harm. Such a program can read another's pass, or leave its own tree and drop its own.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Member;
use ensemble_core::message::{Digest, Name, SenderProof};
use ensemble_tmux::provider::process;
use ensemble_tmux::tmux::Binding;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerEvidence {
    pass: Option<Digest>,
    line: Vec<(u32, u64)>,
    pane: Option<(PathBuf, String)>,
    hosted: Vec<String>,
}

impl CallerEvidence {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_pass(mut self, pass: &str) -> Self {
        self.pass = Some(Digest::of(pass.as_bytes()));
        self
    }

    /// The processes from which it comes: `pid` and its ancestors, as they are now.
    pub fn with_process(mut self, pid: u32) -> Self {
        self.line = process::line_of(pid);
        self
    }

    /// The addresses of panes of other multiplexers that the environment names. Each counts only if its first process is hidden from
    /// this process.
    pub fn with_hosted_panes(mut self, panes: Vec<String>) -> Self {
        self.hosted = panes;
        self
    }

    /// The pane that `TMUX` (socket, process of the server, session) and `TMUX_PANE` name, if that server is hidden
    /// from this process. Then the process runs in a sandbox whose process numbers are its own, or the server has
    /// ended. If the server is visible, the process tree decides, and this has no effect.
    pub fn with_hidden_pane(mut self, tmux: &str, pane: &str) -> Self {
        let mut from_the_end = tmux.rsplitn(3, ',').skip(1);
        let server = from_the_end.next().and_then(|pid| pid.parse::<u32>().ok());
        if let (Some(server), Some(socket)) = (server, from_the_end.next())
            && process::start_time(server).is_none()
        {
            self.pane = Some((socket.into(), pane.to_owned()));
        }
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityProof {
    Pass,
    ProcessTree,
    /// By the pane named in its environment, from a sandbox that hides the process tree.
    HiddenPane,
    /// Not at all: it is none of the team, and said its name itself.
    Claimed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerIdentity {
    /// The name to act under; `None` for an outsider that said none.
    pub name: Option<Name>,
    pub proof: IdentityProof,
}

impl CallerIdentity {
    /// Whether this is a member of the team, beyond what it says itself.
    pub fn is_member(&self) -> bool {
        self.proof != IdentityProof::Claimed
    }

    /// What a message of this process says of its sender: a process outside of all agents that gives no name, or the
    /// operator's, is the person.
    pub fn sender_proof(&self) -> Option<SenderProof> {
        match self.proof {
            IdentityProof::Pass => Some(SenderProof::Pass),
            IdentityProof::ProcessTree | IdentityProof::HiddenPane => Some(SenderProof::Pane),
            IdentityProof::Claimed => {
                let is_person = self.name.as_ref().is_none_or(Name::is_operator);
                is_person.then_some(SenderProof::Person)
            }
        }
    }
}

/// Whether a process outside of the team may act under the name of a member who is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OutsiderPolicy {
    /// No.
    #[default]
    Refuse,
    /// Yes: names are not checked outside of panes.
    Allow,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameRefusal {
    #[error("this is {actual}, known by {}, and not `{claimed}`: leave out `--as`", proof.words())]
    Mismatch { claimed: Name, actual: Name, proof: IdentityProof },
    #[error("`{claimed}` is an agent of the team, and only its own pane may use that name")]
    Outsider { claimed: Name },
    #[error("this runs in the pane of {tree} with the pass of {pass}: one of them is not its own")]
    Contradiction { pass: Name, tree: Name },
    #[error(
        "the pass in ENSEMBLE_AGENT_PASS belongs to no agent of the team (of an earlier run, perhaps): \
         start the agent again"
    )]
    UnknownPass { tree: Option<Name> },
    #[error("{name} was shut down: this is left over from it")]
    Ended { name: Name },
}

impl NameRefusal {
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Mismatch { .. } => "mismatch",
            Self::Outsider { .. } => "outsider",
            Self::Contradiction { .. } => "contradiction",
            Self::UnknownPass { .. } => "unknown_pass",
            Self::Ended { .. } => "ended",
        }
    }

    /// The caller's name, if it is known.
    pub const fn actual(&self) -> Option<&Name> {
        match self {
            Self::Mismatch { actual, .. } => Some(actual),
            Self::Contradiction { tree, .. } => Some(tree),
            Self::UnknownPass { tree } => tree.as_ref(),
            Self::Ended { name } => Some(name),
            Self::Outsider { .. } => None,
        }
    }
}

impl IdentityProof {
    const fn words(self) -> &'static str {
        match self {
            Self::Pass => "the pass it was given",
            Self::ProcessTree => "the pane it runs in",
            Self::HiddenPane => "the pane that its sandbox was started in",
            Self::Claimed => "its own word",
        }
    }
}

/// Finds out who is asking and whether it may use the name it claims. Without members there is no
/// name to protect, and a claim is accepted.
pub fn identify(
    members: &[Member],
    asking: &CallerEvidence,
    claimed: Option<&Name>,
    outsiders: OutsiderPolicy,
) -> Result<CallerIdentity, NameRefusal> {
    if members.is_empty() {
        return Ok(CallerIdentity { name: claimed.cloned(), proof: IdentityProof::Claimed });
    }
    let tree = by_tree(members, &asking.line);
    let by_pass = |pass: Digest| {
        let bearer = members.iter().find(|member| member.pass_sha256 == Some(pass));
        bearer.ok_or_else(|| NameRefusal::UnknownPass { tree: tree.map(|m| m.name.clone()) })
    };
    let pass = asking.pass.map(by_pass).transpose()?;
    if let Some(ended) = pass.filter(|member| !member.is_present()) {
        return Err(NameRefusal::Ended { name: ended.name.clone() });
    }
    let (actual, proof) = match (pass, tree) {
        (Some(pass), Some(tree)) if pass.name != tree.name => {
            let (pass, tree) = (pass.name.clone(), tree.name.clone());
            return Err(NameRefusal::Contradiction { pass, tree });
        }
        (Some(pass), _) => (pass, IdentityProof::Pass),
        (None, Some(tree)) => (tree, IdentityProof::ProcessTree),
        (None, None) => match by_hidden_pane(members, asking) {
            Some(member) => (member, IdentityProof::HiddenPane),
            None => return outside(members, claimed, outsiders),
        },
    };
    match claimed.filter(|claimed| **claimed != actual.name) {
        None => Ok(CallerIdentity { name: Some(actual.name.clone()), proof }),
        Some(claimed) => {
            let (claimed, actual) = (claimed.clone(), actual.name.clone());
            Err(NameRefusal::Mismatch { claimed, actual, proof })
        }
    }
}

fn outside(
    members: &[Member],
    claimed: Option<&Name>,
    outsiders: OutsiderPolicy,
) -> Result<CallerIdentity, NameRefusal> {
    // A supervisor that was killed protects its agent's name no longer: a person has to clean up.
    let is_there = |member: &Member| {
        member.is_present()
            && !(member.is_supervised_alone() && member.supervisor.is_some_and(|s| !s.lives()))
    };
    let is_taken =
        |name: &&Name| members.iter().any(|member| member.name == **name && is_there(member));
    match (claimed.filter(is_taken), outsiders) {
        (Some(taken), OutsiderPolicy::Refuse) => {
            Err(NameRefusal::Outsider { claimed: taken.clone() })
        }
        (Some(_), OutsiderPolicy::Allow) | (None, _) => {
            Ok(CallerIdentity { name: claimed.cloned(), proof: IdentityProof::Claimed })
        }
    }
}

/// The member whose pane the nearest of these processes is the first process of.
fn by_tree<'a>(members: &'a [Member], line: &[(u32, u64)]) -> Option<&'a Member> {
    let owner = |(pid, started): &(u32, u64)| {
        let is_it = |at: u32, since: Option<u64>| at == *pid && since == Some(*started);
        let by_pane = bound(members).find(|(_, it)| is_it(it.pid, it.started));
        let is_supervised = |member: &&Member| {
            member.is_present() && member.supervisor.is_some_and(|it| is_it(it.pid, it.started))
        };
        by_pane.map(|(member, _)| member).or_else(|| members.iter().find(is_supervised))
    };
    line.iter().find_map(owner)
}

fn by_hidden_pane<'a>(members: &'a [Member], asking: &CallerEvidence) -> Option<&'a Member> {
    let is_hidden = |it: &Binding| process::start_time(it.pid) != it.started;
    let is_around = |it: &Binding| asking.hosted.contains(&it.id);
    let hosted = || bound(members).find(|(_, it)| is_around(it) && is_hidden(it));
    let in_tmux = asking.pane.as_ref().and_then(|pane| by_pane(members, pane));
    in_tmux.or_else(|| hosted().map(|(member, _)| member))
}

fn by_pane<'a>(members: &'a [Member], (socket, id): &(PathBuf, String)) -> Option<&'a Member> {
    let same = |ours: &Path| {
        ours == socket
            || ours.canonicalize().is_ok_and(|ours| socket.canonicalize().is_ok_and(|s| s == ours))
    };
    let found = bound(members).find(|(_, it)| it.id == *id && same(&it.socket));
    found.map(|(member, _)| member)
}

fn bound(members: &[Member]) -> impl Iterator<Item = (&Member, &Binding)> {
    let present = members.iter().filter(|member| member.is_present());
    present.filter_map(|member| member.binding.as_ref().map(|binding| (member, binding)))
}

#[cfg(test)]
mod tests;
