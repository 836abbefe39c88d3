//! Requests that passed their deadline without a decision, and that call for a person ([`needs`](crate::attention::needs)).
//!
//! ```text
//! the notice of the expiry waits in the conductor's mailbox    the request is undecided
//! the notice is received or settled                            an agent deals with it
//! the requester has asked again for the same                   the new request stands for it
//! ```
//!
//! The same goes for tasks that were settled without their plan: a need while their notice waits.

use std::collections::BTreeMap;

use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::requests::{
    AskedRequest, ESCALATED_TO, RequestStore, Requests, UnplannedTask, is_unplanned_notice,
};
use ensemble_core::spool::State;

const READ_MAX: usize = 200;
/// The end of the id of the notice; the request's id is before it.
const NOTICE_END: &str = ".expired";

/// The ids of what waits in a mailbox on servers; [`Glance::notices`](ensemble_core::spool::Glance) are those of a directory.
pub(super) fn find_waiting(queue: &dyn Broker, mailbox: &Name) -> Result<Vec<MessageId>> {
    let mut found = queue.unfinished(mailbox, READ_MAX)?;
    found.retain(|found| matches!(found.state, State::Queued { .. }));
    Ok(found.into_iter().map(|found| found.id).collect())
}

pub(super) fn unplanned(
    queue: &dyn Broker,
    mailbox: &Name,
    notices: &[MessageId],
) -> Vec<UnplannedTask> {
    let notices = notices.iter().filter(|id| is_unplanned_notice(id));
    // One that is received at this moment is seen by an agent.
    let envelopes = notices.filter_map(|id| queue.peek(mailbox, id).ok());
    envelopes.filter_map(|notice| UnplannedTask::of(&notice)).collect()
}

/// The notices of expiries, of those that wait in the conductor's mailbox; none of another mailbox.
pub(super) fn of_expiries(mailbox: &Name, mut notices: Vec<MessageId>) -> Vec<MessageId> {
    notices.retain(|id| mailbox.as_str() == ESCALATED_TO && id.as_str().ends_with(NOTICE_END));
    notices
}

/// The requests that were checked so far. A request never changes, so each is read once, and none while there is no
/// notice.
#[derive(Debug, Default)]
pub(super) struct ExpiredRequests {
    asked: BTreeMap<Name, AskedRequest>,
}

impl ExpiredRequests {
    /// The requests of these notices, without those that were asked again.
    pub(super) fn of(
        &mut self,
        store: &dyn RequestStore,
        notices: &[MessageId],
    ) -> Result<Vec<AskedRequest>> {
        if notices.is_empty() {
            return Ok(Vec::new());
        }
        let requests = Requests::new(store);
        let ids = requests.ids()?;
        self.asked.retain(|id, _| ids.contains(id));
        for id in ids {
            if !self.asked.contains_key(&id)
                && let Ok(Some(entry)) = requests.find(id.as_str())
            {
                self.asked.insert(id, entry.request);
            }
        }
        let request = |notice: &MessageId| {
            let id = notice.as_str().strip_suffix(NOTICE_END)?;
            self.asked.get(&Name::new(id).ok()?)
        };
        let undecided = notices.iter().filter_map(request);
        Ok(undecided.filter(|asked| !self.is_asked_again(asked)).cloned().collect())
    }

    fn is_asked_again(&self, before: &AskedRequest) -> bool {
        self.asked.values().any(|asked| {
            asked.created_at > before.created_at
                && (&asked.kind, &asked.from) == (&before.kind, &before.from)
                && asked.task_id == before.task_id
        })
    }
}
