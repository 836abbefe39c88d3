//! A message queue for coding agents, in a plain directory: publishing is a rename, receiving is a rename, and the
//! files are the truth. No daemon, no database, no async runtime.
//!
//! ```
//! use std::time::Duration;
//! use ensemble_core::Queue;
//!
//! # let home = tempfile::tempdir()?;
//! # std::env::set_current_dir(home.path())?;
//! let queue = Queue::open_or_create("queue")?;
//! let inbox = queue.mailbox("worker-1")?;
//! inbox.send("count the lines of src/")?;
//! let message = inbox.recv_timeout(Duration::from_secs(60))?.expect("mail");
//! println!("{}", message.body());
//! message.settle()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The next step is one more line each time:
//!
//! ```
//! # use std::time::Duration;
//! # use ensemble_core::{CancelToken, Draft, Queue};
//! # let home = tempfile::tempdir()?;
//! # let queue = Queue::open_or_create(home.path())?;
//! # let inbox = queue.mailbox("worker-1")?;
//! # queue.mailbox("lead")?;
//! inbox.send(Draft::new("review src/").sender("lead").priority(5))?; // who, how urgent, which task, when
//! inbox.send_json(&["src/a.rs", "src/b.rs"])?;                      // any value that serde can write
//! let stop = CancelToken::new()?;                                   // ends waits from another thread
//! for message in inbox.until(&stop).messages() {                    // blocks for each next message
//!     let message = message?;                                       // an early `?` returns the message
//!     if message.delivery() > 3 {
//!         message.reject("tried three times")?;                     // a dead letter, with the reason
//!         continue;
//!     }
//!     let _alive = message.keep_alive()?;                           // for work that takes longer than the lease
//!     if message.sender().as_str() == "lead" {
//!         message.reply("done")?;                                   // to the sender's mailbox, as one conversation
//!     }
//!     message.settle()?;                                            // never delivered again
//! #   if inbox.counts()?.queued == 0 { stop.cancel() }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types, in reading order
//!
//! | type | what it is |
//! |---|---|
//! | [`Queue`], [`QueueOptions`] | an open queue: a directory of mailboxes |
//! | [`Mailbox`], [`Settings`], [`Counts`], [`Messages`] | one mailbox, as one consumer sees it |
//! | [`Inboxes`] | many mailboxes, received from in one thread or event loop |
//! | [`Message`], [`KeepAlive`] | a received message: settle, release, reject, extend, reply; goes back if it is dropped |
//! | `Incoming` | the messages of a mailbox in a tokio runtime, with the feature `tokio` |
//! | [`Draft`], [`IntoName`] | a message that is being written |
//! | [`CancelToken`] | ends waits |
//! | [`PendingRequest`], [`Decision`], [`Outcome`] | a question whose first answer is final: a shutdown, a plan |
//! | [`Watcher`], [`Report`], [`CallbackResult`] | files in the drop boxes, each for a closure or a mailbox |
//! | [`AckManager`], [`Assignment`], [`DeliveryId`] | tasks that are followed up until they are acked or escalated |
//! | [`Ended`], [`Phase`], [`Notice`] | how such a delivery ended |
//! | [`WorkerPane`], [`AgentState`], [`Key`] | your own pane, in which a worker runs |
//! | [`QueueView`], [`MailboxView`], [`HeldView`] | what a dashboard shows: counts, ages, holders |
//! | [`Lease`] | proof of holding a message; goes as JSON to another process, which resumes with it |
//! | [`Envelope`], [`Name`], [`MessageId`], [`Timestamp`] | what a message says, and the checked words in it |
//! | [`Found`], [`State`], [`DeadLetter`], [`Swept`] | what looking, counting and cleaning up return |
//! | [`Durability`] | what a sent message survives |
//! | [`Error`], [`NameError`] | what can go wrong: one enum to match |
//! | [`events`] | the event log: one line for each change |
//!
//! A worker is one call: [`inbox.serve(|message| …)`](Mailbox::serve) settles what worked and returns what failed, and
//! [`inbox.answer(|question| …)`](Mailbox::answer) replies, too.
//!
//! PROTOCOL.md describes the files, so that a shell script can take part.
//!
//! # Guarantees
//!
//! * A message whose [`send`](Mailbox::send) has returned survives the death of every process, and a power cut too at
//!   the default [`Durability::Power`]. The same id is stored once.
//! * A message is in one state, and one holder has it. Of all that try to receive it, one succeeds. Once a lease has
//!   expired, it can neither settle, release nor extend.
//! * Delivery is at least once. After a crash or a power cut a message may be delivered again:
//!   [`Message::delivery`] counts.
//! * A message that is dropped unsettled is returned to its mailbox, later each time, so that a loop that forgets to
//!   settle does not destroy mail. [`Message`] has the rule.
//! * Files that are hostile or damaged cost an error that names file and field. Links are not followed, names are
//!   checked before they touch a path, and no written file is deleted unread.
//!
//! # Assumptions
//!
//! * Linux, and one local file system for the whole queue, with working `rename` and `flock`.
//! * `fsync` works: a disk that acknowledges it too early can lose what `power` promises.
//! * Every process that may write to the directory is trusted. The directory is private to its owner, which guards
//!   against mistakes and not against malice of the same user.
//!
//! # Blocking, threads, processes
//!
//! Nothing here needs an async runtime, installs a handler, or reads the environment or a configuration. The only
//! threads are that of [`Message::keep_alive`], those that sync a batch, and a short-lived one that closes a watcher.
//! There is no global state: open as many queues as you like. Handles are cheap to clone; other processes open the
//! same directory.
//!
//! Calls block for as long as the disk does (a few milliseconds for a send at `power`), and for a lock at most
//! [`QueueOptions::lock_patience`]. Only the receives that say so wait for a message. A receive with a wait watches
//! the directory by inotify. A user has some 128 instances, so all waits of a queue share one, and each [`Inboxes`] has
//! its own. Without inotify, a wait looks five times a second, and [`Queue::observe`] says so.
//!
//! # Known problems
//!
//! * Network file systems are untested; `rename` and `flock` are weaker there.
//! * On file systems without `RENAME_NOREPLACE` a file has two names for a moment, and a crash in that moment leaves
//!   both.
//! * Receiving is not synced. After a power cut a held message may wait again, with the delivery number it already had.
//! * Ids that are not UUIDv7 are ordered by the file's time, which a copy or a restore may change.
//! * A message that was dropped from the dead letters, or swept after [`Settings::done_days`], is forgotten: the same
//!   id can be stored again.
//!
//! # Features, versions
//!
//! | feature | adds |
//! |---|---|
//! | `internals` | what the handle is built from, and what Ensemble itself uses: mailboxes as directories, stores, protocols as state machines, drivers. It may change in any release |
//! | `tokio` | [`Mailbox`]`::incoming`: receiving, asking, settling and following tasks up in a tokio runtime, cancel-safe and without polling |
//! | `sim` | doubles of clock and recorder, for tests in which days pass in milliseconds |
//! | `schema` | JSON Schemas of configuration files |
//! | `notify` | the file events of other systems on Linux, too; for tests of Ensemble |
//!
//! None is on by default, and the last three bring `internals` with them. A program without features builds 43 crates,
//! this one among them. Rust 1.89 or newer, for `File::lock`; a newer one is required only by a minor version.
//!
//! Before 1.0, a release that breaks a public item of this page raises the minor version, and a patch release breaks
//! none. Enums and structs to which fields or variants may be added are `non_exhaustive`. The items that `internals`
//! adds are not part of the promise. The files of a queue are read by every later version; PROTOCOL.md has their own
//! version.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "internals"), warn(missing_docs))]
// Without the feature `internals`, most of the crate is used by nothing that is public.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unreachable_pub, unused_imports))]
#![cfg_attr(not(feature = "internals"), allow(rustdoc::private_intra_doc_links))]

mod aside;
mod error;
mod queue;
mod sys;

#[cfg(not(feature = "internals"))]
mod agent;
#[cfg(feature = "internals")]
pub mod agent;
#[cfg(not(feature = "internals"))]
mod broker;
#[cfg(feature = "internals")]
pub mod broker;
#[cfg(not(feature = "internals"))]
mod document;
#[cfg(feature = "internals")]
pub mod document;
#[cfg(not(feature = "internals"))]
mod driver;
#[cfg(feature = "internals")]
pub mod driver;
#[cfg(not(feature = "internals"))]
mod dropbox;
#[cfg(feature = "internals")]
pub mod dropbox;
#[cfg(not(feature = "internals"))]
mod durable;
#[cfg(feature = "internals")]
pub mod durable;
#[cfg(not(feature = "internals"))]
mod env;
#[cfg(feature = "internals")]
pub mod env;
#[cfg(not(feature = "internals"))]
mod event_log;
#[cfg(feature = "internals")]
pub mod event_log;
#[cfg(not(feature = "internals"))]
mod history;
#[cfg(feature = "internals")]
pub mod history;
#[cfg(not(feature = "internals"))]
mod leases;
#[cfg(feature = "internals")]
pub mod leases;
#[cfg(not(feature = "internals"))]
mod mail;
#[cfg(feature = "internals")]
pub mod mail;
#[cfg(not(feature = "internals"))]
mod mailboxes;
#[cfg(feature = "internals")]
pub mod mailboxes;
#[cfg(not(feature = "internals"))]
mod message;
#[cfg(feature = "internals")]
pub mod message;
#[cfg(not(feature = "internals"))]
mod pane;
#[cfg(feature = "internals")]
pub mod pane;
#[cfg(not(feature = "internals"))]
mod proto;
#[cfg(feature = "internals")]
pub mod proto;
#[cfg(not(feature = "internals"))]
mod requests;
#[cfg(feature = "internals")]
pub mod requests;
#[cfg(not(feature = "internals"))]
mod spool;
#[cfg(feature = "internals")]
pub mod spool;
#[cfg(not(feature = "internals"))]
mod transfer;
#[cfg(feature = "internals")]
pub mod transfer;
#[cfg(not(feature = "internals"))]
mod watch;
#[cfg(feature = "internals")]
pub mod watch;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

/// The event log: one line for each change, written by any number of processes.
pub mod events {
    pub use crate::event_log::{EventLog, Follower, Record, Recorder};
}

pub use agent::AgentState;
pub use driver::{DeliveryId, Ended, Notice};
pub use durable::Durability;
pub use env::{Counts, Lease};
#[cfg(feature = "internals")]
pub use error::{
    AreaError, allow_gone, allow_misplaced, allow_missing, allow_no_mailbox, allow_unreadable,
    printable,
};
pub use error::{Error, Result};
pub use message::{Envelope, MessageId, Name, NameError, Timestamp};
pub use pane::Key;
pub use proto::ack::Phase;
pub use proto::request::{Decision, Outcome};
#[cfg(feature = "tokio")]
pub use queue::Incoming;
pub use queue::{
    AckManager, Assignment, CallbackResult, CancelToken, Draft, Inboxes, IntoName, KeepAlive,
    Mailbox, Message, Messages, PendingRequest, Queue, QueueOptions, Report, Watcher, WorkerPane,
};
pub use spool::{DeadLetter, Found, HeldView, MailboxView, QueueView, Settings, State, Swept};
