//! How many records a second are written and read.

use crate::*;

/// `cargo test --release --test mail -- --ignored --nocapture measurement_of_records_per_second`
#[test]
#[ignore = "a measurement, to be run in release"]
fn measurement_of_records_per_second() {
    let (_home, dir) = home();
    let log = EventLog::open(&dir).unwrap();
    let count = 1_000_000_u32;
    let start = Instant::now();
    for n in 0..count {
        log.record("task_start", "worker-1", json!({ "task_id": "task-001", "n": n }));
    }
    let alone = f64::from(count) / start.elapsed().as_secs_f64();
    assert_eq!(log.failures().0, 0);
    println!("one process: {alone:.0} records/s");
    for processes in [2_u32, 4, 8] {
        let (_home, dir) = home();
        let each = 400_000 / processes;
        let start = Instant::now();
        let children = writers(processes as usize, &dir, 1 << 30, u64::from(each));
        children.into_iter().for_each(Child::finish);
        let rate = f64::from(each * processes) / start.elapsed().as_secs_f64();
        assert!(start.elapsed() < DEADLINE);
        println!("{processes} processes: {rate:.0} records/s");
    }
    let start = Instant::now();
    let read = read_all(&dir).unwrap().count();
    println!("reading: {:.0} records/s", read as f64 / start.elapsed().as_secs_f64());
}
