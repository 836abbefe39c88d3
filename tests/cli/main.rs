//! The command as its users meet it: real processes, real files, nothing of the tester's own
//! environment.

mod assign;
mod bed;
mod broker;
mod codes;
mod deep;
mod demo;
mod help;
mod reading;
mod requests;
mod shell;
mod sources;
mod team;
#[path = "../tmux_support/mod.rs"]
mod tmux_support;
mod waiting;
