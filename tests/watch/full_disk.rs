//! A full disk: clear errors, no half-written file, and normal work once there is room. Needs the
//! right to mount a small tmpfs; prints the reason and skips without it.

use std::os::unix::fs::MetadataExt as _;

use ensemble_project::overview::{Overview, OverviewSource, StateSource};
use tempfile::TempDir;

use crate::*;

/// A project on a file system of one megabyte; unmounted, then removed, when this is dropped.
struct SmallDisk {
    bed: Bed,
    _mount: Mount,
    _home: TempDir,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let mount = Mount::tmpfs(home.path(), "size=1m,mode=700")?;
        Some(Self { bed: Bed::at(home.path()), _mount: mount, _home: home })
    }

    fn ballast(&self) -> PathBuf {
        self.bed.home.path().join("ballast")
    }

    /// Fills the disk but for `left` bytes.
    fn fill(&self, left: u64) {
        let mut ballast = File::create(self.ballast()).unwrap();
        while ballast.write_all(&[0; 4096]).is_ok() {}
        let bytes = ballast.metadata().unwrap().len();
        ballast.set_len(bytes - left).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

fn needs_of(bed: &Bed) -> Vec<String> {
    let (project, spool) = (Project::discover(Some(&bed.queue())).unwrap(), bed.spool());
    let here = OverviewSource::Here(&spool);
    let overview = Overview::gather_once(&project, here, StateSource::Watcher);
    overview.needs.into_iter().map(|need| need.text).collect()
}

/// Such a file system is not mounted read-only, but refuses to write.
#[test]
fn a_file_system_that_has_stopped_writing_after_an_error_is_a_need() {
    let (home, image) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let Some(_mount) = Mount::ext4(home.path(), image.path()) else { return };
    let bed = Bed::at(home.path());
    assert_eq!(needs_of(&bed), [""; 0]);
    let device = fs::metadata(home.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    let name = device.file_name().unwrap().to_str().unwrap();
    if fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").is_err() {
        return println!("skipped: this kernel breaks no ext4 on request");
    }
    let refused = bed.spool().publish(&Envelope::new(support::name("dispatch"), "x".to_owned()));
    assert_eq!(refused.unwrap_err().io_kind(), Some(std::io::ErrorKind::ReadOnlyFilesystem));
    let needs = needs_of(&bed);
    let is_said = |text: &String| text.contains("read-only") || text.contains("stopped writing");
    assert!(needs.iter().any(is_said), "{needs:?}");
}

#[test]
fn a_full_disk_refuses_to_publish_and_lets_everything_else_go_on() {
    let Some(disk) = SmallDisk::new() else { return };
    let (bed, spool, dispatch) = (&disk.bed, disk.bed.spool(), name("dispatch"));
    disk.fill(200_000);
    let body = "x".repeat(3_000);
    let mut published = Vec::new();
    let error = loop {
        let envelope = Envelope::new(dispatch.clone(), body.clone());
        match spool.publish(&envelope) {
            Ok(_) => published.push(envelope.id),
            Err(error) => break error,
        }
    };
    let text = error.to_string();
    assert!(matches!(error.io_kind(), Some(std::io::ErrorKind::StorageFull)), "{error:?}");
    assert!(text.contains("queue/tmp/") && text.contains("free some room"), "{text}");
    assert!(error.is_transient());
    assert!(support::files(&bed.in_queue("tmp")).is_empty(), "nothing half-written stays");
    assert_eq!(support::messages(&bed.queue(), "dispatch").len(), published.len());
    bed.assert_clean();
    let needs = || needs_of(bed);
    let is_said = |needs: &[String]| needs.iter().any(|text| text.contains("queue is full"));
    assert!(is_said(&needs()), "{:?}", needs());

    let (root, now) = (bed.home.path(), spool.now());
    assert!(ActiveControl::put(root, ControlFile::Pause, now, "lunch").unwrap());
    assert_eq!(ActiveControl::read_all(root).unwrap()[0].file, ControlFile::Pause);
    ActiveControl::remove(root, ControlFile::Pause).unwrap();

    let mut settled = 0;
    while settled < published.len() / 2 {
        let delivery = spool.receive(&dispatch, &name("reader")).unwrap().unwrap();
        match spool.extend(&delivery.lease, Duration::from_secs(60)) {
            Ok(()) | Err(Error::Io { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        spool.settle(&delivery.lease).unwrap();
        settled += 1;
    }
    let given_back = spool.receive(&dispatch, &name("reader")).unwrap().unwrap();
    spool.release(&given_back.lease, Duration::ZERO).unwrap();

    disk.free();
    assert!(!is_said(&needs()), "{:?}", needs());
    let last = Envelope::new(dispatch.clone(), body);
    spool.publish(&last).unwrap();
    published.push(last.id);
    while let Some(delivery) = spool.receive(&dispatch, &name("reader")).unwrap() {
        spool.settle(&delivery.lease).unwrap();
        settled += 1;
    }
    assert_eq!(settled, published.len());
    spool.sweep().unwrap();
    bed.assert_clean();
    println!("{} messages until the disk was full: {text}", published.len() - 1);
}

#[test]
fn the_watcher_survives_a_full_disk_and_routes_everything_once_there_is_room() {
    const FILES: u64 = 40;
    let Some(disk) = SmallDisk::new() else { return };
    let bed = &disk.bed;
    let mut watcher = Watcher::start(bed);
    let staged: Vec<PathBuf> = (0..FILES).map(|n| bed.stage(format!("n: {n}\n"))).collect();
    disk.fill(10 * 4096);
    for (number, path) in staged.iter().enumerate() {
        fs::rename(path, bed.in_queue(&format!("reports/f{number}-completed.yaml"))).unwrap();
    }
    eventually_true(PATIENCE, "it has routed what there was room for", || {
        bed.total("dispatch") > 0
    });
    // One that cannot be set aside either, because its reason needs room.
    std::os::unix::fs::symlink("/etc/passwd", bed.in_queue("reports/link-completed.yaml")).unwrap();
    eventually_true(PATIENCE, "the disk is full", || {
        let probe = bed.outside().join("probe");
        let is_full =
            File::create(&probe).and_then(|mut probe| probe.write_all(&[0; 4096])).is_err();
        // Otherwise, it would keep the last page for itself, and find room in it forever.
        fs::remove_file(probe).unwrap();
        is_full
    });
    // A page that the watcher returns may take one more between any two looks.
    let before = bed.total("dispatch");
    let whole = support::messages(&bed.queue(), "dispatch").len() as u64;
    let while_full = bed.total("dispatch");
    assert!(while_full < FILES, "the disk was never full");
    assert!((before..=while_full).contains(&whole), "{before} {whole} {while_full}");
    watcher.assert_running();
    disk.free();
    eventually_true(PATIENCE, "all are routed", || bed.total("dispatch") >= FILES);
    eventually_true(PATIENCE, "the link is put aside", || {
        bed.in_queue("reports/link-completed.yaml").symlink_metadata().is_err()
    });
    watcher.stop();
    let again = Watcher::start(bed);
    bed.land("reports/last-completed.yaml", "n: last\n");
    bed.routed_times("reports/last-completed.yaml", 1);
    again.stop();
    // One more reports the link, whose writer is unknown.
    assert_eq!(bed.total("dispatch"), FILES + 2, "none twice");
    assert!(bed.routed("dispatch").values().all(|bodies| bodies.len() == 1));
    bed.assert_clean();
    println!("{FILES} files: {while_full} routed while there was room, all afterwards");
}

/// A watcher whose stderr goes to this file.
fn watcher_with_stderr(bed: &Bed, stderr: &Path, program: &str) -> Watcher {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>>\"$0\""]).arg(stderr).arg(program);
    let mut watcher = Watcher::launch_by(shell, &bed.queue());
    let pid = watcher.pid();
    watcher.wait_for_status("it watches", |status| status["pid"] == pid);
    watcher
}

/// Number of write calls of a process; `None` once it has ended.
fn writes(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("syscw: "))?.parse().ok()
}

#[test]
fn the_watcher_outlives_a_full_disk_with_its_stderr_and_all_else_on_it() {
    let Some(disk) = SmallDisk::new() else { return };
    let bed = &disk.bed;
    // Its last page is full: each further line needs room.
    let stderr = bed.home.path().join("stderr");
    fs::write(&stderr, [b'\n'; 4096]).unwrap();
    let mut watcher = watcher_with_stderr(bed, &stderr, watcher::WATCHER);
    // All files exist before the watcher looks, and then there is no room for its reactions.
    watcher.stand_still();
    fs::create_dir_all(bed.in_queue("requests")).unwrap();
    for number in 0..20 {
        let request = bed.in_queue(&format!("requests/bad-{number}"));
        fs::create_dir(&request).unwrap();
        fs::write(request.join("request.yaml"), "round: [").unwrap();
        File::create(bed.in_queue(&format!("reports/empty-{number}-completed.yaml"))).unwrap();
        let link = bed.in_queue(&format!("reports/link-{number}-completed.yaml"));
        std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
    }
    disk.fill(0);
    watcher.signal(rustix::process::Signal::CONT);
    let (pid, before) = (watcher.pid(), writes(watcher.pid()).unwrap());
    eventually_true(PATIENCE, "it has tried to write", || {
        watcher.assert_running();
        writes(pid).is_some_and(|now| now >= before + 60)
    });
    watcher.assert_running();
    disk.free();
    bed.land("reports/last-completed.yaml", "n: last\n");
    bed.routed_times("reports/last-completed.yaml", 1);
    watcher.stop();
}

/// A file system of half a megabyte.
struct Part {
    _mount: Mount,
    at: PathBuf,
}

impl Part {
    fn new(at: PathBuf) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        Some(Self { _mount: Mount::tmpfs(&at, "size=512k,mode=700")?, at })
    }

    fn fill(&self) {
        let mut ballast = File::create(self.at.join("ballast.tmp")).unwrap();
        while ballast.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.at.join("ballast.tmp")).unwrap();
    }
}

/// The queue, the state with `watch.json`, the event log, and stderr: each on its own disk that may be full.
#[test]
fn the_watcher_outlives_every_combination_of_full_disks() {
    std::thread::scope(|scope| {
        for full in 1..16_u8 {
            scope.spawn(move || outlives(full));
        }
    });
}

fn outlives(full: u8) {
    let home = tempfile::tempdir().unwrap();
    let places = ["queue", ".ensemble", ".ensemble/logs"].map(|place| home.path().join(place));
    let mut parts = Vec::new();
    for place in places {
        let Some(part) = Part::new(place) else { return };
        parts.push(part);
    }
    let bed = Bed::at(home.path());
    let is_full = |number: usize| full & (1 << number) != 0;
    let stderr = if is_full(3) { "/dev/full" } else { "/dev/null" };
    let mut watcher = watcher_with_stderr(&bed, Path::new(stderr), watcher::WATCHER);
    watcher.stand_still();
    for number in 0..4 {
        let report = bed.in_queue(&format!("reports/r{number}-completed.yaml"));
        fs::write(report, format!("n: {number}\n")).unwrap();
        let link = bed.in_queue(&format!("reports/link-{number}-completed.yaml"));
        std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
    }
    parts.iter().enumerate().filter(|(n, _)| is_full(*n)).for_each(|(_, part)| part.fill());
    let (pid, before) = (watcher.pid(), writes(watcher.pid()).unwrap());
    watcher.signal(rustix::process::Signal::CONT);
    eventually_true(PATIENCE, "it has tried to write", || {
        watcher.assert_running();
        writes(pid).is_some_and(|now| now >= before + 20)
    });
    parts.iter().enumerate().filter(|(n, _)| is_full(*n)).for_each(|(_, part)| part.free());
    for number in 0..4 {
        let routed = bed.routed_times(&format!("reports/r{number}-completed.yaml"), 1);
        assert_eq!(routed.len(), 1, "{full:#06b}");
    }
    eventually_true(PATIENCE, "the links are put aside", || {
        (0..4).all(|n| {
            let link = bed.in_queue(&format!("reports/link-{n}-completed.yaml"));
            link.symlink_metadata().is_err()
        })
    });
    watcher.stop();
    bed.assert_clean();
    // Unmounted before the directory is removed.
    parts.into_iter().rev().for_each(drop);
}

#[test]
fn a_watcher_that_cannot_write_to_stderr_goes_on() {
    let bed = Bed::new();
    for stray in ["requests/stray", "requests/other"] {
        fs::create_dir_all(bed.in_queue("requests")).unwrap();
        fs::create_dir_all(bed.in_queue(stray)).unwrap();
        fs::write(bed.in_queue(stray).join("request.yaml"), "round: [").unwrap();
    }
    let mut watcher = watcher_with_stderr(&bed, Path::new("/dev/full"), watcher::WATCHER);
    bed.land("reports/one-completed.yaml", "n: 1\n");
    bed.routed_times("reports/one-completed.yaml", 1);
    eventually_true(PATIENCE, "what it warns of has happened", || {
        !bed.in_queue("requests/stray").exists()
    });
    watcher.assert_running();
    watcher.stop();
}
