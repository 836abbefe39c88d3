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
    let steps = "read\nwrite\n".repeat(10_000);
    let plan = Draft::bytes(steps.as_str()).kind("plan_approval").task("task-7");
    let request = worker.request("lead", plan).unwrap();
    let asked = lead.try_recv().unwrap().unwrap();
    assert_eq!(asked.task(), Some("task-7"));
    assert!(asked.bytes().unwrap() == steps.as_bytes(), "a plan of any size is read whole");
    asked.approve("").unwrap();
    assert_eq!(request.decision().unwrap().unwrap().outcome, Outcome::Approved);
    let soon = shutdown().id("r-1").expires_in(Duration::from_millis(500));
    let request = lead.request("worker-1", soon).unwrap();
    let entry = request.requests().find("r-1").unwrap().expect("it has the draft's id");
    assert_eq!(entry.request.deadline_seconds, 1, "0 would not wait");
    let request = lead.request("worker-1", shutdown()).unwrap();
    request.cancel("not yet").unwrap();
    assert_eq!(request.decision().unwrap().unwrap().outcome, Outcome::Cancelled);
}

#[test]
fn a_question_of_any_kind_is_answered_before_it_is_settled() {
    let (_home, lead, worker) = pair();
    let question = |id: &str| Draft::new("may I build?").id(id).kind("build_request");
    for (number, draft) in (1..).zip([
        question("q-1"),
        question("q-2").correlation("build 7: no id of a request"),
        question("q-3").correlation("b-7"),
        question("an.id.that.is.too.long.for.the.directory.of.a.request"),
        // As the message of a request that does not exist.
        question("b-8.request").correlation("b-8"),
    ]) {
        draft.send_to(lead.queue(), worker.name().clone(), Some(lead.name())).unwrap();
        let asked = worker.try_recv().unwrap().unwrap();
        assert!(matches!(asked.settle(), Err(Error::Refused { .. })), "{number}");
        let again = worker.resume(asked.keep()).unwrap();
        again.approve("go").unwrap();
        assert_eq!(worker.counts().unwrap().settled, number);
        assert_eq!(lead.try_recv().unwrap().unwrap().kind().as_str(), "build_response");
    }
    // A loop that does not answer leaves it, and continues with the rest.
    let stop = crate::CancelToken::new().unwrap();
    for draft in [question("q-9"), Draft::new("stop")] {
        draft.send_to(lead.queue(), worker.name().clone(), Some(lead.name())).unwrap();
    }
    let serve = |message: &Message| {
        if message.body() == "stop" {
            stop.cancel();
        }
        Ok(())
    };
    worker.until(&stop).serve(serve).unwrap();
    assert_eq!(worker.counts().unwrap().settled, 6);
}

#[test]
fn what_is_no_request_is_refused() {
    let (_home, lead, worker) = pair();
    assert!(matches!(lead.request("worker-1", "hello"), Err(Error::Refused { .. })));
    assert!(matches!(lead.request("lead", shutdown()), Err(Error::Refused { .. })));
    worker.send("hello").unwrap();
    assert!(matches!(worker.try_recv().unwrap().unwrap().approve(""), Err(Error::Refused { .. })));
}
