//! The locked board: the only place where the board can be changed.

use serde_json::{Map, Value, json};

use super::BoardError;
use super::journal::JournalEntry;
use super::schema::{self, BOARD, BoardField, TASK};
use super::shape::{is_alike, with_only_entry};
use super::shared::HeldBoard;
use super::stamps;
use super::state::{BoardTask, State};
use super::text::YamlText;
use super::{Board, Violation, decode, load, validated};
use ensemble_core::message::{Name, Timestamp, nearest};
use ensemble_core::{Error, Result};

const STEPS_TOLD_MAX: usize = 16;
const NEAREST_MAX: usize = 3;

/// A board that no other process can change until this is dropped. Nothing is written before
/// [`LockedBoard::commit`]; without it the board stays unchanged.
#[derive(Debug)]
pub struct LockedBoard<'a> {
    board: &'a Board,
    document: HeldBoard<'a>,
    source: String,
    text: YamlText,
    value: Value,
    state: State,
    /// The invalid values that were read.
    warnings: Vec<Violation>,
    steps: Vec<Value>,
}

impl<'a> LockedBoard<'a> {
    pub(super) fn new(board: &'a Board) -> Result<Self> {
        let (document, source) = board.hold()?;
        if matches!(document, HeldBoard::File(_)) {
            JournalEntry::recover(&board.path, &source, &board.options)?;
        }
        let (text, value, state) = load(&source, &board.path)?;
        let (warnings, steps) = (state.warnings.clone(), Vec::new());
        Ok(Self { board, document, source, text, value, state, warnings, steps })
    }

    /// The board's content, with the changes so far.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Writes the changes, if there are any, with one rename and one log record. Returns the new
    /// content of the board.
    ///
    /// # Errors
    /// [`BoardError::WouldBreak`] with all rules that the changed board would break; [`Error::Malformed`] if
    /// its layout cannot be changed; or the disk failed. Nothing was written then (or, if only the
    /// directory could not be synced, all of it).
    pub fn commit(mut self) -> Result<State> {
        if self.value == self.text.value() {
            return Ok(self.state);
        }
        self.fold();
        let revision = self.state.revision + 1;
        self.set("revision", revision);
        let state =
            validated(&self.value, &self.board.path).map_err(|error| match error.into_area() {
                Ok(BoardError::Invalid { path, violations }) => {
                    BoardError::WouldBreak { path, violations }.into()
                }
                Ok(other) => other.into(),
                Err(other) => other,
            })?;
        let is_new = |warning: &&Violation| !self.warnings.contains(warning);
        let violations: Vec<Violation> = state.warnings.iter().filter(is_new).cloned().collect();
        if !violations.is_empty() {
            let path = self.board.path.clone();
            return Err(BoardError::WouldBreak { path, violations }.into());
        }
        let text = self.text.update(&self.value, &self.board.path)?;
        let told = self.steps.len().min(STEPS_TOLD_MAX);
        let data = json!({ "steps": self.steps[..told], "count": self.steps.len() });
        let contents = (self.source.as_str(), text.source());
        write(self.board, &mut self.document, revision, contents, data)?;
        Ok(state)
    }

    /// Shows beats since the last write. Returns whether there were any.
    pub(super) fn fold(&mut self) -> bool {
        stamps::fold_into(&mut self.value, &self.state, self.board.beside())
    }

    pub(super) const fn board(&self) -> &'a Board {
        self.board
    }

    pub(super) fn now(&self) -> Timestamp {
        self.board.options.clock.wall()
    }

    pub(super) fn draw_epoch(&mut self) -> u64 {
        let epoch = self.state.epoch + 1;
        self.set("epoch", epoch);
        self.state.epoch = epoch;
        epoch
    }

    pub(super) fn record_step(&mut self, what: &str, step: Value) {
        let mut told = json!({ "what": what });
        if let (Some(told), Value::Object(step)) = (told.as_object_mut(), step) {
            told.extend(step.into_iter().filter(|(_, value)| !value.is_null()));
        }
        self.steps.push(told);
    }

    pub(super) const fn value_mut(&mut self) -> &mut Value {
        &mut self.value
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        if let Value::Object(board) = &mut self.value {
            schema::set(board, BOARD, name, value);
        }
    }

    /// A top-level list or mapping, created if needed. What a person wrote in its place becomes its first entry.
    pub(super) fn section(&mut self, name: &str, empty: Value) -> &mut Value {
        match self.value.get(name) {
            None | Some(Value::Null) => self.set(name, empty),
            Some(value) if !is_alike(value, &empty) => {
                let entry = value.clone();
                self.set(name, with_only_entry(entry, &empty));
            }
            Some(_) => {}
        }
        &mut self.value[name]
    }

    pub(super) fn append(&mut self, name: &str, item: Value) {
        if let Value::Array(items) = self.section(name, json!([])) {
            items.push(item);
        }
    }

    pub(super) fn refresh(&mut self) -> Result<()> {
        // Do not check the rules here: a change may take several steps. They are checked before
        // writing.
        self.state = decode(&self.value)
            .0
            .map_err(|error| Error::malformed(&self.board.path, "file", error.to_string()))?;
        Ok(())
    }

    pub(super) fn task(&self, id: &Name) -> Result<&BoardTask> {
        self.state.require_task(id)
    }

    pub(super) fn fields(&mut self, id: &Name) -> Result<EntryFields<'_>> {
        let at = self.state.position(id).ok_or_else(|| not_on_board(&self.state, id))?;
        match self.value["tasks"].get_mut(at) {
            Some(Value::Object(object)) => Ok(EntryFields { object, fields: TASK }),
            _ => Err(not_on_board(&self.state, id)),
        }
    }
}

/// Replaces the board and records the write. The lock must be held.
pub(super) fn write(
    board: &Board,
    document: &mut HeldBoard<'_>,
    revision: u64,
    contents: (&str, &str),
    data: Value,
) -> Result<()> {
    let mut last = JournalEntry::new(revision, contents, &board.options.actor, data);
    let document = match document {
        HeldBoard::File(document) => document,
        HeldBoard::Shared(shared) => return shared.write(board, &last, contents.1),
    };
    last.write(&board.path)?;
    document.replace(contents.1.as_bytes())?;
    last.log(&board.path, &board.options)
}

pub(super) struct EntryFields<'a> {
    pub(super) object: &'a mut Map<String, Value>,
    pub(super) fields: &'static [BoardField],
}

impl EntryFields<'_> {
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        schema::set(self.object, self.fields, name, value);
        self
    }

    pub(super) fn clear(&mut self, names: &[&str]) -> &mut Self {
        for name in names {
            self.set(name, Value::Null);
        }
        self
    }

    pub(super) fn push(&mut self, name: &str, item: Value) -> &mut Self {
        if let Some(Value::Array(items)) = self.object.get_mut(name) {
            items.push(item);
            return self;
        }
        self.set(name, json!([item]))
    }
}

pub(super) fn not_on_board(state: &State, id: &Name) -> Error {
    let near = nearest(id.as_str(), state.tasks.iter().map(|task| task.id.as_str()));
    let nearest = near.into_iter().take(NEAREST_MAX).map(str::to_owned).collect();
    BoardError::Unknown { what: "task", id: id.to_string(), nearest }.into()
}
