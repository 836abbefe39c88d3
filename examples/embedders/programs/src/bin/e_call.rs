//! Questions to another process, and a timeout where it is not running.
use ensemble_core::{Queue, Result};
use std::{env, process::Command, time::Duration};
fn main() -> Result<()> {
    if let Some(root) = env::args().nth(1) {
        return Queue::open(root)?.existing("server")?.answer(|it| Ok(it.body().to_uppercase()));
    }
    let home = tempfile::tempdir().expect("a directory");
    let queue = Queue::open_or_create(home.path())?;
    let (client, _server) = (queue.mailbox("client")?, queue.mailbox("server")?);
    assert!(client.ask("server", "early?", Duration::from_millis(50))?.is_none());
    let me = env::current_exe().expect("a path");
    let mut server = Command::new(me).arg(home.path()).spawn().expect("a process");
    let answered = (0..10).try_for_each(|_| {
        let answer = client.ask("server", "ping", Duration::from_secs(60))?.expect("an answer");
        assert_eq!(answer.body(), "PING");
        answer.settle()
    });
    server.kill().and_then(|()| server.wait()).expect("an end");
    answered
}
