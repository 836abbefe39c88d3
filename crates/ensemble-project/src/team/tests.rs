//! Tests of the team's session name and socket.

use std::path::Path;

use super::*;
use crate::project::CONFIG_FILE;

fn project(root: &Path, config: &str) -> Project {
    std::fs::create_dir_all(root).unwrap();
    std::fs::write(root.join(CONFIG_FILE), format!("durability: process\n{config}")).unwrap();
    Project::discover(Some(&root.join("queue"))).unwrap()
}

#[test]
fn a_session_has_a_name_that_tmux_accepts() {
    let home = tempfile::tempdir().unwrap();
    let named =
        |directory: &str, config: &str| session_of(&project(&home.path().join(directory), config));
    assert_eq!(named("my.project", ""), "my_project");
    assert_eq!(named("a", "team: {name: 'a team: of six'}\n"), "a_team__of_six");
    assert_eq!(named("b", "team: {name: x, session: y}\n"), "y");
}

#[test]
fn a_socket_with_a_too_long_path_moves_to_a_private_directory() {
    let home = tempfile::tempdir().unwrap();
    let near = project(&home.path().join("p"), "");
    assert_eq!(socket_of(&near).unwrap(), near.state.join("tmux.sock"));
    let far = project(&home.path().join("d".repeat(120)), "");
    let socket = socket_of(&far).unwrap();
    assert!(socket.as_os_str().len() <= SOCKET_BYTES_MAX, "{}", socket.display());
    assert_eq!(socket, socket_of(&far).unwrap());
    let other = project(&home.path().join("e".repeat(120)), "");
    assert_ne!(socket, socket_of(&other).unwrap());
    let said = project(&home.path().join("q"), "team: {socket: other.sock}\n");
    assert_eq!(socket_of(&said).unwrap(), home.path().join("q/other.sock"));
}
