//! Reports that agents write as files: one route calls a closure for each new one, another delivers to a mailbox.

use ensemble_core::{CancelToken, Queue, Result, Watcher};

fn main() -> Result<()> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let queue = Queue::open_or_create(home.path().join("queue"))?;
    let (lead, stop) = (queue.mailbox("lead")?, CancelToken::new()?);

    // What an agent does, with nothing but a shell. The last line says that the file is complete.
    let reports = queue.root().join("reports");
    std::fs::create_dir_all(&reports).expect("a directory");
    for (file, text) in [
        ("task-7-completed.yaml", "status: success\nworker_id: 1\n...\n"),
        ("escalation-task-8.yaml", "task_id: task-8\nreason: unanswered\n...\n"),
    ] {
        std::fs::write(reports.join(file), text).expect("a file");
    }

    let stopper = stop.clone();
    Watcher::new(&queue)?
        .deliver("reports/escalation-*.yaml", &lead)
        .route("reports/*-completed.yaml", move |report| {
            println!("{:?}: {:?}", report.stem(), report.field("status"));
            stopper.cancel(); // this program has seen enough
            Ok(())
        })
        .until(&stop)
        .run()?;

    let escalation = lead.try_recv()?.expect("the escalation");
    println!("{} about {:?}", escalation.kind(), escalation.task());
    escalation.settle()
}
