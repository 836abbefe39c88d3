//! In the place of `two_hosts`, for a program that was built without the feature `nats`.

use std::path::Path;

use ensemble_app::failure::{Failure, Outcome};

use super::DemoSettings;
use crate::context::Context;

/// Refuses a team on servers.
pub(super) fn run(_context: &Context, _settings: &DemoSettings, _dir: &Path) -> Outcome {
    Err(Failure::refused("this program was built without the feature `nats`"))
}
