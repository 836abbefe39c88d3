//! Queries a server that must answer within half a second in total, with as much of HTTP as that needs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::HttpPlace;

const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// The JSON at `path`, or why there is none.
pub(super) fn get(place: &HttpPlace, path: &str, deadline: Instant) -> Result<Value, String> {
    exchange(place, path, deadline).and_then(|answer| body(&answer))
}

fn exchange(place: &HttpPlace, path: &str, deadline: Instant) -> Result<Vec<u8>, String> {
    let address = place.address;
    let mut stream =
        TcpStream::connect_timeout(&address, left(deadline)?).map_err(|error| in_words(&error))?;
    stream.set_write_timeout(Some(left(deadline)?)).map_err(|error| in_words(&error))?;
    let authorization = place.authorization.as_deref().unwrap_or_default();
    let authorization = match authorization {
        "" => String::new(),
        value => format!("Authorization: {value}\r\n"),
    };
    // HTTP/1.0: the server closes the connection after its answer.
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\
         Connection: close\r\n{authorization}\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(|error| in_words(&error))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        stream.set_read_timeout(Some(left(deadline)?)).map_err(|error| in_words(&error))?;
        match stream.read(&mut buffer).map_err(|error| in_words(&error))? {
            0 => return Ok(answer),
            n if answer.len() + n > ANSWER_BYTES_MAX => return Err("its answer is too long".into()),
            n => answer.extend_from_slice(&buffer[..n]),
        }
        if is_whole(&answer) {
            return Ok(answer);
        }
    }
}

fn left(deadline: Instant) -> Result<Duration, String> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(late)
}

fn late() -> String {
    format!("no answer within {} ms", super::HTTP_LIMIT.as_millis())
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => late(),
        io::ErrorKind::ConnectionRefused => "no server listens there".to_owned(),
        _ => error.to_string(),
    }
}

fn parts(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim())
    })
}

fn is_chunked(head: &str) -> bool {
    header(head, "transfer-encoding")
        .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
}

/// Some servers leave the connection open even if asked to close it.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = parts(answer) else { return false };
    if is_chunked(head) {
        return unchunked(body).is_some();
    }
    header(head, "content-length")
        .and_then(|length| length.parse::<usize>().ok())
        .is_some_and(|length| body.len() >= length)
}

fn body(answer: &[u8]) -> Result<Value, String> {
    let no_http = || "what answers there speaks no HTTP".to_owned();
    let (head, body) = parts(answer).ok_or_else(no_http)?;
    let mut first = head.lines().next().unwrap_or_default().split(' ');
    let version = first.next().unwrap_or_default();
    let status = first.next().filter(|_| version.starts_with("HTTP/1.")).ok_or_else(no_http)?;
    match status {
        "200" => {}
        "401" | "403" => {
            return Err(format!("it wants another password than it was given (status {status})"));
        }
        _ => {
            let status: String = status.chars().filter(char::is_ascii_digit).take(3).collect();
            return Err(format!("it answers with status {status}"));
        }
    }
    let no_json = || "its answer is not what OpenCode answers".to_owned();
    let whole = if is_chunked(head) { unchunked(body).ok_or_else(no_json)? } else { body.to_vec() };
    serde_json::from_slice(&whole).map_err(|_| no_json())
}

/// Some servers send chunks even to those who asked for none. `None` until the last has come.
fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        let (chunk, rest) = body[end + 2..].split_at_checked(size)?;
        whole.extend_from_slice(chunk);
        body = rest.strip_prefix(b"\r\n")?;
    }
}
