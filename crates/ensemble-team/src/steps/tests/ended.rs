//! What an agent held whose process has ended.

use super::*;

over_databases![
    steps_of_an_agent_that_has_ended_wait_again_at_once,
    a_step_that_waits_again_is_ended_by_its_last_holder,
];

fn steps_of_an_agent_that_has_ended_wait_again_at_once() {
    let plan = "task_id: t-1\nlease_seconds: 900\nsteps: [{agent: Devon, goal: g}]";
    let bed = Bed::new(&[plan, "task_id: t-2\nsteps: [{agent: Tara, goal: g}]"]);
    let (first, other) = (bed.take("Devon").unwrap(), bed.take("Tara").unwrap());
    let leases = bed.store.leases_of(&name("Devon")).unwrap();
    let lease = std::time::Duration::from_secs(900);
    assert_eq!(leases, [(first.key.clone(), first.epoch, lease)]);
    let taken = bed.store.take_back(&name("Devon")).unwrap();
    assert_eq!(taken, [(first.key.clone(), first.epoch)]);
    assert_eq!(bed.store.take_back(&name("Devon")).unwrap(), []);
    assert_eq!(bed.status(&other), "IN_PROGRESS");
    let again = bed.take("Devon").unwrap();
    assert_eq!((&again.key, again.epoch), (&first.key, first.epoch + 1));
    // The old hand-out is fenced; the attempt counts.
    assert!(bed.submit(&first, "success").is_err());
}

fn a_step_that_waits_again_is_ended_by_its_last_holder() {
    let plan =
        "task_id: t-1\nattempts_max: 2\nsteps: [{agent: Devon, goal: g}, {agent: Devon, goal: h}]";
    let bed = Bed::new(&[plan]);
    let late = bed.take("Devon").unwrap();
    bed.store.take_back(&name("Devon")).unwrap();
    assert_eq!(bed.status(&late), "PENDING");
    bed.submit(&late, "success").unwrap();
    assert_eq!(bed.status(&late), "COMPLETED");
    // Its repetition is not an error, and what is done is not handed out.
    assert!(bed.submit(&late, "success").unwrap().already_submitted);
    let next = bed.take("Devon").unwrap();
    assert_ne!(next.key, late.key);
    // The last attempt stops the queue; its holder's late report lets it continue.
    bed.store.take_back(&name("Devon")).unwrap();
    let last = bed.take("Devon").unwrap();
    bed.store.take_back(&name("Devon")).unwrap();
    assert_eq!(bed.status(&last), "FAILED");
    let submitted = bed.submit(&last, "success").unwrap();
    assert!(submitted.queue_done && bed.status(&last) == "COMPLETED");
}
