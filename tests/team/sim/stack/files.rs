//! Arriving files, and a watcher whose events are lost, late or stopped.

use ensemble_core::proto::reconcile::{Effect, Event, Reconcile, SCAN_INTERVAL};

use super::*;

/// Running time of a watcher within which each file must be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

pub(super) struct Files {
    machine: Reconcile,
    /// Whether the system allows a watch.
    can_watch: bool,
    /// Whether events arrive: the source is up, its thread lives, and it watches the current path.
    delivers: bool,
    /// Whether the directory at the path is not the one that is open.
    is_replaced: bool,
    canary_at: Option<Monotonic>,
    unseen: Vec<Monotonic>,
    since: Monotonic,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            machine: Reconcile::new(SCAN_INTERVAL),
            can_watch: true,
            delivers: false,
            is_replaced: false,
            canary_at: None,
            unseen: Vec::new(),
            since: Monotonic::ZERO,
        }
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        [self.machine.poll_timeout(), self.canary_at].into_iter().flatten().min()
    }

    /// A file arrives; its event may be lost.
    pub(super) fn land(&mut self, now: Monotonic, is_lost: bool) {
        if is_lost || !self.delivers {
            self.unseen.push(now);
        }
    }

    pub(super) fn restart(&mut self, now: Monotonic) {
        self.machine = Reconcile::new(SCAN_INTERVAL);
        (self.delivers, self.is_replaced, self.canary_at) = (false, false, None);
        self.since = now;
    }

    pub(super) fn check(&self, now: Monotonic) -> Result<(), String> {
        let late = self.unseen.iter().find(|at| now.since((**at).max(self.since)) > SEEN_WITHIN);
        late.map_or(Ok(()), |at| {
            Err(format!("a file that landed {:?} ago is unseen", now.since(*at)))
        })
    }
}

impl World {
    /// Changes the source of events: it fails, dies or comes back.
    pub(super) fn source(&mut self) -> Result<(), String> {
        let why = || Event::SourceFailed { why: "no watches left".to_owned() };
        match self.rng.below(12) {
            0 | 1 => {
                self.files.can_watch = false;
                self.files.delivers = false;
                self.file_event(why())
            }
            2..5 => {
                self.files.can_watch = true;
                // Some sources come back by themselves.
                let comes_back = self.files.machine.mode()
                    == ensemble_core::proto::reconcile::WatchMode::Polling;
                if comes_back && self.rng.percent(30) {
                    self.files.delivers = !self.files.is_replaced;
                    return self.file_event(Event::SourceUp);
                }
                Ok(())
            }
            5 | 6 => {
                self.files.unseen.push(self.now());
                match self.files.delivers {
                    true => self.file_event(Event::Overflow),
                    false => Ok(()),
                }
            }
            7 => {
                // Its thread dies without notice.
                self.files.delivers = false;
                Ok(())
            }
            8 | 9 => {
                (self.files.is_replaced, self.files.delivers) = (true, false);
                Ok(())
            }
            // A canary event that the machine no longer waits for.
            _ => self.file_event(Event::CanarySeen),
        }
    }

    fn file_event(&mut self, event: Event) -> Result<(), String> {
        let (now, said) = (self.now(), format!("{event:?}"));
        let before = state_of(&self.files.machine);
        self.files.machine.handle(now, event);
        self.file_effects(&before, &said)
    }

    fn file_effects(&mut self, before: &str, said: &str) -> Result<(), String> {
        let effects = drain(&mut self.files.machine);
        let after = state_of(&self.files.machine);
        if !said.is_empty() {
            self.rows.note("reconcile", (before, said, &after), &printed(&effects))?;
        }
        for effect in effects {
            match effect {
                Effect::Rewatch => {
                    (self.files.is_replaced, self.files.delivers) = (false, self.files.can_watch);
                    let event = match self.files.can_watch {
                        true => Event::SourceUp,
                        false => Event::SourceFailed { why: "no watches left".to_owned() },
                    };
                    self.file_event(event)?;
                }
                // A directory that was replaced is still the one that is listed.
                Effect::Scan if !self.files.is_replaced => self.files.unseen.clear(),
                Effect::CheckPaths if self.files.is_replaced => {
                    self.file_event(Event::PathsReplaced)?
                }
                Effect::RingCanary if self.files.delivers => {
                    self.files.canary_at = Some(self.now() + Duration::from_millis(10));
                }
                Effect::Scan
                | Effect::CheckPaths
                | Effect::RingCanary
                | Effect::Degraded { .. }
                | Effect::SourceDead
                | Effect::Recovered => {}
            }
        }
        Ok(())
    }

    pub(super) fn wake_files(&mut self) -> Result<(), String> {
        let now = self.now();
        // Carry out the effects of the start.
        self.file_effects("", "")?;
        if self.files.canary_at.take_if(|at| now >= *at).is_some() {
            self.file_event(Event::CanarySeen)?;
        }
        if self.files.machine.poll_timeout().is_some_and(|due| now >= due) {
            let before = state_of(&self.files.machine);
            self.files.machine.handle_timeout(now);
            self.file_effects(&before, "Time")?;
        }
        Ok(())
    }
}
