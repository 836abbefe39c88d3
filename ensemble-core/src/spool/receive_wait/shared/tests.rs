//! Readers that take over from each other.

use super::*;

#[test]
fn a_thread_reads_instead_of_a_task_whose_runtime_is_not_driven() {
    let home = tempfile::tempdir().unwrap();
    let watcher = Arc::<SharedWatcher>::default();
    let wait = FileWait::begin(&watcher, [home.path().to_owned()]);
    let Some((reader, _readable)) = watcher.begin_reading() else {
        return println!("skipped: there is no inotify instance left");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    watcher.set_task(reader, runtime.spawn(std::future::pending::<()>()).abort_handle());
    assert!(matches!(watcher.begin_sleep(wait.id), SleepRole::Reader(_)));
    assert!(watcher.read(reader).is_none(), "the task reads no more");
}
