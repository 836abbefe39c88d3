//! Files that are not renamed into place: the watcher routes the whole file, unless its writer
//! pauses for longer than the documented quiet times.

use std::fs::OpenOptions;

use crate::*;

/// Half of a file must not be routed, even if that half is its own document.
const HALVES: [&str; 2] = ["first: half\n", "second: half\n"];

fn whole() -> String {
    HALVES.concat()
}

#[track_caller]
fn assert_whole(bed: &Bed, file: &str, start: Instant) {
    assert_eq!(bed.routed_times(file, 1), [whole()], "{file}");
    println!("{file}: {:.2} s", start.elapsed().as_secs_f64());
}

#[test]
fn a_file_written_by_a_shell_is_routed_whole() {
    let (bed, watcher) = watched_bed();
    fs::write(bed.outside().join("whole"), whole()).unwrap();
    for (file, script) in [
        ("redirected", "{ echo 'first: half'; echo 'second: half'; } >"),
        ("piped", "printf 'first: half\\nsecond: half\\n' | cat >"),
        ("copied", "cp ../outside/whole"),
    ] {
        let file = format!("reports/{file}-completed.yaml");
        let start = Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{script} {file}")]).current_dir(bed.queue());
        assert!(shell.status().unwrap().success(), "{script}");
        if start.elapsed() < ensemble_watch::FOUND_QUIET {
            assert_whole(&bed, &file, start);
        } else {
            // It may have paused with half of it written, for longer than is waited.
            println!("{file}: this machine was too slow to tell");
            let is_whole = || bed.bodies(&file).contains(&whole());
            eventually_true(PATIENCE, "the whole file is routed", is_whole);
        }
    }
    watcher.stop();
}

#[test]
fn a_writer_that_keeps_the_file_open_is_waited_for() {
    let (bed, watcher) = watched_bed();
    let start = Instant::now();
    let file = "reports/slow-completed.yaml";
    let mut writer = File::create(bed.in_queue(file)).unwrap();
    writer.write_all(HALVES[0].as_bytes()).unwrap();
    // Much longer than a closed file must be quiet, shorter than an open one must be.
    std::thread::sleep(8 * ensemble_watch::IN_PLACE_QUIET);
    let routed = bed.total("dispatch");
    writer.write_all(HALVES[1].as_bytes()).unwrap();
    let late = start.elapsed() >= ensemble_watch::FOUND_QUIET;
    drop(writer);
    assert!(late || routed == 0, "half a file was routed");
    eventually_true(PATIENCE, "it is routed", || !bed.bodies(file).is_empty());
    assert!(late || bed.bodies(file) == [whole()], "{:?}", bed.bodies(file));
    println!(
        "{file}: {:.2} s; this machine was too slow to tell: {late}",
        start.elapsed().as_secs_f64()
    );
    watcher.stop();
}

#[test]
fn a_file_that_is_appended_to_is_routed_as_it_is_in_the_end() {
    let (bed, watcher) = watched_bed();
    let file = "reports/appended-completed.yaml";
    let lines: String = (0..200).map(|line| format!("line-{line}: x\n")).collect();
    for line in lines.split_inclusive('\n') {
        let mut open =
            OpenOptions::new().create(true).append(true).open(bed.in_queue(file)).unwrap();
        open.write_all(line.as_bytes()).unwrap();
    }
    eventually_true(PATIENCE, "the whole file is routed", || {
        bed.bodies(file).last() == Some(&lines)
    });
    let bodies = bed.bodies(file);
    assert!(bodies.iter().all(|body| lines.starts_with(body.as_str()) && body.ends_with('\n')));
    println!("200 lines, each by a writer of its own: routed {} times", bodies.len());
    watcher.stop();
}

#[test]
fn links_and_renames_of_all_kinds_are_routed_whole() {
    let (bed, watcher) = watched_bed();
    let start = Instant::now();
    fs::hard_link(bed.stage(whole()), bed.in_queue("reports/linked-completed.yaml")).unwrap();
    assert_whole(&bed, "reports/linked-completed.yaml", start);

    let start = Instant::now();
    land_unnamed(&bed, "named-late-completed.yaml");
    assert_whole(&bed, "reports/named-late-completed.yaml", start);

    let start = Instant::now();
    for temporary in ["reports/.edited-completed.yaml.swp", "reports/edited-completed.yaml.tmp"] {
        fs::write(bed.in_queue(temporary), whole()).unwrap();
        fs::rename(bed.in_queue(temporary), bed.in_queue("reports/edited-completed.yaml")).unwrap();
    }
    assert_whole(&bed, "reports/edited-completed.yaml", start);
    bed.land("reports/renamed-completed.yaml", whole());
    assert_whole(&bed, "reports/renamed-completed.yaml", start);
    watcher.stop();
    assert_eq!(bed.total("dispatch"), 4);
}

/// A file without a name that gets one once it is whole.
fn land_unnamed(bed: &Bed, file: &str) {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let reports = bed.in_queue("reports");
    let mut unnamed = File::from(open(&reports, flags, Mode::RUSR | Mode::WUSR).unwrap());
    unnamed.write_all(whole().as_bytes()).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
    linkat(CWD, path, CWD, reports.join(file), AtFlags::SYMLINK_FOLLOW).unwrap();
}

#[test]
fn an_end_mark_says_that_a_file_is_whole_while_it_is_still_open() {
    let bed = Bed::new();
    let file = "reports/marked-completed.yaml";
    let content = format!("{}...\n", whole());
    let mut writer = File::create(bed.in_queue(file)).unwrap();
    writer.write_all(content.as_bytes()).unwrap();
    let start = Instant::now();
    let watcher = Watcher::start(&bed);
    assert_eq!(bed.routed_times(file, 1), [content]);
    println!("{file}: {:.2} s after the start of the watcher", start.elapsed().as_secs_f64());
    drop(writer);
    watcher.stop();
}
