//! Carries messages of this host to the servers, and keeps one failure from stopping anything else.
//!
//! | a failure of | consequence |
//! |---|---|
//! | one message, for good | it is a dead letter here; its sender is notified; the next one is carried |
//! | one mailbox, or the servers' store, which is full | it is tried again after a delay, which doubles up to a minute |
//! | one step of a round | the other steps are done; `status` shows it as a trouble |
//! | the connection | the round ends, and the next one begins when the servers answer |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_core::broker::Broker as _;
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::Name;
use ensemble_core::spool::Settings;
use ensemble_core::transfer::{Bridge, BridgeReport, UnknownMailbox};
use ensemble_core::{Error, Result};
use ensemble_nats::NatsTransport;
use serde_json::json;

use super::ServerFollower;

/// Delay before a full mailbox is tried again, the first time and at most.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);
const SHOWN_MAX: usize = 10;
const HOLDER: &str = "bridge";

#[derive(Debug, Default)]
pub(super) struct CurrentTroubles(BTreeMap<String, String>);

impl CurrentTroubles {
    /// Notes how a step ended, and returns its result; `None` if it failed. Only servers that do not answer are an error.
    pub(super) fn record_result<T>(&mut self, place: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if error.is_server_away() && !NatsTransport::is_without_room(&error) => {
                Err(error)
            }
            result => {
                self.record_trouble(place, result.as_ref().err().map(ToString::to_string));
                Ok(result.ok())
            }
        }
    }

    pub(super) fn record_trouble(&mut self, place: &str, why: Option<String>) {
        let Some(why) = why else { return drop(self.0.remove(place)) };
        if self.0.get(place) != Some(&why) {
            tracing::warn!(%why, %place, "trouble with the servers");
            self.0.insert(place.to_owned(), why);
        }
    }

    pub(super) fn shown(&self) -> Vec<String> {
        let shown = self.0.iter().take(SHOWN_MAX);
        shown.map(|(place, why)| format!("{place}: {why}")).collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct MailCarrier {
    delays: BTreeMap<String, (Monotonic, Duration)>,
}

impl MailCarrier {
    pub(super) fn carry(
        &mut self,
        now: Monotonic,
        source: &str,
        mailboxes: &[Name],
        carry: impl Fn(&Name) -> Result<BridgeReport>,
        troubles: &mut CurrentTroubles,
    ) -> Result<BridgeReport> {
        let mut all = BridgeReport::default();
        for mailbox in mailboxes {
            let place = format!("{source} {mailbox}");
            if self.delays.get(&place).is_some_and(|(next, _)| now < *next) {
                continue;
            }
            let carried = carry(mailbox).map(|carried| {
                all.carried += carried.carried;
                all.buried += carried.buried;
                carried.stuck
            });
            let failed = carried.unwrap_or_else(Some);
            match &failed {
                None => drop(self.delays.remove(&place)),
                Some(_) => {
                    let before = self.delays.get(&place).map(|(_, delay)| *delay * 2);
                    let delay = before.unwrap_or(DELAY_MIN).min(DELAY_MAX);
                    self.delays.insert(place.clone(), (now + delay, delay));
                }
            }
            troubles.record_result(&place, failed.map_or(Ok(()), Err))?;
        }
        Ok(all)
    }
}

impl ServerFollower {
    pub(super) fn send_outbox(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let waiting = self.outbox.waiting_mailboxes()?;
        let carry = |mailbox: &Name| self.outbox.carry(queue, mailbox);
        let carried = self.carrier.carry(now, "outbox", &waiting, carry, &mut self.troubles)?;
        self.note_carried("outbox", &carried);
        Ok(())
    }

    /// Carries messages that routes or people put into the directory to the servers.
    pub(super) fn carry(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let mut waiting = Vec::new();
        let spool = &*self.context.spool;
        for mailbox in spool.mailboxes()? {
            let (place, glance) = (format!("mailbox {mailbox} here"), spool.glance(&mailbox, 1));
            let glance = self.troubles.record_result(&place, glance)?;
            if glance.is_some_and(|glance| glance.waiting + glance.held > 0) {
                waiting.push(mailbox);
            }
        }
        let bridge = Bridge::new(spool, queue, Name::new(HOLDER)?, UnknownMailbox::Create);
        let carry = |mailbox: &Name| bridge.carry(mailbox);
        let carried = self.carrier.carry(now, "directory", &waiting, carry, &mut self.troubles)?;
        self.note_carried("directory", &carried);
        Ok(())
    }

    /// Stores messages of hosts and agents with limited credentials in their mailboxes, as each host does that may. A
    /// full mailbox is tried again later, and holds up no other.
    pub(super) fn store_handed_in(&mut self, now: Monotonic, queue: &NatsTransport) -> Result<()> {
        let waiting = queue.handed_in_mailboxes();
        let carry = |mailbox: &Name| queue.carry_handed_in(mailbox);
        let carried = self.carrier.carry(now, "handed in", &waiting, carry, &mut self.troubles)?;
        self.note_carried("handed in", &carried);
        Ok(())
    }

    fn note_carried(&self, from: &str, carried: &BridgeReport) {
        let BridgeReport { carried, buried, .. } = carried;
        if carried + buried > 0 {
            let data = json!({ "from": from, "carried": carried, "buried": buried });
            self.context.record(types::BRIDGE_CARRIED, data);
        }
    }

    pub(super) fn add(&self, queue: &NatsTransport, mailbox: &Name) -> Result<()> {
        let settings = self.context.spool.settings(mailbox).unwrap_or_else(|_| Settings::default());
        match queue.add_mailbox(mailbox, &settings) {
            Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Every mailbox is known here too, so that files on this host can be routed to it. Those of this host come last,
    /// because limited credentials may add none to the servers.
    pub(super) fn compare_names(&self, queue: &NatsTransport) -> Result<()> {
        let here = BTreeSet::from_iter(self.context.spool.mailboxes()?);
        let there = BTreeSet::from_iter(queue.all_mailboxes()?);
        let known = visit_all_mailboxes(&there - &here, |mailbox| {
            match self.context.spool.add_mailbox(mailbox, &queue.settings(mailbox)?) {
                Ok(()) | Err(Error::MailboxExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        });
        visit_all_mailboxes(&here - &there, |mailbox| self.add(queue, mailbox)).and(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::Full { mailbox: "full".to_owned(), capacity: 1 }
    }

    #[test]
    fn a_full_mailbox_is_tried_again_ever_more_rarely_and_holds_up_no_other() {
        let (mut carrier, mut troubles) = (MailCarrier::default(), CurrentTroubles::default());
        let names = [Name::new("full").unwrap(), Name::new("other").unwrap()];
        let mut tried = Vec::new();
        for second in 0..300 {
            let now = Monotonic::from_duration(Duration::from_secs(second));
            let seen = std::cell::Cell::new(0);
            let carry = |name: &Name| {
                let mut carried = BridgeReport::default();
                match name.as_str() {
                    "full" => {
                        seen.set(seen.get() + 1);
                        carried.stuck = Some(full());
                    }
                    _ => carried.carried = 1,
                }
                Ok(carried)
            };
            let carried = carrier.carry(now, "outbox", &names, carry, &mut troubles).unwrap();
            assert_eq!(carried.carried, 1, "the other mailbox is carried every time");
            tried.extend((seen.get() > 0).then_some(second));
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        assert_eq!(troubles.shown().len(), 1);
        let later = Monotonic::from_duration(Duration::from_secs(400));
        let carry = |_: &Name| Ok(BridgeReport::default());
        carrier.carry(later, "outbox", &names, carry, &mut troubles).unwrap();
        assert!(troubles.shown().is_empty(), "what works again is no trouble");
    }

    #[test]
    fn servers_that_do_not_answer_end_the_round() {
        let mut troubles = CurrentTroubles::default();
        let failed = |unreachable, detail: &str| {
            let (server, detail) = ("nats://hub".to_owned(), detail.to_owned());
            Error::Server { operation: "ask", server, detail, unreachable }
        };
        assert!(troubles.record_result::<()>("leases", Err(failed(true, "it is away"))).is_err());
        troubles.record_result::<()>("leases", Err(failed(false, "it is denied"))).unwrap();
        troubles.record_result::<()>("outbox", Err(failed(true, "its store is full"))).unwrap();
        assert_eq!(troubles.shown().len(), 2);
    }
}
