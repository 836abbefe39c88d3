//! Tests of the basic operations.

use super::*;

#[test]
fn move_new_never_replaces() {
    let home = tempfile::tempdir().unwrap();
    let dir = Dir::open(home.path()).unwrap();
    dir.write_new("a", b"a", FileModes::default(), Durability::Process).unwrap();
    dir.write_new("b", b"b", FileModes::default(), Durability::Power).unwrap();
    assert_eq!(dir.move_new("a", &dir, "b").unwrap(), MoveOutcome::Exists);
    assert_eq!(dir.link_and_unlink("a".as_ref(), &dir, "b"), Err(Errno::EXIST));
    assert_eq!(dir.move_new("x", &dir, "y").unwrap(), MoveOutcome::Gone);
    assert_eq!(dir.move_new("a", &dir, "c").unwrap(), MoveOutcome::Done);
    assert_eq!(dir.read("b", 10).unwrap().unwrap(), b"b");
    assert_eq!(dir.stat("c").unwrap().unwrap().mode & 0o777, 0o600);
}

#[test]
fn links_pipes_and_large_files_are_rejected() {
    let home = tempfile::tempdir().unwrap();
    let dir = Dir::open(home.path()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.path().join("link")).unwrap();
    fs::mknodat(&dir, "pipe", fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    dir.write_new("large", &[0; 11], FileModes::default(), Durability::Process).unwrap();
    for name in ["link", "pipe", "large"] {
        assert!(dir.read(name, 10).is_err(), "{name}");
    }
    dir.begin_file("link").unwrap();
    assert!(dir.read("link", 10).unwrap().unwrap().is_empty());
    assert!(dir.read("absent", 10).unwrap().is_none());
    std::os::unix::fs::symlink("/etc", home.path().join("directory")).unwrap();
    assert!(dir.open_child("directory").is_err());
}
