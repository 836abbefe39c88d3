//! `ensemble.yaml` holds commands: it is read only where no other user can have changed it, and never waited for.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::process::Command;

use crate::bed::{Bed, SaidText as _, program, to_end};

#[test]
fn a_configuration_that_others_could_change_is_refused_with_the_remedy() {
    let bed = Bed::new();
    let config = bed.project().join("ensemble.yaml");
    let mode =
        |mode| std::fs::set_permissions(&config, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    bed.fails(2, "status").has(["other users may change it", "chmod go-w"]);
    mode(0o600);
    bed.ok("status");
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give files away");
    }
    // A group may have several users. The private group of the owner, as with a umask of 002, does not.
    chown(&config, None, Some(4001)).unwrap();
    mode(0o664);
    assert!(bed.fails(2, "status").contains("other users may change it"));
    chown(&config, None, Some(0)).unwrap();
    bed.ok("status");
    mode(0o644);
    chown(&config, Some(4001), None).unwrap();
    bed.fails(2, "status").has(["belongs to user 4001"]);
}

#[test]
fn a_configuration_that_is_no_file_of_the_project_is_refused_at_once() {
    let bed = Bed::new();
    let config = bed.project().join("ensemble.yaml");
    let user = bed.project().with_file_name(".config/ensemble/config.yaml");
    std::fs::create_dir_all(user.parent().unwrap()).unwrap();
    let outside = bed.project().with_file_name("outside.yaml");
    std::fs::write(&outside, "durability: process\n").unwrap();
    let pipe = |at: &std::path::Path| {
        assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
    };
    std::fs::remove_file(&config).unwrap();
    for (target, word) in [("/dev/zero", "outside of the project"), ("../outside.yaml", "outside")]
    {
        symlink(target, &config).unwrap();
        bed.fails(2, "status").has([word]);
        std::fs::remove_file(&config).unwrap();
    }
    pipe(&config);
    assert!(bed.fails(2, "status").contains("not a regular file"));
    std::fs::remove_file(&config).unwrap();
    // A link within the project, and one in a person's home, are what people make.
    bed.write_file("real.yaml", "durability: process\n");
    symlink("real.yaml", &config).unwrap();
    symlink(&outside, &user).unwrap();
    bed.ok("status");
    std::fs::remove_file(&user).unwrap();
    symlink("/dev/zero", &user).unwrap();
    assert!(bed.fails(2, "status").contains("not a regular file"));
}

#[test]
fn init_makes_a_configuration_that_is_accepted_under_every_umask() {
    let bed = Bed::empty();
    std::fs::remove_file(bed.project().join("ensemble.yaml")).unwrap();
    let script = format!("umask 000; {} init", program().display());
    let mut shell = bed.command(&["init"]);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(bed.project()).env_clear();
    command
        .envs(shell.env("LC_ALL", "C").get_envs().filter_map(|(key, value)| Some((key, value?))));
    assert_eq!(to_end(&mut command).code, 0);
    bed.ok("status");
}
