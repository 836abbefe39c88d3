//! A message broker for teams of coding agents whose queue is a directory. Publishing is a rename,
//! receiving is a rename, the file is the truth.
//!
//! ```
//! use std::time::Duration;
//! use ensemble_core::message::{Envelope, Name};
//! use ensemble_core::spool::{Options, Settings, Spool};
//!
//! # let home = tempfile::tempdir()?;
//! # let queue = home.path().join("queue");
//! let spool = Spool::create(&queue, Options::default())?; // or `Spool::open`
//! let (lead, worker) = (Name::new("lead")?, Name::new("worker-1")?);
//! spool.add_mailbox(&worker, &Settings::default())?;
//!
//! let task = Envelope::new(worker.clone(), "count the lines of src/\n").from(lead);
//! spool.publish(&task)?; // on disk, through any crash, when this returns
//!
//! while let Some(delivery) = spool.receive(&worker, &worker)? { // this is the ack
//!     match delivery.envelope.body.strip_prefix("count ") {
//!         Some(what) if delivery.lease.epoch > 1 => spool.settle(&delivery.lease)?,
//!         Some(_) => spool.release(&delivery.lease, Duration::ZERO)?, // and comes again
//!         None => spool.dead_letter(&delivery.lease, "not a task for me")?,
//!     }
//! }
//! assert_eq!(spool.counts(&worker)?.settled, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules, in reading order
//!
//! | module | what it has |
//! |---|---|
//! | [`message`] | envelopes, ids and checked names |
//! | [`spool`] | the queue: mailboxes as directories. The page of [`Spool`](spool::Spool) lists its methods in the order of use |
//! | [`watch`] | reports files that land in directories, so that a consumer sleeps until mail comes |
//! | [`mod@env`] | the outside world as traits: [`Clock`](env::Clock), [`Transport`](env::Transport), [`Pane`](env::Pane) |
//! | [`leases`] | returns the messages of dead holders to their mailboxes |
//! | [`dropbox`] | routes files that any program puts down |
//! | [`requests`] | questions with an id, one addressee and one answer: shutdown, plan approval and others |
//! | [`history`] | removes what was kept for a time: attachments that nothing names, rejected files |
//! | [`event_log`] | one line for each event, written by any number of processes |
//! | [`document`] | changes shared files under a lock |
//! | [`durable`] | the only place that renames, locks and syncs |
//! | [`broker`] | the whole of a queue as a trait. The crate `ensemble-nats` implements it on NATS servers |
//! | [`proto`] | the protocols as state machines without IO, clocks or threads: when to nudge, when a lease is over, readiness, escalation, requests |
//! | [`driver`] | performs their effects: [`AckManager`](driver::AckManager), [`Readiness`](driver::Readiness), [`Assigner`](driver::Assigner) |
//! | [`agent`] | an agent as the drivers see it |
//! | [`pane`] | the words for panes: what one shows, what may be typed into it, and why nothing was |
//! | `sim` (feature) | doubles of the traits of `env`, for tests in which days pass in milliseconds |
//!
//! What lies on disk is described in PROTOCOL.md, so that a shell script can take part.
//!
//! # Embedding
//!
//! Nothing here starts a thread, needs an async runtime, installs a handler or reads the
//! environment or a configuration. There is one exception: a short-lived thread closes a dropped
//! [`watch::FsWatcher`]. There is no global state: open as many queues as you like.
//!
//! Three programs of under 100 lines in `examples/embedders/` show the usual ways:
//!
//! * *Threads* (`threads`). [`receive_wait`](spool::Spool::receive_wait) blocks until a message is there, and
//!   takes back the messages of dead holders.
//! * *A loop of your own* (`orchestrator`). A driver such as [`AckManager`](driver::AckManager) is called when
//!   something has changed, and at its `poll_timeout`. Its panes may be yours, with or without a screen.
//! * *An async runtime* (`tokio`). All calls block; run them in a thread for blocking work.
//!   [`AckManager::new`](driver::AckManager::new) owns what it works with and is [`Send`], so a task can hold it.
//!
//! *Calls block* for as long as the disk does (a few milliseconds a publish at `power`), and for a
//! lock at most [`spool::LOCK_PATIENCE`]. Only `receive_wait` waits for a message to arrive. To
//! learn of a new file without a call that waits, poll the descriptor of a [`watch::FsWatcher`]
//! beside your own.
//!
//! [`Spool`](spool::Spool) and [`EventLog`](event_log::EventLog) are shared between threads by
//! reference, and between processes by opening them in each. Every error names what it was about and
//! is [`Error::is_transient`] if trying again may help.
//!
//! # Guarantees
//!
//! * A message whose [`publish`](spool::Spool::publish) has returned survives the death of every
//!   process, and a power cut too at the default [`Durability::Power`](durable::Durability::Power).
//!   The same id is stored once.
//! * A message is in one state, and one holder has it. Of all that try to receive it one succeeds.
//!   A lease that was taken away can neither settle, release nor extend.
//! * Delivery is at least once. After a crash or a power cut a message may be delivered again, with
//!   a higher epoch or as if for the first time.
//! * Files that are hostile or damaged cost an error that names file and field. Links are not
//!   followed, names are checked before they touch a path, and no written file is deleted unread.
//!
//! # Assumptions
//!
//! * Linux, and one local file system for the whole queue, with working `rename` and `flock`.
//! * `fsync` means what it says: a disk that lies about it can lose what `power` promises.
//! * Every process that may write to the directory is trusted. The directory is private to its
//!   owner, which guards against mistakes and not against malice of the same user.
//!
//! # Known problems
//!
//! * Network file systems are untested; `rename` and `flock` are weaker there.
//! * On file systems without `RENAME_NOREPLACE` a file has two names for a moment, and a crash in that
//!   moment leaves both.
//! * Receiving is not synced. After a power cut a held message may wait again, under the epoch it
//!   already had. Its holder is gone too, unless that ran on another machine.
//! * Ids that are not UUIDv7 are ordered by the file's time, which a copy or a restore may change.
//! * A message that is dropped from `dead/` or swept from `done/` is forgotten: the same id can be
//!   stored again.
//!
//! # Features and Rust version
//!
//! `sim` (doubles for tests) and `schema` (JSON Schemas of what stands in configuration files) are off
//! by default. Rust 1.89 or newer, for `File::lock`.
#![forbid(unsafe_code)]

pub mod agent;
pub mod broker;
pub mod document;
pub mod driver;
pub mod dropbox;
pub mod durable;
pub mod env;
mod error;
pub mod event_log;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod history;
pub mod leases;
pub mod message;
pub mod pane;
pub mod proto;
pub mod requests;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod spool;
mod sys;
pub mod watch;

pub use error::{AreaError, Error, Result, printable};
