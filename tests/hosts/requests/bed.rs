//! A queue with a few agents, a clock that is moved by hand, and everything that is recorded.

use ensemble_core::requests::{PlanGates, RequestEntry, RequestStore};

use crate::queue::{QueueBed, QueueSetup};

use crate::*;

pub(crate) use crate::queue::name;

const MAILBOXES: [&str; 4] = ["conductor", "lead", "alice", "bob"];

pub(crate) struct Bed {
    pub(crate) home: tempfile::TempDir,
    pub(crate) clock: SimClock,
    pub(crate) log: SimRecorder,
    queue: Kept,
}

enum Kept {
    Directory(Spool),
    Servers(Box<NatsTransport>, #[expect(dead_code, reason = "ends with it")] Arc<Server>),
}

impl Bed {
    pub(crate) fn new() -> Self {
        let log = SimRecorder::default();
        let setup = QueueSetup::of(MAILBOXES).options(|options| {
            options.with_recorder(Arc::new(log.clone())).with_admission(Arc::new(PlanGates))
        });
        let QueueBed { home, clock, spool, .. } = setup.build();
        Self { home, clock, log, queue: Kept::Directory(spool) }
    }

    /// The same on a real server.
    pub(crate) fn on_servers() -> Self {
        let server = Server::shared();
        let (home, clock) = (tempfile::tempdir().unwrap(), hand_clock());
        let log = SimRecorder::default();
        let options = server
            .options(&crate::nats_support::fresh_team())
            .with_clock(Arc::new(clock.clone()))
            .with_recorder(Arc::new(log.clone()))
            .with_patience(crate::nats_support::PATIENCE);
        let queue = NatsTransport::connect(&options).unwrap();
        for mailbox in MAILBOXES {
            queue.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
        }
        Self { home, clock, log, queue: Kept::Servers(Box::new(queue), server) }
    }

    pub(crate) fn requests(&self) -> Requests<'_> {
        Requests::new(self.queue())
    }

    pub(crate) fn queue(&self) -> &dyn RequestStore {
        match &self.queue {
            Kept::Directory(spool) => spool,
            Kept::Servers(queue, _) => &**queue,
        }
    }

    #[track_caller]
    pub(crate) fn spool(&self) -> &Spool {
        match &self.queue {
            Kept::Directory(spool) => spool,
            Kept::Servers(..) => panic!("a test of files on servers"),
        }
    }

    pub(crate) fn due_ids(&self, agent: &str) -> Vec<MessageId> {
        let agent = name(agent);
        match &self.queue {
            Kept::Directory(spool) => spool.due_ids_for(&agent, &agent, 9).unwrap(),
            Kept::Servers(queue, _) => queue.due_ids_for(&agent, &agent, 9).unwrap(),
        }
    }

    pub(crate) fn pages(&self, id: &str) -> Vec<&'static str> {
        let files = self.queue().files(&name(id)).unwrap().unwrap();
        let written = [true, files.decision.is_some(), files.is_told, files.is_closed];
        let pages = RequestFile::ALL.into_iter().zip(written);
        pages.filter(|(_, is_there)| *is_there).map(|(page, _)| page.name()).collect()
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.home.path().join("queue").join(below)
    }

    /// The lead asks alice to shut down.
    pub(crate) fn shutdown(&self, id: &str) -> RequestEntry {
        let ask = NewRequest::new("shutdown", name("lead"), name("alice"), "enough").with_id(id);
        self.requests().ask(ask).unwrap()
    }

    /// Bob's plan for a task.
    pub(crate) fn plan(&self, id: &str, task: &str, plan: &str) -> RequestEntry {
        let ask = NewRequest::new("plan_approval", name("bob"), name("lead"), plan);
        self.requests().ask(ask.with_id(id).with_task(task)).unwrap()
    }

    pub(crate) fn receive(&self, agent: &str) -> Option<Delivery> {
        self.queue().broker().receive(&name(agent), &name(agent)).unwrap()
    }

    /// The types of an agent's mail, all received.
    pub(crate) fn types(&self, agent: &str) -> Vec<String> {
        let kind = |d: Delivery| d.envelope.kind.to_string();
        std::iter::from_fn(|| self.receive(agent)).map(kind).collect()
    }

    /// A decision file as a script puts it down.
    pub(crate) fn decide_by_hand(&self, id: &str, text: &str) {
        let staged = self.path("tmp/by-hand");
        std::fs::write(&staged, text).unwrap();
        let file = self.path(&format!("requests/{id}/decision.yaml"));
        std::fs::hard_link(&staged, file).unwrap();
        std::fs::remove_file(staged).unwrap();
    }

    pub(crate) fn records(&self, kind: &str) -> Vec<Value> {
        self.log.of(kind)
    }

    /// The names of a directory's entries but locks, sorted.
    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(below)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }
}
