//! The command as its users meet it: real processes, real files, nothing of the tester's own
//! environment.

mod assign;
mod bed;
mod board;
mod broker;
mod codes;
mod deep;
mod demo;
mod help;
mod lint;
mod reading;
mod reports;
mod requests;
mod session_page;
mod shell;
mod sources;
mod team;
#[path = "../tmux_support/mod.rs"]
mod tmux_support;
mod waiting;
