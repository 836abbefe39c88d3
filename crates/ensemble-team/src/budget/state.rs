//! `.ensemble/budget.json`: what was allowed, and what is parked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::durable::{Durability, read_file};
use ensemble_core::message::{Name, Timestamp, describe_json_fault};
use ensemble_core::{Error, Result, allow_misplaced};
use serde::{Deserialize, Serialize};

use super::{BudgetLimit, BudgetOverrun, BudgetScope};

const FILE: &str = "budget.json";
/// The newest format that this reads, and the one that it writes.
const VERSION: u32 = 1;
const BYTES_MAX: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParkedScope {
    #[serde(flatten)]
    pub scope: BudgetScope,
    pub limit: BudgetLimit,
    pub used: BudgetLimit,
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AllowedBudget {
    #[serde(flatten)]
    scope: BudgetScope,
    more: BudgetLimit,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct BudgetContent {
    version: u32,
    allowed: Vec<AllowedBudget>,
    parked: Vec<ParkedScope>,
}

#[derive(Clone, Debug)]
pub struct BudgetFile {
    dir: PathBuf,
}

#[derive(Debug)]
pub struct LockedBudget {
    document: LockedDocument,
    content: BudgetContent,
}

impl BudgetFile {
    /// The file below this state directory, `.ensemble`. Nothing is opened yet.
    pub fn open(state_dir: &Path) -> Self {
        Self { dir: state_dir.to_owned() }
    }

    pub fn parked(&self) -> Result<Vec<ParkedScope>> {
        Ok(self.read()?.parked)
    }

    /// The parked budgets, for doors: a damaged file stops no work.
    pub fn stands_in_the_way(&self) -> Result<Vec<ParkedScope>> {
        match self.parked() {
            Err(Error::Malformed { .. }) => Ok(Vec::new()),
            other => other,
        }
    }

    /// The parked scope that keeps this agent from beginning this task; without a task, from taking up anything.
    pub fn obstacle(&self, task: Option<&str>, agent: &Name) -> Result<Option<ParkedScope>> {
        let concerns = |parked: &ParkedScope| match &parked.scope {
            BudgetScope::Team => true,
            BudgetScope::Agent(name) => name == agent,
            BudgetScope::Task(parked) => task == Some(parked),
        };
        Ok(self.stands_in_the_way()?.into_iter().find(concerns))
    }

    fn read(&self) -> Result<BudgetContent> {
        let path = self.dir.join(FILE);
        match allow_misplaced(read_file(&path, BYTES_MAX))?.flatten() {
            Some(bytes) => parse(&bytes, &path),
            None => Ok(BudgetContent::default()),
        }
    }

    pub fn lock(&self) -> Result<LockedBudget> {
        let path = self.dir.join(FILE);
        let (bytes_max, durability) = (BYTES_MAX, Durability::Process);
        let options = DocumentOptions { bytes_max, durability, ..DocumentOptions::default() };
        let document = LockedDocument::lock_with(&path, PATIENCE, options)?;
        let content = match document.read()? {
            Some(bytes) => parse(&bytes, &path)?,
            None => BudgetContent::default(),
        };
        Ok(LockedBudget { document, content })
    }
}

impl LockedBudget {
    pub fn allowed(&self) -> impl Iterator<Item = (BudgetScope, BudgetLimit)> {
        self.content.allowed.iter().map(|allowed| (allowed.scope.clone(), allowed.more))
    }

    pub fn parked(&self) -> &[ParkedScope] {
        &self.content.parked
    }

    /// Allows more. The scope is parked no longer; the watcher parks it again if that is not enough.
    pub fn allow(&mut self, scope: &BudgetScope, more: BudgetLimit) {
        self.content.parked.retain(|parked| parked.scope != *scope);
        let sum = |a: Option<f64>, b: Option<f64>| a.map(|a| a + b.unwrap_or(0.0)).or(b);
        match self.content.allowed.iter_mut().find(|allowed| allowed.scope == *scope) {
            Some(allowed) => {
                let before = allowed.more;
                let tokens = before.tokens.map(|a| a.saturating_add(more.tokens.unwrap_or(0)));
                allowed.more =
                    BudgetLimit { usd: sum(before.usd, more.usd), tokens: tokens.or(more.tokens) };
            }
            None => self.content.allowed.push(AllowedBudget { scope: scope.clone(), more }),
        }
    }

    /// Parks exactly the scopes in `over`. Returns those that were not parked before.
    pub fn park(&mut self, over: Vec<BudgetOverrun>, now: Timestamp) -> Vec<ParkedScope> {
        let before = std::mem::take(&mut self.content.parked);
        let mut new = Vec::new();
        for BudgetOverrun { scope, limit, used } in over {
            let known = before.iter().find(|parked| parked.scope == scope && parked.limit == limit);
            self.content.parked.push(known.cloned().unwrap_or_else(|| {
                let parked = ParkedScope { scope, limit, used, since: now };
                new.push(parked.clone());
                parked
            }));
        }
        new
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The disk failed; the file is as it was.
    pub fn write(mut self) -> Result<()> {
        self.content.version = VERSION;
        let mut text = serde_json::to_string_pretty(&self.content).unwrap_or_default();
        text.push('\n');
        self.document.replace(text.as_bytes())
    }
}

fn parse(bytes: &[u8], path: &Path) -> Result<BudgetContent> {
    // A list would fill the fields in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Error::malformed(path, "file", "is not a JSON object"));
    }
    let content: BudgetContent = serde_json::from_slice(bytes)
        .map_err(|error| Error::malformed(path, "file", describe_json_fault(&error)))?;
    if content.version > VERSION {
        let detail = format!("is {}, this program reads {VERSION}", content.version);
        return Err(Error::malformed(path, "version", detail));
    }
    Ok(content)
}
