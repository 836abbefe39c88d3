//! A thousand mailboxes in one event loop (mio), by one descriptor and without a thread.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::thread;

use ensemble_core::{Durability, Mailbox, Queue, Result};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

const MAILBOXES: usize = 1_000;
const MAIL: Token = Token(0);

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = home.path().join("queue");
    let queue = Queue::options().durability(Durability::Process).open_or_create(&root)?;
    let boxes = (1..=MAILBOXES).map(|number| queue.mailbox(format!("worker-{number}")));
    let boxes: Vec<Mailbox> = boxes.collect::<Result<_>>()?;
    let mut inboxes = queue.inboxes(boxes)?;

    let mut poll = Poll::new().expect("a poller");
    let descriptor = inboxes.as_fd().as_raw_fd();
    let mut source = SourceFd(&descriptor);
    poll.registry().register(&mut source, MAIL, Interest::READABLE).expect("a descriptor");
    let sending = thread::spawn(move || -> Result<()> {
        (1..=MAILBOXES).try_for_each(|number| {
            queue.send(format!("worker-{number}"), "a task").map(drop) //
        })
    });

    let mut events = Events::with_capacity(8);
    let mut settled = 0;
    while settled < MAILBOXES {
        // Until the descriptor says so: an edge comes once, so take all mail.
        while let Some(message) = inboxes.try_recv()? {
            message.settle()?;
            settled += 1;
        }
        if settled < MAILBOXES {
            poll.poll(&mut events, Some(inboxes.next_look())).expect("events");
        }
    }
    println!("{settled} messages of {MAILBOXES} mailboxes");
    sending.join().expect("the sender does not panic")
}
