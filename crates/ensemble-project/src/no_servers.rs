//! In the place of `servers`, for a program that was built without the feature `nats`.

use ensemble_core::{Error, Result};

use crate::open_queue::{OpenQueue, QueueAccess};
use crate::project::{CONFIG_FILE, Project};

pub(crate) fn connect(
    project: &Project,
    _servers: &str,
    _access: QueueAccess,
) -> Result<OpenQueue> {
    let detail = "this program was built without the feature `nats`";
    Err(Error::malformed(project.root().join(CONFIG_FILE), "transport", detail))
}
