//! Checking a queue: every file must be where its name says, and every message in one state.

use std::collections::HashMap;

use serde::Serialize;

use super::mailbox::OpenMailbox;
use super::place::{self, FrontFile, HeldFile};
use super::{Spool, former};
use crate::aside::{AsideFile, put_aside};
use crate::durable::Dir;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name, canonical, is_temporary_file};
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairAction {
    /// Nothing automatic: a person has to look.
    None,
    /// The file goes to the dead letters of its mailbox.
    DeadLetter,
    /// The file goes to `rejected/`, with its path and the problem beside it.
    SetAside,
    /// The side file belongs to nothing and is removed.
    Remove,
    /// The reason is written again as unknown.
    WriteReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueFinding {
    pub path: String,
    pub problem: String,
    pub repair: RepairAction,
    pub repaired: bool,
}

/// # Check and repair
impl Spool {
    /// Checks the whole queue, opening every message. With `repair`, repairs what can be repaired
    /// without losing anything.
    pub fn fsck(&self, repair: bool) -> Result<Vec<QueueFinding>> {
        let mut findings = self.check_names()?;
        findings.extend(self.check_strays(repair)?);
        for name in self.mailboxes()? {
            let checked =
                self.mailbox(&name).and_then(|mailbox| self.check_mailbox(&mailbox, repair));
            match checked {
                Ok(found) => findings.extend(found),
                Err(error) => {
                    let path = format!("mailbox/{name}");
                    findings.push(finding(path, error.to_string(), RepairAction::None));
                }
            }
        }
        Ok(findings)
    }

    /// Mailboxes whose names differ only in case are one on some file systems.
    fn check_names(&self) -> Result<Vec<QueueFinding>> {
        let mut seen: HashMap<String, Name> = HashMap::new();
        let mut findings = Vec::new();
        for name in self.mailboxes()? {
            if let Some(twin) = seen.insert(name.as_str().to_ascii_lowercase(), name.clone()) {
                findings.push(finding(
                    format!("mailbox/{name}"),
                    format!("differs only in case from `{twin}`"),
                    RepairAction::None,
                ));
            }
        }
        let entries = self.mailboxes_dir()?.names()?.into_iter();
        for entry in entries.filter(|entry| !is_temporary_file(entry)) {
            if let Err(error) = Name::new(entry.clone()) {
                findings.push(finding(
                    format!("mailbox/{}", entry.escape_debug()),
                    error.to_string(),
                    RepairAction::None,
                ));
            }
        }
        Ok(findings)
    }

    fn check_mailbox(&self, mailbox: &OpenMailbox, repair: bool) -> Result<Vec<QueueFinding>> {
        let mut findings = Vec::new();
        if let Err(error) = mailbox.settings() {
            findings.push(finding(
                format!("mailbox/{}/mailbox.yaml", mailbox.name),
                error.to_string(),
                RepairAction::None,
            ));
        }
        let mut places: HashMap<MessageId, Vec<(&'static str, String)>> = HashMap::new();
        for (state, dir) in directories(mailbox) {
            for file in dir.names()? {
                let id = id_in(state, &file);
                let found = self.check_file(mailbox, (state, dir), &file, id.as_ref(), repair)?;
                if let Some(id) = id.filter(|_| !found.as_ref().is_some_and(|f| f.repaired)) {
                    places.entry(id).or_default().push((state, file));
                }
                findings.extend(found);
            }
        }
        for places in places.into_values().filter(|places| places.len() > 1) {
            findings.extend(several_states(mailbox, &places)?);
        }
        findings.extend(self.check_side_files(mailbox, repair)?);
        Ok(findings)
    }

    fn check_file(
        &self,
        mailbox: &OpenMailbox,
        (state, dir): (&'static str, &Dir),
        file: &str,
        id: Option<&MessageId>,
        repair: bool,
    ) -> Result<Option<QueueFinding>> {
        let path = format!("mailbox/{}/{state}/{}", mailbox.name, file.escape_debug());
        let found = match id {
            Some(id) => check_content(dir, state, file, id, path)?.map(|mut found| {
                found.repaired = repair && self.mend(mailbox, (state, dir), file, id, &found);
                found
            }),
            None if is_side_file(state, file) => None,
            None => {
                let problem = "is not a message: its name says nothing".to_owned();
                let mut found = finding(path, problem, RepairAction::SetAside);
                found.repaired = repair && self.set_aside(dir, file, &found).is_ok();
                Some(found)
            }
        };
        Ok(found)
    }

    /// Reasons without letters, letters without reasons, extensions of leases that have ended.
    fn check_side_files(&self, mailbox: &OpenMailbox, repair: bool) -> Result<Vec<QueueFinding>> {
        let mut findings = Vec::new();
        for (id, epoch) in former::side_files(mailbox)? {
            if !former::is_needed(mailbox, &id, epoch)? {
                let file = place::lease(&id, epoch);
                let mut found = finding(
                    format!("mailbox/{}/lease/{file}", mailbox.name),
                    "extends a lease that has ended".to_owned(),
                    RepairAction::Remove,
                );
                found.repaired = repair && mailbox.lease.remove(&file).is_ok();
                findings.push(found);
            }
        }
        for id in mailbox.dead.list(place::parse_plain)? {
            if self.read_reason(mailbox, &id)?.is_none() {
                let path = format!("mailbox/{}/dead/{id}.yaml", mailbox.name);
                let mut found = finding(
                    path,
                    "has no readable reason beside it".to_owned(),
                    RepairAction::WriteReason,
                );
                let lost = self.reason_now("unknown: the reason was lost", None, 0);
                found.repaired = repair && self.write_reason(mailbox, &id, &lost).is_ok();
                findings.push(found);
            }
        }
        Ok(findings)
    }

    fn mend(
        &self,
        mailbox: &OpenMailbox,
        (state, dir): (&str, &Dir),
        file: &str,
        id: &MessageId,
        found: &QueueFinding,
    ) -> bool {
        match (state, HeldFile::parse(file)) {
            _ if found.repair == RepairAction::SetAside => self.set_aside(dir, file, found).is_ok(),
            ("new" | "front", _) => {
                self.dead_letter_waiting(&mailbox.name, id, &found.problem).is_ok()
            }
            ("cur", Some(held)) => self.bury(mailbox, &held, &found.problem).is_ok(),
            _ => false,
        }
    }

    fn set_aside(&self, dir: &Dir, file: &str, found: &QueueFinding) -> Result<String> {
        let aside = AsideFile::at(found.path.clone());
        put_aside(&self.queue_dir()?, dir, file, &aside, &found.problem)
    }
}

/// Besides dead letters, `dead/` contains their reasons and duplicates of messages that were set
/// aside.
fn is_side_file(state: &str, file: &str) -> bool {
    state == "dead" && (place::parse_reason(file).is_some() || place::is_double(file))
}

/// A message in two places, unless it has only moved on while they were listed.
fn several_states(
    mailbox: &OpenMailbox,
    places: &[(&'static str, String)],
) -> Result<Option<QueueFinding>> {
    let mut still = Vec::new();
    for (state, file) in places {
        let dir = directories(mailbox).into_iter().find(|(name, _)| name == state);
        if let Some((_, dir)) = dir
            && dir.stat(file)?.is_some()
        {
            still.push(*state);
        }
    }
    let path = format!("mailbox/{}/{}/{}", mailbox.name, places[0].0, places[0].1);
    let problem = format!("is in several states: {}", still.join(", "));
    Ok((still.len() > 1).then(|| finding(path, problem, RepairAction::None)))
}

fn directories(mailbox: &OpenMailbox) -> [(&'static str, &Dir); 5] {
    [
        ("new", &mailbox.new),
        ("front", &mailbox.front),
        ("cur", &mailbox.cur),
        ("done", &mailbox.done),
        ("dead", &mailbox.dead),
    ]
}

fn id_in(state: &str, file: &str) -> Option<MessageId> {
    match state {
        "front" => FrontFile::parse(file).map(|f| f.id),
        "cur" => HeldFile::parse(file).map(|h| h.id),
        _ => place::parse_plain(file),
    }
}

fn check_content(
    dir: &Dir,
    state: &str,
    file: &str,
    id: &MessageId,
    path: String,
) -> Result<Option<QueueFinding>> {
    // A dead letter may be dead because it cannot be read; settled ones are history.
    let repair = if matches!(state, "dead" | "done") {
        RepairAction::None
    } else {
        RepairAction::DeadLetter
    };
    match dir.read(file, ENVELOPE_BYTES_MAX) {
        Ok(None) => Ok(None),
        Ok(Some(_)) if state == "dead" => Ok(None),
        // Nothing is lost: a power cut tore the message before its sender could learn that it was
        // stored, or after its holder had read it.
        Ok(Some(content)) if canonical::is_torn(&content) => {
            let problem = "was cut by a power cut before it was stored".to_owned();
            Ok((state != "done").then(|| finding(path, problem, RepairAction::SetAside)))
        }
        Ok(Some(content)) => match Envelope::decode(&content, &dir.path().join(place::plain(id))) {
            Ok(envelope) if envelope.id == *id => Ok(None),
            Ok(envelope) => {
                Ok(Some(finding(path, format!("carries the id `{}`", envelope.id), repair)))
            }
            Err(error) => Ok(Some(finding(path, error.to_string(), repair))),
        },
        Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => {
            Ok(Some(finding(path, error.to_string(), repair)))
        }
        Err(error) => Err(error),
    }
}

const fn finding(path: String, problem: String, repair: RepairAction) -> QueueFinding {
    QueueFinding { path, problem, repair, repaired: false }
}
