pub(crate) mod checks;
pub(crate) mod content;
pub(crate) mod decision;
pub(crate) mod epoch;
pub(crate) mod waiting;
