//! Claude Code's session files: `~/.claude/sessions/<pid>.json` (or below `$CLAUDE_CONFIG_DIR`), what
//! `claude agents --json` prints (seen at 2.1.330; undocumented, so everything in them may be missing).

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::Value;

use super::AgentReport;
use crate::provider::process::{generations_below, start_time};
use ensemble_core::agent::AgentState;

const FILE_BYTES_MAX: u64 = 64 * 1024;
const FILES_MAX: usize = 1000;

/// The report of the Claude Code in or below process `pid`, or why there is none; of several the nearest.
pub(super) fn report(sessions: &Path, pid: u32) -> Result<AgentReport, String> {
    let (session, path) =
        nearest(sessions, pid).ok_or_else(|| "no file there is of this agent".to_owned())?;
    let value = read(&path).filter(|value| is_of(value, session));
    let value = value.ok_or_else(|| format!("{session}.json is not of this process"))?;
    interpret(&value).ok_or_else(|| format!("{session}.json tells no state that is known"))
}

fn nearest(sessions: &Path, pid: u32) -> Option<(u32, PathBuf)> {
    let nearest = std::fs::read_dir(sessions)
        .ok()?
        .take(FILES_MAX)
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let session: u32 = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
            Some((generations_below(session, pid)?, session, path))
        })
        .min()?;
    let (_, session, path) = nearest;
    Some((session, path))
}

/// A file that its process has left behind may carry the id of another one by now.
fn is_of(value: &Value, session: u32) -> bool {
    let started = match &value["procStart"] {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    value["pid"].as_u64() == Some(u64::from(session))
        && started.is_none_or(|started| start_time(session) == Some(started))
}

fn interpret(value: &Value) -> Option<AgentReport> {
    let status = value["status"].as_str()?;
    let waiting_for = value["waitingFor"].as_str().unwrap_or(status);
    let (state, detail) = match status {
        "idle" => (AgentState::Ready, status),
        "busy" => (AgentState::Busy, status),
        "waiting" if waiting_for.contains("permission") => (AgentState::Permission, waiting_for),
        "waiting" => (AgentState::Dialog, waiting_for),
        _ => return None,
    };
    Some(AgentReport::new(state, detail))
}

/// Reads a session file. A link or a pipe in its place can neither block this nor redirect it.
fn read(path: &Path) -> Option<Value> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::SourcePlaces;
    use super::*;

    fn written(text: &str) -> Result<AgentReport, String> {
        let sessions = tempfile::tempdir().expect("a directory");
        let pid = std::process::id();
        let text = text.replace("PID", &pid.to_string());
        let text = text.replace("START", &start_time(pid).expect("a time").to_string());
        std::fs::write(sessions.path().join(format!("{pid}.json")), text).expect("a file");
        std::fs::write(sessions.path().join("1.json"), "{}").expect("a file");
        std::fs::write(sessions.path().join("x.key"), "{}").expect("a file");
        report(sessions.path(), pid)
    }

    #[test]
    fn its_word_is_understood() {
        for (fields, state, detail) in [
            (r#""status":"idle""#, AgentState::Ready, "idle"),
            (r#""status":"busy","procStart":"START""#, AgentState::Busy, "busy"),
            (
                r#""status":"waiting","waitingFor":"permission prompt","procStart":START"#,
                AgentState::Permission,
                "permission prompt",
            ),
            (r#""status":"waiting","waitingFor":"dialog open""#, AgentState::Dialog, "dialog open"),
        ] {
            let report = written(&format!(r#"{{"pid":PID,{fields}}}"#)).expect(fields);
            assert_eq!((report.state, report.detail.as_str()), (state, detail));
        }
    }

    #[test]
    fn a_program_that_was_started_with_another_home_is_asked_there() {
        let home = tempfile::tempdir().expect("a directory");
        let mut program = std::process::Command::new("sleep");
        let program = program.arg("3600").env("CLAUDE_CONFIG_DIR", home.path());
        let mut program = program.spawn().expect("a process");
        let (pid, sessions) = (program.id(), home.path().join("sessions"));
        std::fs::create_dir(&sessions).expect("a directory");
        let idle = format!(r#"{{"pid":{pid},"status":"idle"}}"#);
        std::fs::write(sessions.join(format!("{pid}.json")), idle).expect("a file");
        let rests = SourcePlaces::in_home(Path::new("/nowhere")).claude_rests(pid);
        program.kill().and_then(|()| program.wait()).expect("its end");
        assert!(rests);
    }

    #[test]
    fn nothing_is_made_of_nonsense() {
        for text in [
            "",
            "[]",
            r#"{"pid":PID}"#,
            r#"{"pid":PID,"status":"dreaming"}"#,
            r#"{"pid":1,"status":"idle"}"#,
            r#"{"pid":PID,"status":"idle","procStart":1}"#,
            r#"{"pid":PID,"status":7}"#,
        ] {
            assert!(written(text).is_err(), "{text}");
        }
        assert!(report(Path::new("/nonexistent"), 1).is_err());
    }
}
