//! Requests on a real file system, one promise a test.

mod bed;
mod files;
mod gates;
mod messages;
