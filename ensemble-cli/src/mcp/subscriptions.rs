//! Subscriptions to resources: the client is notified that its inbox or its requests have changed.
//!
//! inotify wakes a thread for each subscription. The content decides whether anything has changed, so a lost or
//! needless event does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ensemble_core::message::Digest;
use ensemble_core::requests::REQUESTS;
use ensemble_core::watch::Waiter;
use tokio::sync::mpsc::{Receiver, channel};

use super::{ToolContext, resources};

/// How many changes wait for a slow client; the thread sleeps then.
const CHANGES_MAX: usize = 16;
/// The longest sleep of a thread that is to end.
const END_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn is_followed(uri: &str) -> bool {
    [resources::INBOX, resources::REQUESTS].contains(&uri)
}

/// Reports each change of these resources until the flag is set or the receiver is dropped.
pub(super) fn follow(
    desk: Arc<ToolContext>,
    uris: Vec<String>,
    is_over: Arc<AtomicBool>,
) -> Receiver<String> {
    let (changed, changes) = channel(CHANGES_MAX);
    let waiter = waiter(&desk);
    let mut seen: Vec<Option<Digest>> = uris.iter().map(|uri| content(&desk, uri)).collect();
    std::thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) && !changed.is_closed() {
            waiter.wait(END_WITHIN);
            for (uri, seen) in uris.iter().zip(&mut seen) {
                let now = content(&desk, uri);
                // A resource that cannot be read now is checked again.
                if now.is_some() && now != *seen {
                    *seen = now;
                    if changed.blocking_send(uri.clone()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    changes
}

fn content(desk: &ToolContext, uri: &str) -> Option<Digest> {
    let (_, text) = resources::read(desk, uri).ok()??;
    Some(Digest::of(text.as_bytes()))
}

fn waiter(desk: &ToolContext) -> Waiter {
    let project = &desk.project;
    let mailbox = project.queue.join("mailbox").join(desk.mailbox.as_str());
    let mut dirs: Vec<_> = ["new", "front", "cur"].map(|below| mailbox.join(below)).into();
    dirs.extend([project.queue.join(REQUESTS), project.logs()]);
    dirs.retain(|dir| dir.is_dir());
    Waiter::for_logs(&dirs)
}
