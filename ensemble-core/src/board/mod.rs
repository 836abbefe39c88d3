//! The blackboard.

pub(crate) mod text;
