//! The outside world as traits: clock, mailboxes, panes.
//!
//! The machines of [`crate::proto`] get everything nondeterministic as an argument. A driver carries
//! out their effects through these traits, so an embedder can replace each of them:
//!
//! | trait | stands for | everyday implementation | in a simulation |
//! |---|---|---|---|
//! | [`Clock`] | monotonic and wall time | [`SystemClock`] | a hand-advanced clock |
//! | [`Transport`] | mailboxes | [`crate::spool::Spool`] | a map in memory |
//! | [`Pane`] | where an agent runs | `TmuxPane` of the crate `ensemble-tmux` | a scripted screen |
//!
//! ```
//! use std::time::Duration;
//! use ensemble_core::env::{Clock, SystemClock};
//!
//! let start = SystemClock.monotonic();
//! let deadline = start + Duration::from_secs(60);
//! assert!(deadline.since(SystemClock.monotonic()) <= Duration::from_secs(60));
//! ```
//!
//! # Limits
//!
//! * Readings of [`Monotonic`] can be compared on one host in one boot only.
//! * [`Clock::wall`] may jump. Wall-clock stamps are for people: no deadline and no lease uses them.
//! * Calls of [`Transport`] and [`Pane`] block for as long as the disk or the terminal does.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::{Envelope, MessageId, Name, Timestamp};
use crate::pane::{Key, NudgeOutcome, NudgeText, PaneState};
use crate::{Result, sys};

/// A reading of a clock that only goes forward and does not count the time the machine was
/// suspended (`CLOCK_MONOTONIC`). Two readings on one host in one boot can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(Duration);

impl Monotonic {
    pub const ZERO: Self = Self(Duration::ZERO);

    pub const fn from_duration(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    pub const fn as_duration(self) -> Duration {
        self.0
    }

    /// How long ago `earlier` was; zero if it is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Self> for Monotonic {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

/// Time. Deadlines and leases use [`Clock::monotonic`]; stamps for people use [`Clock::wall`].
pub trait Clock {
    /// Now, on a clock that never jumps and pauses during a suspend.
    fn monotonic(&self) -> Monotonic;
    /// Now, as a calendar would say it; may jump.
    fn wall(&self) -> Timestamp;
    /// Now, on a clock that also counts suspended time. The difference to [`Clock::monotonic`] shows how long the
    /// machine slept.
    fn boottime(&self) -> Monotonic {
        self.monotonic()
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(sys::read_clock(rustix::time::ClockId::Monotonic))
    }
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
    fn boottime(&self) -> Monotonic {
        Monotonic(sys::boottime())
    }
}

/// Id of this boot of the machine; empty if the system does not provide one. Two readings of [`Clock::monotonic`] in
/// different processes can be compared only within one boot.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(sys::boot_id)
}

/// In whole milliseconds, as files and records have it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Proof of having received a message: who holds it, where, and since which delivery.
///
/// The `epoch` counts deliveries of this message and only grows; every later operation names it and
/// is refused once another delivery has begun. The four fields are the whole identity of a lease.
/// So a lease can be sent to a worker process as JSON and be used there, by [`Mailbox::resume`](crate::Mailbox::resume).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The mailbox the message is in.
    pub mailbox: Name,
    /// The message.
    pub id: MessageId,
    /// The consumer that received the message.
    pub holder: Name,
    /// The number of this delivery, from 1.
    pub epoch: u64,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}@{}", self.mailbox, self.id, self.holder, self.epoch)
    }
}

/// A received message with the lease under which it is held.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub envelope: Envelope,
    pub lease: Lease,
    /// How long the lease runs without an extension.
    pub lease_duration: Duration,
}

impl Delivery {
    pub fn new(envelope: Envelope, lease: Lease, lease_duration: Duration) -> Self {
        Self { envelope, lease, lease_duration }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    Stored,
    /// The same id with the same content had been stored before; nothing changed.
    AlreadyStored,
}

/// How many messages a mailbox holds, by state; [`Queue::observe`](crate::Queue::observe) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// S2: waiting, whether due or delayed.
    pub queued: u64,
    /// Of those, the ones not due yet.
    pub delayed: u64,
    /// S3: received, lease running.
    pub acked: u64,
    /// S4: settled.
    pub settled: u64,
    /// S5: dead letters.
    pub dead: u64,
}

/// Writes those methods of a trait that a type has as its own, with the same names.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_calls {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $output:ty;)+) => {
        $(fn $name(&self, $($argument: $kind),*) -> $crate::Result<$output> {
            Self::$name(self, $($argument),*)
        })+
    };
}

/// Mailboxes. The same contract holds for a directory and for a server on another machine.
///
/// Every call may block for as long as the medium needs; none waits for a message to arrive.
pub trait Transport {
    /// Stores a message for `envelope.to`. When it returns `Ok`, the message survives as the
    /// transport's durability promises.
    fn publish(&self, envelope: &Envelope) -> Result<PublishOutcome>;

    /// Takes the next due message of `mailbox` for `holder`: this is its ack.
    fn receive(&self, mailbox: &Name, holder: &Name) -> Result<Option<Delivery>>;

    /// Says that the work is done.
    fn settle(&self, lease: &Lease) -> Result<()>;

    /// Gives the message back, to be delivered again after `delay`, or to be dead-lettered if it
    /// has used up its attempts.
    fn release(&self, lease: &Lease, delay: Duration) -> Result<()>;

    /// Makes the lease run for `duration` from now: [`crate::Error::Invalid`] for none, and for more than a day.
    fn extend(&self, lease: &Lease, duration: Duration) -> Result<()>;

    fn scan(&self, mailbox: &Name) -> Result<Counts>;
}

/// Where an agent runs. An implementation keeps its own connection, if it needs one. Every call is
/// bounded in time (five seconds for tmux), and none ever types content, only a [`NudgeText`].
pub trait Pane {
    /// Reads the state of the pane and changes nothing.
    fn inspect(&mut self) -> Result<PaneState>;

    /// Types a hint and submits it, if and only if that is known to be harmless right now.
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome>;

    /// Presses one key under the same guard as [`Pane::nudge`].
    fn press(&mut self, key: Key) -> Result<NudgeOutcome>;

    /// Starts the agent's program in the pane. Only into a pane that is a bare shell at an empty
    /// prompt or whose process has ended.
    fn open(&mut self, command: &str) -> Result<NudgeOutcome>;
}
