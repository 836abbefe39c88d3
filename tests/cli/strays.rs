//! Files that have no business in the directories of a project: they cost a warning, and no verb.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::bed::Bed;

const PLACES: [&str; 6] = [
    "queue/requests",
    "queue/gates",
    ".ensemble/panes",
    ".ensemble/roster",
    ".ensemble/logs",
    ".ensemble/sessions",
];

/// Whatever may lie in a directory by mistake.
fn litter(place: &Path) {
    std::fs::create_dir_all(place).unwrap();
    for file in ["stray", "stray.yaml", "session-20200101-000000.ndjson", "w1.yaml", "t@w1.yaml"] {
        std::fs::write(place.join(file), "round: [").unwrap();
    }
    std::fs::write(place.join(OsStr::from_bytes(b"odd-\xff.yaml")), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.join("link.yaml")).unwrap();
    std::fs::create_dir(place.join("directory.yaml")).unwrap();
}

#[test]
fn a_stray_file_costs_no_verb() {
    for place in PLACES {
        let bed = Bed::new();
        litter(&bed.project().join(place));
        for verb in [
            "status",
            "team",
            "inbox --as w1",
            "requests",
            "log",
            "send --to w1 hello",
            "recv --as w1",
            "mailbox list",
            "fsck --repair",
            "requests",
            "status --json",
        ] {
            let ran = bed.run(verb);
            let expected = if verb.starts_with("fsck") { [0, 4] } else { [0, 0] };
            assert!(expected.contains(&ran.code), "{verb} with strays in {place}: {ran:?}");
        }
    }
}
