//! OpenCode's HTTP server (`opencode --port N`, seen at 1.18.33): `GET /permission` lists what it
//! asks, `GET /session/status` the sessions that work or try again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::http::get;
use super::{AgentReport, HttpPlace};
use crate::provider::process::{below, command_line};
use crate::provider::profile::{Profile, program_name};
use ensemble_core::agent::AgentState;

/// The most that asking takes, both questions together.
pub const HTTP_LIMIT: Duration = Duration::from_millis(500);
/// Words in its status while it waits for a limit to pass.
const LIMITS: [&str; 6] =
    ["rate limit", "rate_limit", "ratelimit", "too many requests", "quota", "usage limit"];

/// The report of the server at `place`, or why there is none.
pub(super) fn report(place: &HttpPlace) -> Result<AgentReport, String> {
    let deadline = Instant::now() + HTTP_LIMIT;
    let permissions = get(place, "/permission", deadline)?;
    let sessions = get(place, "/session/status", deadline)?;
    interpret(&permissions, &sessions)
        .ok_or_else(|| "its answer is not what OpenCode answers".to_owned())
}

/// One server may serve several sessions; if one of them is busy, the agent is.
fn interpret(permissions: &Value, sessions: &Value) -> Option<AgentReport> {
    let asks = !permissions.as_array()?.is_empty();
    let mut limited = None;
    let mut busy = false;
    for session in sessions.as_object()?.values() {
        let kind = session["type"].as_str()?;
        let words = session["message"].as_str().unwrap_or_default();
        let is_limit = LIMITS.iter().any(|limit| words.to_ascii_lowercase().contains(limit));
        match kind {
            "idle" => {}
            "retry" if is_limit => limited = Some((words, session["next"].as_u64())),
            _ => busy = true,
        }
    }
    let mut report = match limited {
        _ if asks => AgentReport::new(AgentState::Permission, "permission asked"),
        _ if busy => AgentReport::new(AgentState::Busy, "busy"),
        Some((words, _)) => AgentReport::new(AgentState::RateLimited, words),
        None => AgentReport::new(AgentState::Ready, "idle"),
    };
    if report.state == AgentState::RateLimited {
        report.resets_at = limited.and_then(|(_, next)| next).map(|next| next.to_string());
    }
    Some(report)
}

/// The listen address of the OpenCode in or below process `pid`, from `--port N` and `--hostname H` on its command
/// line. `None` if there are no such options, or if this machine cannot be sure to reach the address.
pub(super) fn told_to_listen_at(profile: &Profile, pid: u32) -> Option<SocketAddr> {
    below(pid).into_iter().find_map(|pid| {
        let words = command_line(pid)?;
        // Its own program, or the interpreter that runs it.
        let is_opencode = words.iter().take(2).any(|word| {
            let name = word.rsplit('/').next().unwrap_or_default();
            profile.is_program(program_name(name))
        });
        is_opencode.then(|| address(&words)).flatten()
    })
}

fn address(words: &[String]) -> Option<SocketAddr> {
    let option = |name: &str| {
        words.iter().enumerate().find_map(|(index, word)| match word.strip_prefix(name)? {
            "" => words.get(index + 1).map(String::as_str),
            value => value.strip_prefix('='),
        })
    };
    let port: u16 = option("--port")?.parse().ok().filter(|port| *port != 0)?;
    let host = match option("--hostname").unwrap_or("127.0.0.1") {
        "localhost" | "0.0.0.0" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().ok().filter(IpAddr::is_loopback)?,
    };
    Some((host, port).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn its_word_is_understood() {
        let state = |permissions: Value, sessions: Value| {
            interpret(&permissions, &sessions).map(|report| (report.state, report.resets_at))
        };
        let idle = json!({ "ses_1": { "type": "idle" } });
        let busy = json!({ "ses_1": { "type": "idle" }, "ses_2": { "type": "busy" } });
        let retry = |message: &str| json!({ "ses_1": { "type": "retry", "attempt": 2, "message": message, "next": 1_767_460_320_000_u64 } });
        assert_eq!(state(json!([]), json!({})), Some((AgentState::Ready, None)));
        assert_eq!(state(json!([]), idle), Some((AgentState::Ready, None)));
        assert_eq!(state(json!([]), busy.clone()), Some((AgentState::Busy, None)));
        assert_eq!(state(json!([{}]), busy), Some((AgentState::Permission, None)));
        let limited = Some((AgentState::RateLimited, Some("1767460320000".to_owned())));
        assert_eq!(state(json!([]), retry("Too Many Requests")), limited);
        assert_eq!(state(json!([]), retry("overloaded")), Some((AgentState::Busy, None)));
        for nonsense in [json!(7), json!({ "a": 7 }), json!({ "a": {} }), json!([])] {
            assert_eq!(state(json!([]), nonsense), None);
        }
        assert_eq!(state(json!({}), json!({})), None);
    }

    #[test]
    fn its_command_line_tells_where_it_listens() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            address(&words).map(|address| address.to_string())
        };
        let at = |text: &str| Some(text.to_owned());
        assert_eq!(of("opencode --port 4096"), at("127.0.0.1:4096"));
        assert_eq!(of("node /x/opencode --hostname=0.0.0.0 --port=4097"), at("127.0.0.1:4097"));
        assert_eq!(of("opencode --hostname ::1 --port 4096"), at("[::1]:4096"));
        for line in [
            "opencode",
            "opencode --port",
            "opencode --port 0",
            "opencode --port 99999",
            "opencode --portal 4096",
            "opencode --hostname 192.0.2.1 --port 4096",
            "opencode --hostname example.org --port 4096",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
