use ensemble_app::controls::PutControl;
use ensemble_app::failure::Outcome;
use ensemble_app::text::{one_line, with_members};
use serde_json::json;

use crate::context::Context;

pub(crate) fn print_control(context: &Context, put: &PutControl) -> Outcome {
    let PutControl { control, is_new } = put;
    let object = with_members(json!(control), &json!({ "put": is_new }));
    let text = match is_new {
        true => control.title(),
        false => format!("already in force: {}", control.title()),
    };
    let reason =
        if control.reason.is_empty() { String::new() } else { format!(": {}", control.reason) };
    context.out.print_answer(&object, one_line(&format!("{text}{reason}")))
}
