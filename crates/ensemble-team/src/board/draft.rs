//! A copy of the board that a person edits. It replaces the board if it is valid and the board has
//! not changed since.

use serde_json::json;

use super::journal::JournalEntry;
use super::locked::write;
use super::shared::HeldBoard;
use super::text::YamlText;
use super::{Board, State, load};
use super::{BoardError, BoardObstacle, Violation};
use ensemble_core::Result;

#[derive(Clone, Debug)]
pub struct BoardDraft {
    before: String,
}

impl Board {
    /// Copies the board, even a broken one.
    pub fn draft(&self) -> Result<BoardDraft> {
        Ok(BoardDraft { before: self.read_text()? })
    }
}

impl BoardDraft {
    pub fn text(&self) -> &str {
        &self.before
    }

    /// Replaces the board with an edited text, as the next revision. Returns the new board's content, or `None` if
    /// the text was not edited.
    ///
    /// # Errors
    /// [`Error::Malformed`](ensemble_core::Error::Malformed) and
    /// [`BoardError::Invalid`](crate::board::BoardError::Invalid) if it is not a valid board, with all violations;
    /// [`BoardError::NotAllowed`] if the board has changed since it was copied. On an error the board is unchanged.
    pub fn apply(&self, board: &Board, edited: &str) -> Result<Option<State>> {
        if edited == self.before {
            return Ok(None);
        }
        let (text, mut value, state) = load(edited, &board.path)?;
        self.check_warnings(&state, board)?;
        let (mut document, current) = board.hold()?;
        if current != self.before {
            let why = BoardObstacle::ChangedSinceCopy;
            return Err(BoardError::not_allowed("replace the board by the edited copy", why));
        }
        if matches!(document, HeldBoard::File(_)) {
            JournalEntry::recover(&board.path, &current, &board.options)?;
        }
        // Revision and epoch only grow, no matter what was edited. A broken board has neither.
        let old =
            YamlText::parse(&current, &board.path).map(|text| text.value()).unwrap_or_default();
        let number = |name: &str| old.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let revision = state.revision.max(number("revision")) + 1;
        let epoch = state.epoch.max(number("epoch"));
        if let serde_json::Value::Object(fields) = &mut value {
            super::schema::set(fields, super::schema::BOARD, "revision", revision);
            if epoch > 0 {
                super::schema::set(fields, super::schema::BOARD, "epoch", epoch);
            }
        }
        super::stamps::fold_into(&mut value, &state, board.beside());
        let new = text.update(&value, &board.path)?;
        let (_, _, state) = load(new.source(), &board.path)?;
        let data = json!({ "steps": [{ "what": "board.edited_by_hand" }], "count": 1 });
        write(board, &mut document, revision, (&current, new.source()), data)?;
        Ok(Some(state))
    }

    /// Refuses new invalid values even if nothing depends on them, because the person is still editing and can fix
    /// them.
    fn check_warnings(&self, edited: &State, board: &Board) -> Result<()> {
        let before = load(&self.before, &board.path);
        let known = before.map(|(_, _, state)| state.warnings).unwrap_or_default();
        let violations: Vec<Violation> =
            edited.warnings.iter().filter(|new| !known.contains(new)).cloned().collect();
        match violations.is_empty() {
            true => Ok(()),
            false => Err(BoardError::Invalid { path: board.path.clone(), violations }.into()),
        }
    }
}
