use tempfile::TempDir;

use super::*;
use crate::Durability;

const PATIENCE: Duration = Duration::from_secs(60);

fn pair() -> (TempDir, Mailbox, Mailbox) {
    let home = tempfile::tempdir().unwrap();
    let options = Queue::options().durability(Durability::Process);
    let queue = options.open_or_create(home.path().join("queue")).unwrap();
    let (lead, worker) = (queue.mailbox("lead").unwrap(), queue.mailbox("worker-1").unwrap());
    (home, lead, worker)
}

fn shutdown() -> Draft {
    Draft::new("enough for today").kind("shutdown")
}

#[test]
fn the_first_answer_of_the_addressee_stands() {
    let (_home, lead, worker) = pair();
    let request = lead.request(&worker, shutdown()).unwrap();
    assert_eq!(request.wait(Duration::ZERO).unwrap(), None);
    let answering = std::thread::spawn(move || {
        let asked = worker.recv().unwrap().unwrap();
        assert!(matches!(asked.settle(), Err(Error::Refused { .. })), "it has no answer");
        asked.decline("one more task").unwrap();
        assert!(matches!(asked.approve("bye"), Err(Error::Refused { .. })));
    });
    let decision = request.wait(PATIENCE).unwrap().unwrap();
    assert_eq!((decision.outcome, decision.comment.as_str()), (Outcome::Rejected, "one more task"));
    answering.join().unwrap();
    assert!(matches!(request.cancel("late"), Err(Error::Refused { .. })));
    let answer = lead.try_recv().unwrap().unwrap();
    assert_eq!(answer.kind().as_str(), "shutdown_response");
}

#[test]
fn a_plan_needs_approval_and_a_request_can_be_taken_back() {
    let (_home, lead, worker) = pair();
    let plan = Draft::new("1. read\n2. write").kind("plan_approval").task("task-7");
    let request = worker.request("lead", plan).unwrap();
    let asked = lead.try_recv().unwrap().unwrap();
    assert_eq!(asked.task(), Some("task-7"));
    asked.approve("").unwrap();
    assert_eq!(request.decision().unwrap().unwrap().outcome, Outcome::Approved);
    let request = lead.request("worker-1", shutdown()).unwrap();
    request.cancel("not yet").unwrap();
    assert_eq!(request.decision().unwrap().unwrap().outcome, Outcome::Cancelled);
}

#[test]
fn what_is_no_request_is_refused() {
    let (_home, lead, worker) = pair();
    assert!(matches!(lead.request("worker-1", "hello"), Err(Error::Refused { .. })));
    assert!(matches!(lead.request("lead", shutdown()), Err(Error::Refused { .. })));
    worker.send("hello").unwrap();
    assert!(matches!(worker.try_recv().unwrap().unwrap().approve(""), Err(Error::Refused { .. })));
}
