//! One contract for the blackboard in a directory and on a real server; and what only a server can do to it.

use ensemble_core::document::SharedFiles;
use ensemble_core::event_log::Recorder;
use ensemble_core::proto::lease::Event;
use ensemble_team::board::{
    ActiveControl, Board, BoardError, BoardOptions, ControlFile, NewAgent, NewTask, SignContent,
    TAKE_OVER, TaskStatus, put_shared,
};
use ensemble_team::proto::agent;
use ensemble_team::proto::task::TaskHolder;

use crate::children::{Child, cast, say, wait_for_parent};

use crate::*;

/// Where a board is, and a home for each of two hosts.
enum Store {
    Directory,
    Servers { server: Server, team: String },
}

struct Bed {
    store: Store,
    homes: [tempfile::TempDir; 2],
}

/// Records that a test reads.
#[derive(Default)]
struct Records(Mutex<Vec<(String, String, Value)>>);

impl Recorder for Records {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        self.0.lock().unwrap().push((kind.to_owned(), actor.to_owned(), data));
    }
}

impl Records {
    fn kinds(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap().iter().map(|(kind, by, _)| (kind.clone(), by.clone())).collect()
    }
}

fn options(actor: &str, recorder: Arc<dyn Recorder>) -> BoardOptions {
    BoardOptions::new(actor).with_durability(Durability::Process).with_recorder(recorder)
}

fn shared(home: &Path, host: &str, nats: &NatsOptions, mut options: BoardOptions) -> BoardOptions {
    let queue: Arc<dyn SharedFiles> = Arc::new(NatsTransport::connect(nats).unwrap());
    options.host = Some(host.to_owned());
    (options.copy, options.shared) = (Some(home.join("copy")), Some(queue));
    options
}

impl Bed {
    fn directory() -> Self {
        Self {
            store: Store::Directory,
            homes: std::array::from_fn(|_| tempfile::tempdir().unwrap()),
        }
    }

    fn servers() -> Self {
        let store = Store::Servers { server: Server::start(), team: fresh_team() };
        Self { store, ..Self::directory() }
    }

    fn both() -> [Self; 2] {
        [Self::directory(), Self::servers()]
    }

    /// The project of a host. In a directory, all processes are of one host.
    fn home(&self, host: usize) -> &Path {
        match &self.store {
            Store::Directory => self.homes[0].path(),
            Store::Servers { .. } => self.homes[host].path(),
        }
    }

    fn nats(&self) -> NatsOptions {
        let Store::Servers { server, team } = &self.store else { panic!("a directory") };
        server.options(team).with_patience(Duration::from_secs(60))
    }

    fn options(&self, host: usize, recorder: Arc<dyn Recorder>) -> BoardOptions {
        let plain = options(&format!("host-{host}"), recorder);
        match &self.store {
            Store::Directory => plain,
            Store::Servers { .. } => {
                shared(self.home(host), &format!("host-{host}"), &self.nats(), plain)
            }
        }
    }

    fn create(&self) -> Result<Board, Error> {
        let options = self.options(0, Arc::new(NullRecorder));
        match self.store {
            Store::Directory => Board::create(self.home(0), options),
            Store::Servers { .. } => Board::create_shared(self.home(0), options),
        }
    }

    fn board_with(&self, host: usize, recorder: Arc<dyn Recorder>) -> Board {
        let options = self.options(host, recorder);
        match self.store {
            Store::Directory => Board::find(self.home(host), options).unwrap(),
            Store::Servers { .. } => Board::find_shared(self.home(host), options).unwrap(),
        }
    }

    fn board(&self, host: usize) -> Board {
        self.board_with(host, Arc::new(NullRecorder))
    }
}

fn add(board: &Board, id: &str) -> Result<(), Error> {
    let mut locked = board.lock()?;
    locked.add_task(&NewTask::new(name(id), "work", "spec.md", "it works"))?;
    locked.commit().map(drop)
}

fn register(board: &Board, id: &str) -> TaskHolder {
    let mut locked = board.lock().unwrap();
    let holder = locked.register(&NewAgent::new(name(id), "coder")).unwrap();
    locked.agent_event(&holder, agent::Event::Ready).unwrap();
    locked.commit().unwrap();
    holder
}

fn claim(board: &Board, task: &str, agent: &TaskHolder) -> Result<TaskHolder, Error> {
    let mut locked = board.lock()?;
    let plan = locked.plan_claim(&name(task), agent)?;
    let granted = locked.commit_claim(&plan, Some("c0ffee"))?;
    locked.commit()?;
    Ok(granted.holder)
}

#[test]
fn a_board_is_created_once_and_all_read_the_same() {
    for bed in Bed::both() {
        bed.create().unwrap();
        let again = bed.create().unwrap_err();
        assert!(again.to_string().contains("exists"), "{again}");
        let (near, far) = (bed.board(0), bed.board(1));
        add(&near, "task-1").unwrap();
        assert_eq!(far.read().unwrap().tasks[0].id, name("task-1"));
        assert_eq!(far.read_text().unwrap(), near.read_text().unwrap());
        assert!(far.read_text().unwrap().starts_with("# The blackboard"), "comments stay");
    }
}

#[test]
fn without_a_board_there_is_an_error_that_says_so() {
    let bed = Bed::servers();
    let missing = Board::find_shared(bed.home(0), bed.options(0, Arc::new(NullRecorder)));
    let missing = missing.unwrap_err();
    assert!(matches!(missing.area(), Some(BoardError::Missing { .. })), "{missing}");
    assert!(missing.to_string().contains("nats://"), "{missing}");
}

#[test]
fn writers_on_all_hosts_lose_nothing() {
    const EACH: usize = 6;
    for bed in Bed::both() {
        bed.create().unwrap();
        thread::scope(|scope| {
            for host in 0..4 {
                let board = bed.board(host % 2);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let id = format!("task-{host}-{number}");
                        while let Err(error) = add(&board, &id) {
                            assert!(error.is_transient(), "{error}");
                        }
                    }
                });
            }
        });
        let state = bed.board(1).read().unwrap();
        assert_eq!((state.tasks.len(), state.revision), (4 * EACH, 4 * EACH as u64));
    }
}

#[test]
fn of_two_hosts_that_claim_a_task_one_has_it() {
    for bed in Bed::both() {
        let board = bed.create().unwrap();
        add(&board, "task-1").unwrap();
        let start = Barrier::new(2);
        let claims: Vec<_> = thread::scope(|scope| {
            let claims: Vec<_> = (0..2)
                .map(|host| {
                    let (board, start) = (bed.board(host), &start);
                    scope.spawn(move || {
                        let agent = register(&board, &format!("coder-{host}"));
                        start.wait();
                        claim(&board, "task-1", &agent)
                    })
                })
                .collect();
            claims.into_iter().map(|claim| claim.join().unwrap()).collect()
        });
        let won: Vec<&TaskHolder> = claims.iter().flatten().collect();
        assert_eq!(won.len(), 1, "{claims:?}");
        let task = board.read().unwrap().tasks.remove(0);
        assert_eq!(task.assigned_to.as_ref(), Some(&won[0].by));
        if board.is_shared() {
            let host = won[0].by.as_str().replace("coder", "host");
            assert_eq!(task.host, Some(host), "the worktree is there");
        }
    }
}

#[test]
fn a_change_that_breaks_a_rule_or_is_not_committed_writes_nothing() {
    for bed in Bed::both() {
        let board = bed.create().unwrap();
        let before = board.read_text().unwrap();
        let mut locked = board.lock().unwrap();
        locked.add_task(&NewTask::new(name("task-1"), "work", "spec.md", "done")).unwrap();
        drop(locked);
        let far = bed.board(1);
        let waited = Instant::now();
        drop(far.lock().unwrap());
        assert!(waited.elapsed() < TAKE_OVER, "the lock was free");
        assert_eq!(far.read_text().unwrap(), before);
    }
}

#[test]
fn a_beat_of_one_host_is_seen_on_another_and_swept_with_its_registration() {
    let bed = Bed::servers();
    let near = bed.create().unwrap();
    let far = bed.board(1);
    let agent = register(&near, "coder-1");
    let sequence = |board: &Board| {
        let events = board.scan(&board.read().unwrap()).unwrap();
        events.into_iter().find_map(|event| match event {
            Event::Seen { sequence, .. } => Some(sequence),
            _ => None,
        })
    };
    assert_eq!(sequence(&far), Some(0));
    near.beat(&agent, 5, Duration::from_secs(300)).unwrap();
    assert_eq!(sequence(&far), Some(5));
    let sign = near.give_sign(&agent, &SignContent::Alive, Duration::from_secs(300)).unwrap();
    assert_eq!((sign.sequence, sequence(&far)), (1, Some(6)));
    let mut locked = near.lock().unwrap();
    locked.unregister(&agent, "it goes").unwrap();
    locked.commit().unwrap();
    assert_eq!(far.sweep_beats(&far.read().unwrap()).unwrap(), 2);
    near.pull().unwrap();
    assert_eq!(near.sweep_beats(&near.read().unwrap()).unwrap(), 0, "both are gone for all");
}

#[test]
fn what_stops_the_team_stops_the_sprint_on_every_host() {
    let bed = Bed::servers();
    let near = bed.create().unwrap();
    let far = bed.board(1);
    let files = NatsTransport::connect(&bed.nats()).unwrap();
    files.follow_requests().unwrap();
    let now = ensemble_core::message::Timestamp::from_unix_millis(1_000);
    assert_eq!(ActiveControl::read_shared(&files).unwrap(), []);
    assert!(ActiveControl::put_shared(&files, ControlFile::Pause, now, "lunch").unwrap());
    assert!(!ActiveControl::put_shared(&files, ControlFile::Pause, now, "dinner").unwrap());
    for board in [&near, &far] {
        let found = board.controls().unwrap();
        assert_eq!((found.len(), found[0].reason.as_str()), (1, "lunch"));
    }
    ActiveControl::remove_shared(&files, ControlFile::Pause).unwrap();
    assert_eq!(ActiveControl::read_shared(&files).unwrap(), [], "one that follows hears its own");
    assert_eq!(far.controls().unwrap(), []);
}

#[test]
fn a_lost_race_is_an_error_and_the_verb_may_be_repeated() {
    let bed = Bed::servers();
    let board = bed.create().unwrap();
    add(&board, "task-1").unwrap();
    let mut locked = board.lock().unwrap();
    locked.add_task(&NewTask::new(name("task-2"), "work", "spec.md", "done")).unwrap();
    // A person writes the key, without any lock.
    let other = NatsTransport::connect(&bed.nats()).unwrap();
    let text = board.read_text().unwrap().replace("work", "other work");
    put_shared(&other, "board/state.yaml", text.as_bytes()).unwrap();
    let lost = locked.commit().unwrap_err();
    assert!(matches!(lost.area(), Some(BoardError::Changed { .. })), "{lost}");
    assert!(lost.is_transient() && lost.to_string().contains("do it again"), "{lost}");
    let records = Arc::new(Records::default());
    let board = bed.board_with(0, records.clone());
    add(&board, "task-2").unwrap();
    let state = board.read().unwrap();
    assert_eq!(state.tasks[0].description.as_deref(), Some("other work"), "nothing is lost");
    assert_eq!(state.tasks.len(), 2);
    let kinds: Vec<String> = records.kinds().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["board.edited", "board.written"]);
}

#[test]
fn a_board_that_the_server_does_not_take_is_refused_whole() {
    let bed = Bed::servers();
    let board = bed.create().unwrap();
    let before = board.read_text().unwrap();
    let mut locked = board.lock().unwrap();
    let long = "x".repeat(60_000);
    for number in 0..18 {
        let id = name(&format!("task-{number}"));
        locked.add_task(&NewTask::new(id, &long, "spec.md", "done")).unwrap();
    }
    let refused = locked.commit().unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    assert!(refused.to_string().contains("max_payload"), "{refused}");
    assert_eq!(board.read_text().unwrap(), before);
    add(&board, "task-1").unwrap();
}

/// Tells its parent before the first record, and waits for its death there.
struct Stuck;

impl Recorder for Stuck {
    fn record(&self, kind: &str, _actor: &str, _data: Value) {
        say(format!("at {kind}"));
        wait_for_parent();
    }
}

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    let [what, home, url, team] = &role[..] else { panic!("{role:?}") };
    let nats = NatsOptions::new(url, name(team));
    let plain = options("victim", Arc::new(Stuck));
    let home = PathBuf::from(home);
    let board = Board::find_shared(&home, shared(&home, "far", &nats, plain)).unwrap();
    let mut locked = board.lock().unwrap();
    if what == "lock" {
        say("locked");
        wait_for_parent();
    }
    locked.add_task(&NewTask::draft(name("by-the-victim"))).unwrap();
    locked.commit().unwrap();
}

/// A process of another host that is killed once it has said this.
fn victim(bed: &Bed, what: &str, says: &str) {
    let Store::Servers { server, team } = &bed.store else { panic!("a directory") };
    let home = bed.home(1).to_str().unwrap();
    let what = format!("shared_board::{what}");
    let mut child = Child::spawn(&[&what, home, &server.url(), team]);
    assert_eq!(child.hear().as_deref(), Some(says));
    child.kill();
}

#[test]
fn the_lock_of_a_killed_process_is_taken_over_by_another_host() {
    let bed = Bed::servers();
    let board = bed.create().unwrap();
    victim(&bed, "lock", "locked");
    let begin = Instant::now();
    add(&board, "task-1").unwrap();
    assert!(begin.elapsed() >= TAKE_OVER, "it has seen the lock unchanged for so long");
    let state = board.read().unwrap();
    assert_eq!((state.tasks.len(), state.tasks[0].status), (1, TaskStatus::Unclaimed));
}

#[test]
fn a_write_whose_writer_was_killed_before_its_record_is_recorded_by_the_next() {
    let bed = Bed::servers();
    bed.create().unwrap();
    victim(&bed, "record", "at board.written");
    let records = Arc::new(Records::default());
    let board = bed.board_with(0, records.clone());
    assert_eq!(board.read().unwrap().tasks[0].id, name("by-the-victim"));
    drop(board.lock().unwrap());
    let written = ("board.written".to_owned(), "victim".to_owned());
    assert_eq!(records.kinds(), [written]);
    drop(board.lock().unwrap());
    assert_eq!(records.kinds().len(), 1, "once");
}
