//! Questions and answers: a mailbox that asks, and a worker that serves.

use std::time::Duration;

use super::mailbox::deadline_in;
use super::{CallbackResult, Draft, IntoName, Mailbox, Message};
use crate::error::allow_unreadable;
use crate::{Error, Result};

/// How many waiting messages [`Mailbox::ask`] looks through for its answer.
const ASK_LOOKS_MAX: usize = 1_000;

/// # Questions and answers
impl Mailbox {
    /// Asks another mailbox, and waits at most `patience` for the [`reply`](Message::reply), which comes to this
    /// mailbox. Other mail stays where it is. `None` if no reply came. Question and reply
    /// expire after `patience`, unless the draft says otherwise.
    ///
    /// # Errors
    /// As for [`Queue::send`](super::Queue::send) and [`Mailbox::recv`].
    ///
    /// ```
    /// use std::time::Duration;
    /// # use ensemble_core::Queue;
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// let (lead, worker) = (queue.mailbox("lead")?, queue.mailbox("worker-1")?);
    /// let answering = std::thread::spawn(move || {
    ///     let question = worker.recv()?.expect("the question");
    ///     question.reply(format!("{} lines", question.body().len()))?;
    ///     question.settle()
    /// });
    /// let answer = lead.ask("worker-1", "how many lines?", Duration::from_secs(60))?.expect("an answer");
    /// assert_eq!(answer.body(), "15 lines");
    /// answer.settle()?;
    /// # answering.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ask(
        &self,
        to: impl IntoName,
        draft: impl Into<Draft>,
        patience: Duration,
    ) -> Result<Option<Message>> {
        let deadline = deadline_in(patience);
        let (draft, correlation) = draft.into().asking(patience);
        // Begun before the question is sent, so that no answer comes unseen.
        let mut wait = self.begin_wait();
        draft.send_to(self.queue(), to.into_name()?, Some(self.name()))?;
        loop {
            if let Some(message) = self.receive_answer(&correlation)? {
                return Ok(Some(message));
            }
            if self.is_over(deadline) {
                return Ok(None);
            }
            self.sleep(&mut wait, deadline)?;
        }
    }

    pub(super) fn receive_answer(&self, correlation: &str) -> Result<Option<Message>> {
        let spool = self.queue().spool();
        for id in spool.due_ids(self.name(), ASK_LOOKS_MAX)? {
            // Another consumer took it, or it is damaged: a receive deals with that.
            let asked = allow_unreadable(spool.peek(self.name(), &id))?;
            let is_answer =
                asked.is_some_and(|it| it.correlation_id.as_deref() == Some(correlation));
            if is_answer && let Some(message) = self.recv_id(&id)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Calls `work` with each message as it comes, until the token of [`until`](Self::until) is cancelled. `Ok` settles
    /// the message, unless `work` has ended it itself. An error returns it to the mailbox, later each time; after the
    /// last attempt it is a dead letter, with that error as its reason.
    ///
    /// ```
    /// # use ensemble_core::{CancelToken, Queue};
    /// # let home = tempfile::tempdir()?;
    /// # let queue = Queue::open_or_create(home.path())?;
    /// let stop = CancelToken::new()?;
    /// let inbox = queue.mailbox("worker-1")?.until(&stop);
    /// inbox.send("src/main.rs")?;
    /// inbox.serve(|task| {
    ///     println!("{}", task.body()); // `?` takes any error here
    /// #   stop.cancel();
    ///     Ok(())
    /// })?;
    /// # assert_eq!(inbox.counts()?.settled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Mailbox::recv`], or a message cannot be settled. Neither an error of `work` nor a lease that expired
    /// in the meantime ends it.
    pub fn serve(&self, mut work: impl FnMut(&Message) -> CallbackResult) -> Result<()> {
        while let Some(message) = self.recv()? {
            match work(&message) {
                Ok(()) if message.is_decided() => {}
                Ok(()) => match message.settle() {
                    // Another holder works on it now.
                    Err(Error::LeaseLost { .. }) => {}
                    // A request that `work` has not answered is left for another reader.
                    Err(error @ Error::Refused { .. }) => message.give_back(&error.to_string()),
                    settled => settled?,
                },
                Err(error) => message.return_failed(&error.to_string()),
            }
        }
        Ok(())
    }

    /// As [`Mailbox::serve`], and replies to each message with what `work` returns, such as
    /// `server.answer(|asked| Ok(asked.body().to_uppercase()))`.
    ///
    /// # Errors
    /// As for [`Mailbox::serve`]. A reply that cannot be sent is an error of the work.
    pub fn answer<D: Into<Draft>>(
        &self,
        mut work: impl FnMut(&Message) -> CallbackResult<D>,
    ) -> Result<()> {
        self.serve(|message| {
            let answer = work(message)?;
            message.reply(answer)?;
            Ok(())
        })
    }
}
