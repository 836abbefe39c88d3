//! Subjects of eight processes beside the peers: our queue, and the system calls that it requires.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use rustix::fs::{self, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::shared::Queue;
use crate::support::{Outcome, place};

pub struct Ours {
    spool: Spool,
    mailbox: Name,
}

impl Ours {
    pub fn open(queue: &Path, durability: Durability) -> Outcome<Self> {
        let options = SpoolOptions::default().with_durability(durability);
        Ok(Self { spool: Spool::open(queue, options)?, mailbox: Name::new("work")? })
    }
}

impl Queue for Ours {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        self.spool.publish(&Envelope::new(self.mailbox.clone(), body))?;
        Ok(true)
    }

    fn take(&mut self) -> Outcome<bool> {
        let Some(delivery) = self.spool.receive(&self.mailbox, &self.mailbox)? else {
            return Ok(false);
        };
        self.spool.settle(&delivery.lease)?;
        Ok(true)
    }
}

/// Our queue in batches of this size.
pub struct Batches {
    ours: Ours,
    count: usize,
    taken: u64,
}

impl Batches {
    pub fn open(queue: &Path, durability: Durability, count: usize) -> Outcome<Self> {
        Ok(Self { ours: Ours::open(queue, durability)?, count, taken: 0 })
    }
}

impl Queue for Batches {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        let Ours { spool, mailbox } = &self.ours;
        let batch: Vec<_> = (0..self.count).map(|_| Envelope::new(mailbox.clone(), body)).collect();
        spool.publish_batch(&batch)?;
        Ok(true)
    }

    fn take(&mut self) -> Outcome<bool> {
        let Ours { spool, mailbox } = &self.ours;
        let taken = spool.receive_batch(mailbox, mailbox, self.count)?;
        let leases: Vec<_> = taken.into_iter().map(|delivery| delivery.lease).collect();
        for settled in spool.settle_batch(&leases)? {
            settled?;
        }
        self.taken = leases.len() as u64;
        Ok(self.taken > 0)
    }

    fn at_once(&self) -> u64 {
        self.taken
    }
}

/// The limit at `process`: create and rename a file of the same bytes, list, rename, read and
/// rename again. Each consumer starts at a different place, so consumers hardly compete. It checks
/// nothing, keeps no order and never lists again.
pub struct Files {
    tmp: OwnedFd,
    new: OwnedFd,
    cur: OwnedFd,
    done: OwnedFd,
    sent: u64,
    content: Vec<u8>,
    listed: VecDeque<String>,
    buffer: Vec<u8>,
}

impl Files {
    pub fn open(home: &Path) -> Outcome<Self> {
        let open = |name: &str| -> Outcome<OwnedFd> {
            let path = place::child(home, name)?;
            Ok(fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
        };
        let (tmp, new, cur, done) = (open("tmp")?, open("new")?, open("cur")?, open("done")?);
        let (listed, buffer) = (VecDeque::new(), vec![0; 128 * 1024]);
        Ok(Self { tmp, new, cur, done, sent: 0, content: Vec::new(), listed, buffer })
    }

    fn list(&mut self) -> Outcome<()> {
        for entry in fs::Dir::read_from(&self.new)? {
            let name = entry?.file_name().to_str()?.to_owned();
            if !name.starts_with('.') {
                self.listed.push_back(name);
            }
        }
        let start = std::process::id() as usize * 997 % self.listed.len().max(1);
        self.listed.rotate_left(start);
        Ok(())
    }

    fn rename(from: &OwnedFd, name: &str, to: &OwnedFd) -> Outcome<bool> {
        match fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Queue for Files {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        if self.content.is_empty() {
            self.content = Envelope::new(Name::new("work")?, body).encode()?;
        }
        self.sent += 1;
        let name = format!("{:012}-{:08}.yaml", self.sent, std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        File::from(fs::openat(&self.tmp, &name, flags, mode)?).write_all(&self.content)?;
        Self::rename(&self.tmp, &name, &self.new)
    }

    fn take(&mut self) -> Outcome<bool> {
        if self.listed.is_empty() {
            self.list()?;
        }
        while let Some(name) = self.listed.pop_front() {
            if Self::rename(&self.new, &name, &self.cur)? {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let mut file = File::from(fs::openat(&self.cur, &name, flags, Mode::empty())?);
                if file.read(&mut self.buffer)? == 0 {
                    return Err("a message is empty".into());
                }
                drop(file);
                return Self::rename(&self.cur, &name, &self.done);
            }
        }
        Ok(false)
    }
}

/// The floor at `power`.
pub struct Appender(File);

impl Appender {
    pub fn open(path: &Path) -> Outcome<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }
}

impl Queue for Appender {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        self.0.write_all(body.as_bytes())?;
        self.0.sync_data()?;
        Ok(true)
    }

    fn take(&mut self) -> Outcome<bool> {
        Err("the floor only appends".into())
    }
}
