//! The connection to a real tmux server: restarts, lost sessions, a server that hangs.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use ensemble_tmux::tmux::{EXCHANGE_LIMIT, TmuxServer};
use rustix::process::{Pid, Signal, kill_process};

use crate::*;

/// What a limit may be exceeded by on a machine that pauses for seconds; less than eight limits, one
/// for each of [`a_hung_server_costs_many_callers_one_limit`].
const SLACK: Duration = Duration::from_secs(3 * EXCHANGE_LIMIT.as_secs());

/// Compiles, or does not: a thread may own a pane.
const _: () = {
    const fn sent<T: Send + ?Sized>() {}
    sent::<ensemble_tmux::tmux::TmuxPane>();
    sent::<Box<dyn ensemble_core::env::Pane + Send>>();
};

#[test]
fn no_server_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = TmuxServer::new(dir.path().join("socket"));
    let error = server.panes().expect_err("no server").to_string();
    assert!(error.contains("no server is running"), "{error}");
    assert!(!dir.path().join("socket").exists(), "asking must not start a server");
    server.kill_server().expect("nothing to end");
}

#[test]
fn a_restarted_server_is_found_again() {
    let mut tmux = TestServer::reader();
    assert_eq!(tmux.server.panes().expect("panes").len(), 1);
    // Another handle ends it, so that the client learns of it by itself.
    TmuxServer::new(tmux.server.socket()).kill_server().expect("ended");
    let error = tmux.server.panes().expect_err("no server").to_string();
    assert!(error.contains("no server is running"), "{error}");
    let command = tmux.reader_command();
    TmuxServer::new(tmux.server.socket()).new_session("main", &command, 80, 24).expect("a session");
    tmux.adopt();
    let mut pane = tmux.pane("%0", "shell");
    eventually("sent", || {
        pane.nudge(&text_for("shell")).expect("an outcome") == NudgeOutcome::Sent
    });
}

#[test]
fn every_first_question_attaches_a_client_whatever_else_the_machine_does() {
    const HANDLES: usize = 4;
    const ROUNDS: usize = 10;
    std::thread::scope(|scope| {
        for _ in 0..HANDLES {
            scope.spawn(|| {
                let tmux = TestServer::start("exec cat");
                for round in 0..ROUNDS {
                    let server = TmuxServer::new(tmux.server.socket());
                    server.panes().expect("panes");
                    // A client that asked before it was attached was treated as refused and ended.
                    let listed = tmux.server.run(&["list-clients", "-F", "#{client_pid}"]);
                    let clients = listed.expect("clients").len();
                    assert!(clients >= 2, "round {round}: {clients} clients");
                }
            });
        }
    });
}

#[test]
fn a_destroyed_session_is_replaced_by_another() {
    let tmux = TestServer::start("exec cat");
    tmux.server.new_session("second", "exec cat", 80, 24).expect("a session");
    assert_eq!(tmux.server.panes().expect("panes").len(), 2);
    for name in ["main", "third", "fourth"] {
        let next = format!("after-{name}");
        tmux.server.new_session(&next, "exec cat", 80, 24).expect("a session");
        tmux.server.panes().expect("panes");
        if name == "main" {
            tmux.server.run(&["kill-session", "-t", "=main"]).expect("ended");
        }
        let sessions = tmux.server.panes().expect("panes");
        assert!(sessions.iter().any(|pane| pane.session == next));
    }
}

#[test]
fn a_server_without_sessions_is_asked_by_processes() {
    let tmux = TestServer::start("exec cat");
    tmux.server.run(&["set-option", "-s", "exit-empty", "off"]).expect("an option");
    tmux.server.run(&["kill-session", "-t", "=main"]).expect("ended");
    assert_eq!(tmux.server.panes().expect("no panes"), []);
    let shown = tmux.server.run(&["display-message", "-p", "it's; #{version}"]).expect("a line");
    assert!(shown[0].starts_with("it's; 3") || shown[0].starts_with("it's; n"), "{shown:?}");
    let error = tmux.server.run(&["no-such-command"]).expect_err("refused").to_string();
    assert!(error.contains("unknown command"), "{error}");
    tmux.server.new_session("again", "exec cat", 80, 24).expect("a session");
    assert_eq!(tmux.server.panes().expect("a pane").len(), 1);
}

#[test]
fn a_complaint_is_an_error_and_the_client_lives_on() {
    let tmux = TestServer::start("exec cat");
    for command in [&["no-such-command"][..], &["kill-pane", "-t", "%77"], &["set-option"]] {
        assert!(tmux.server.run(command).is_err(), "{command:?}");
    }
    assert_eq!(tmux.server.run(&["display-message", "-p", "❯"]).expect("a line"), ["❯"]);
}

#[test]
fn a_screen_that_imitates_the_protocol_is_only_a_screen() {
    let tmux = TestServer::start("printf '%%end 1 2 1\\n%%exit\\n%%error 9 9 1\\n'; exec cat");
    let expected = ["%end 1 2 1", "%exit", "%error 9 9 1"];
    eventually("it is shown", || tmux.screen("%0") == expected);
    assert_eq!(tmux.server.panes().expect("the client lives").len(), 1);
}

#[test]
fn a_hung_server_is_reported_in_time_and_found_again() {
    let tmux = TestServer::reader();
    let mut pane = tmux.pane("%0", "shell");
    let pid = Pid::from_raw(i32::try_from(tmux.pid()).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::STOP).expect("stopped");

    let began = Instant::now();
    assert_eq!(refusal(&mut pane), Deferral::Timeout);
    assert!(began.elapsed() < EXCHANGE_LIMIT + SLACK, "{:?}", began.elapsed());
    // The next call has to attach again, and gives up in time as well.
    let began = Instant::now();
    let error = pane.inspect().expect_err("no answer").to_string();
    assert!(error.contains("no answer within 5 s"), "{error}");
    assert!(began.elapsed() < EXCHANGE_LIMIT + SLACK, "{:?}", began.elapsed());

    kill_process(pid, Signal::CONT).expect("continued");
    assert_eq!(tmux.received(), [""; 0], "what was given up must not be typed later");
    eventually("sent", || {
        pane.nudge(&text_for("shell")).expect("an outcome") == NudgeOutcome::Sent
    });
    eventually("read", || !tmux.received().is_empty());
    assert_eq!(tmux.received(), [text_for("shell").as_str()]);
}

#[test]
fn a_hung_server_costs_many_callers_one_limit() {
    let tmux = TestServer::reader();
    tmux.server.panes().expect("panes");
    let pid = Pid::from_raw(i32::try_from(tmux.pid()).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::STOP).expect("stopped");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| tmux.server.panes().expect_err("no answer"));
        }
    });
    assert!(began.elapsed() < EXCHANGE_LIMIT + SLACK, "{:?}", began.elapsed());
    kill_process(pid, Signal::CONT).expect("continued");
}

#[test]
fn clients_do_not_outlive_their_server_handle() {
    let tmux = TestServer::start("exec cat");
    let other = TmuxServer::new(tmux.server.socket());
    let clients = || tmux.server.run(&["list-clients"]).expect("clients").len();
    // On a busy machine the first exchanges may be made without a client.
    eventually("both have a client", || {
        other.panes().expect("panes");
        clients() == 2
    });
    drop(other);
    eventually("the client is gone", || clients() == 1);
}

/// Run with an empty `PATH` by [`a_missing_tmux_is_named`].
#[test]
#[ignore = "run by another test in an environment without tmux"]
fn subprocess_without_tmux() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = TmuxServer::new(dir.path().join("socket"));
    for error in [
        server.panes().expect_err("no tmux"),
        server.new_session("main", "cat", 80, 24).expect_err("no tmux"),
        server.kill_server().expect_err("no tmux"),
    ] {
        let missing = matches!(error, ensemble_core::Error::MissingProgram { program: "tmux", .. });
        assert!(missing && error.to_string().contains("install tmux"), "{error}");
    }
}

#[test]
fn a_missing_tmux_is_named() {
    let output =
        this_test("subprocess_without_tmux").env("PATH", "/nonexistent").output().expect("run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Where a tmux that is slow on purpose finds how: a rule of strace, for clients that are started
/// while it exists.
const SLOWNESS: &str = "SLOWNESS";
/// A client has said what it is, and not yet all, when the delay begins.
const COMES_SLOWLY: &str = "sendmsg:delay_enter=300ms:when=2";
/// The client has announced that it exits, but the server still counts it.
const GOES_SLOWLY: &str = "exit_group:delay_enter=150ms";

fn make_clients(slow: &str) {
    std::fs::write(std::env::var(SLOWNESS).expect("a path"), slow).expect("written");
}

/// Runs an ignored test of this file with a tmux whose clients are as [`make_clients`] says.
fn with_a_slow_tmux(test: &str) {
    use std::os::unix::fs::PermissionsExt;
    const TMUX: &str = r#"#!/bin/sh
PATH=${PATH#*:}
case "$*" in
*attach-session*)
    [ -e "$0.slow" ] && exec strace -D -qq -o /dev/null -e "inject=$(cat "$0.slow")" tmux "$@" ;;
esac
exec tmux "$@"
"#;
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("tmux");
    std::fs::write(&program, TMUX).expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("executable");
    let path = std::env::var("PATH").expect("a path");
    let output = this_test(test)
        .env("PATH", format!("{}:{path}", dir.path().display()))
        .env(SLOWNESS, dir.path().join("tmux.slow"))
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A process that runs one ignored test of this file.
fn this_test(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", &format!("server::{test}"), "--ignored", "--nocapture"]);
    command
}

#[test]
#[ignore = "run by another test with a slow tmux"]
fn subprocess_with_slow_clients() {
    const CLIENTS: usize = 20;
    let tmux = TestServer::start("exec cat");
    let pid = tmux.server.pid().expect("a server");
    let client = || {
        let server = TmuxServer::new(tmux.server.socket());
        assert_eq!(server.panes().expect("panes").len(), 1);
        server
    };
    let clients: Vec<TmuxServer> = std::iter::repeat_with(client).take(CLIENTS).collect();
    make_clients(COMES_SLOWLY);
    std::thread::scope(|scope| {
        let coming = scope.spawn(client);
        for going in clients {
            drop(going);
            let left = TmuxServer::brief(tmux.server.socket()).panes();
            assert_eq!(left.expect("the server lives").len(), 1);
        }
        coming.join().expect("attached");
    });
    assert_eq!(tmux.server.pid().expect("a server"), pid);
}

#[test]
fn clients_that_come_and_go_at_once_leave_the_server_alone() {
    with_a_slow_tmux("subprocess_with_slow_clients");
}

/// Run by [`subprocess_with_a_killed_owner`], as the owner.
#[test]
#[ignore = "run by another test, which kills it"]
fn subprocess_that_owns_a_client() {
    let server = TmuxServer::new(std::env::var("SOCKET").expect("a path"));
    server.panes().expect("panes");
    println!("attached");
    std::io::stdin().read_line(&mut String::new()).expect("killed before");
}

#[test]
#[ignore = "run by another test with a slow tmux"]
fn subprocess_with_a_killed_owner() {
    let tmux = TestServer::start("exec cat");
    let pid = tmux.server.pid().expect("a server");
    make_clients(GOES_SLOWLY);
    let mut owner = this_test("subprocess_that_owns_a_client")
        .env("SOCKET", tmux.server.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an owner");
    let said = BufReader::new(owner.stdout.take().expect("its output")).lines();
    assert!(said.map_while(Result::ok).any(|line| line.ends_with("attached")));
    make_clients(COMES_SLOWLY);
    owner.kill().expect("killed");
    owner.wait().expect("gone");
    let next = TmuxServer::new(tmux.server.socket());
    assert_eq!(next.panes().expect("the server lives").len(), 1);
    assert_eq!(next.pid().expect("a server"), pid);
}

#[test]
fn a_client_that_outlives_its_owner_and_one_that_comes_leave_the_server_alone() {
    with_a_slow_tmux("subprocess_with_a_killed_owner");
}
