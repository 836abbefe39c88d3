//! Step queues that stand until a person intervenes, for `status`.

use ensemble_team::steps::{STEPS_FILE, Standing};

use crate::context::Context;
use crate::exit::{Outcome, say};

/// The steps that wait for an intervention. A damaged database is a warning: it must not hide the
/// rest of the status.
pub(crate) fn standing(context: &Context) -> Outcome<Vec<Standing>> {
    if !context.project()?.state.join(STEPS_FILE).exists() {
        return Ok(Vec::new());
    }
    let found = super::open(context).and_then(|store| Ok(store.standing()?));
    Ok(found.unwrap_or_else(|failure| {
        say(&format!("warning: step queues: {}", failure.text()));
        Vec::new()
    }))
}
