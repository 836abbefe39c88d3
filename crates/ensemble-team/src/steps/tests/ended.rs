//! What an agent held whose process has ended.

use super::*;

#[test]
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
    // The old holder is fenced; the attempt counts.
    assert!(bed.submit(&first, "success").is_err());
    let again = bed.take("Devon").unwrap();
    assert_eq!((&again.key, again.epoch), (&first.key, first.epoch + 1));
}
