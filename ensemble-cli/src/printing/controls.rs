//! A control file that was put down.

use ensemble_app::controls::PutControl;
use ensemble_app::failure::Outcome;
use ensemble_app::text::one_line;
use ensemble_team::board::ControlFile;
use serde_json::json;

use crate::context::Context;

/// Prints that the control file is in force, since when and why.
pub(crate) fn print_control(context: &Context, put: &PutControl) -> Outcome {
    let PutControl { control, is_new } = put;
    let file: ControlFile = control.file;
    if context.out.is_json() {
        let mut object = json!(control);
        object["put"] = json!(is_new);
        return context.out.object(&object);
    }
    let text = match is_new {
        true => format!("{} since {}", file.name(), control.since),
        false => format!("{} is in force already, since {}", file.name(), control.since),
    };
    let reason =
        if control.reason.is_empty() { String::new() } else { format!(": {}", control.reason) };
    context.out.line(one_line(&format!("{text}{reason}")))
}
