//! A thousand mailboxes and 5,000 messages in one mio loop.
use ensemble_core::{Durability, Queue, Result};
use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use std::os::fd::{AsFd as _, AsRawFd as _};
fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let queue = Queue::options().durability(Durability::Process).open_or_create(home.path())?;
    let boxes = (0..1_000).map(|n| queue.mailbox(format!("w-{n}"))).collect::<Result<Vec<_>>>()?;
    let mut inboxes = queue.inboxes(boxes)?;
    let (mut poll, mut events) = (Poll::new().expect("a poller"), Events::with_capacity(8));
    let mail = inboxes.as_fd().as_raw_fd();
    poll.registry().register(&mut SourceFd(&mail), Token(0), Interest::READABLE).expect("a place");
    let send = move |n| queue.send(format!("w-{}", n % 1_000), "x").map(drop);
    std::thread::spawn(move || (0..5_000).try_for_each(send));
    let mut settled = 0;
    while settled < 5_000 {
        poll.poll(&mut events, Some(inboxes.next_look())).expect("events");
        while let Some(message) = inboxes.try_recv()? {
            message.settle()?;
            settled += 1;
        }
    }
    Ok(())
}
