//! Whether a turn of an agent begins that its screen does not show yet.

use std::fmt;
use std::sync::Arc;

/// Asks a witness, such as the session file of the agent's hooks. The default never says so.
///
/// An agent that was just handed its mail looks idle for a moment. A line typed then would be left in the composer.
#[derive(Clone, Default)]
pub struct TurnSign(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl TurnSign {
    /// A sign that asks `is_beginning`. It is asked before each line that is typed.
    pub fn new(is_beginning: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_beginning)))
    }

    pub(super) fn is_given(&self) -> bool {
        self.0.as_ref().is_some_and(|is_beginning| is_beginning())
    }
}

impl fmt::Debug for TurnSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnSign").field(&self.0.is_some()).finish()
    }
}
