//! OpenCode's HTTP server (`opencode --port N`, seen at 1.18.33): `GET /permission` lists what it
//! asks, `GET /session/status` the sessions that work.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Report;
use crate::provider::profile::AgentState;

/// The most that asking takes, both questions together.
pub const HTTP_LIMIT: Duration = Duration::from_millis(500);
/// The most that is read of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// What the server at `address` says.
pub(super) fn report(address: SocketAddr) -> Option<Report> {
    if !address.ip().is_loopback() {
        return None;
    }
    let deadline = Instant::now() + HTTP_LIMIT;
    let permissions = get(address, "/permission", deadline)?;
    let sessions = get(address, "/session/status", deadline)?;
    let (state, detail) = if !permissions.as_array()?.is_empty() {
        (AgentState::Permission, "permission asked")
    } else if sessions.as_object()?.values().any(|session| session["type"] != "idle") {
        (AgentState::Busy, "busy")
    } else {
        (AgentState::Ready, "idle")
    };
    Some(Report { state, detail: detail.to_owned() })
}

fn get(address: SocketAddr, path: &str, deadline: Instant) -> Option<Value> {
    let mut stream = TcpStream::connect_timeout(&address, left(deadline)?).ok()?;
    stream.set_write_timeout(Some(left(deadline)?)).ok()?;
    // HTTP/1.0: the answer ends with the connection.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        stream.set_read_timeout(Some(left(deadline)?)).ok()?;
        match stream.read(&mut buffer).ok()? {
            0 => return body(std::str::from_utf8(&answer).ok()?),
            n if answer.len() + n > ANSWER_BYTES_MAX => return None,
            n => answer.extend_from_slice(&buffer[..n]),
        }
    }
}

fn left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// The JSON in an answer with status 200.
fn body(answer: &str) -> Option<Value> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.split(' ').nth(1)?;
    if status != "200" {
        return None;
    }
    let chunked = head.lines().any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    });
    let body = if chunked { unchunked(body)? } else { body.to_owned() };
    serde_json::from_str(&body).ok()
}

/// Some servers send chunks even to those who asked for none.
fn unchunked(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        let (chunk, rest) = rest.split_at_checked(size)?;
        whole.push_str(chunk);
        body = rest.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that answers two questions, then ends.
    fn asked(permissions: &str, sessions: &str) -> Option<Report> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (permissions, sessions) = (permissions.to_owned(), sessions.to_owned());
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a question");
                let mut request = [0; 1024];
                let n = stream.read(&mut request).expect("a request");
                let question = String::from_utf8_lossy(&request[..n]).into_owned();
                let permission = question.starts_with("GET /permission ");
                let answer = if permission { &permissions } else { &sessions };
                let _ = stream.write_all(answer.as_bytes());
                if answer.is_empty() {
                    return;
                }
            }
        });
        let report = report(address);
        // A server that was not asked twice still waits.
        let _ = TcpStream::connect(address);
        let _ = server.join();
        report
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{body}")
    }

    #[test]
    fn its_word_is_understood() {
        let busy = ok(r#"{"ses_1":{"type":"idle"},"ses_2":{"type":"busy"}}"#);
        let state = |report: Option<Report>| report.map(|report| report.state);
        assert_eq!(state(asked(&ok("[]"), &ok("{}"))), Some(AgentState::Ready));
        assert_eq!(state(asked(&ok("[]"), &busy)), Some(AgentState::Busy));
        assert_eq!(state(asked(&ok("[{}]"), &busy)), Some(AgentState::Permission));
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
        assert_eq!(state(asked(&ok("[]"), chunked)), Some(AgentState::Ready));
    }

    #[test]
    fn nothing_is_made_of_nonsense() {
        for nonsense in ["", "x", "HTTP/1.1 401 No\r\n\r\n[]", &ok("{"), &ok("7")] {
            assert_eq!(asked(nonsense, nonsense), None, "{nonsense:?}");
        }
        assert_eq!(report(SocketAddr::from(([192, 0, 2, 1], 80))), None);
    }

    #[test]
    fn a_silent_server_costs_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let began = Instant::now();
        assert_eq!(report(listener.local_addr().expect("an address")), None);
        assert!(began.elapsed() < HTTP_LIMIT * 4, "{:?}", began.elapsed());
    }
}
