//! Output that several verbs have in common.

pub(crate) mod batches;
pub(crate) mod content;
pub(crate) mod controls;
pub(crate) mod conversation;
pub(crate) mod departing;
pub(crate) mod overview;
pub(crate) mod readiness;
pub(crate) mod requests;
pub(crate) mod starting;
pub(crate) mod tasks;
