//! The questions to OpenCode, asked of real servers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::*;
use crate::provider::Profiles;
use ensemble_core::agent::AgentState;

/// How long an answer may take on a machine that pauses for seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The error for an answer that comes too late.
const SLOW: &str = "no answer within 500 ms";

/// Answers each question with what `answer` makes of it, until it is dropped.
struct TestServer {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.expect("a question");
                let mut request = [0; 2048];
                let n = stream.read(&mut request).unwrap_or(0);
                answer(&String::from_utf8_lossy(&request[..n]), &mut stream);
            }
        });
        Self { address, over, thread: Some(thread) }
    }

    /// Gives every client the same answer.
    fn always(text: &str) -> Self {
        let text = text.to_owned();
        Self::start(move |_, stream| drop(stream.write_all(text.as_bytes())))
    }

    /// Asks until there is an answer in time: this machine may pause for longer than is waited.
    fn ask(&self, password: Option<&str>) -> AgentAnswer {
        let began = Instant::now();
        loop {
            let heard = self.ask_once(password);
            let was_slow = matches!(&heard, AgentAnswer::Silence { why, .. } if why.contains(SLOW));
            if !was_slow || began.elapsed() >= PATIENCE {
                return heard;
            }
        }
    }

    fn ask_once(&self, password: Option<&str>) -> AgentAnswer {
        let mut place = HttpPlace::parse(&format!("http://{}", self.address), false).expect("one");
        if let Some(password) = password {
            place = place.with_password(None, password);
        }
        let opencode = Profiles::embedded().expect("profiles").get("opencode").expect("opencode");
        ask(&opencode, std::process::id(), &SourcePlaces::default().with_opencode(place))
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn why(heard: AgentAnswer) -> String {
    match heard {
        AgentAnswer::Silence { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

fn json(stream: &mut TcpStream, body: &str) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
}

#[test]
fn a_server_that_keeps_its_connections_is_heard() {
    let kept = std::sync::Mutex::new(Vec::new());
    let server = TestServer::start(move |question, stream| {
        let body = match question.starts_with("GET /permission ") {
            true => "[]",
            false => r#"{"ses_1":{"type":"busy"}}"#,
        };
        json(stream, body);
        kept.lock().unwrap().push(stream.try_clone());
    });
    let heard = server.ask(None);
    assert_eq!(heard.report().map(|report| report.state), Some(AgentState::Busy), "{heard:?}");
    let AgentAnswer::Report { place, .. } = heard else { panic!() };
    assert_eq!(place, format!("http://{}", server.address));
}

#[test]
fn chunks_are_read() {
    let server = TestServer::start(|question, stream| {
        let chunks: &[u8] = match question.starts_with("GET /permission ") {
            true => b"2\r\n[]\r\n0\r\n\r\n",
            false => b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
        };
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n");
        let _ = stream.write_all(chunks);
    });
    assert_eq!(server.ask(None).report().map(|r| r.state), Some(AgentState::Ready));
}

#[test]
fn a_password_is_sent_and_a_wrong_one_is_told() {
    let server = TestServer::start(|question, stream| {
        if !question.contains("\r\nAuthorization: Basic b3BlbmNvZGU6czNjcmV0\r\n") {
            let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        json(stream, if question.starts_with("GET /permission ") { "[]" } else { "{}" });
    });
    assert_eq!(server.ask(Some("s3cret")).report().map(|r| r.state), Some(AgentState::Ready));
    for password in [None, Some("wrong")] {
        let why = why(server.ask(password));
        assert!(why.contains("password") && why.contains("401"), "{why}");
    }
}

#[test]
fn nothing_is_made_of_nonsense() {
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    for (answer, reason) in [
        (String::new(), "speaks no HTTP"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), "speaks no HTTP"),
        ("HTTP/1.1 500 Oh\r\n\r\n[]".to_owned(), "status 500"),
        (format!("{ok}{{"), "not what OpenCode answers"),
        (format!("{ok}7"), "not what OpenCode answers"),
        (format!("{ok}\u{0}\u{1}"), "not what OpenCode answers"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(), "not what"),
        (format!("{ok}[{}", "[],".repeat(100_000)), "too long"),
        (format!("{ok}{}", "[".repeat(10_000)), "not what OpenCode answers"),
    ] {
        let why = why(TestServer::always(&answer).ask(None));
        assert!(why.contains(reason), "{:?}: {why}", answer.chars().take(40).collect::<String>());
    }
}

#[test]
fn slow_servers_cost_the_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let began = Instant::now();
    let (over, thread) = (Arc::new(AtomicBool::new(true)), None);
    let answer = why(TestServer { address, over, thread }.ask_once(None));
    assert!(answer.contains(SLOW), "{answer}");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    // One that says a little all the time is not waited for any longer.
    let trickling = TestServer::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[");
        let pace = Duration::from_millis(20);
        let _ = stream.set_read_timeout(Some(pace));
        // The other side says nothing: each read takes as long as it may.
        while stream.read(&mut [0]).is_err() && stream.write_all(b" ").is_ok() {}
    });
    let began = Instant::now();
    let answer = why(trickling.ask_once(None));
    assert!(answer.contains(SLOW), "{answer}");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_closed_port_and_a_missing_address_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (over, thread) = (Arc::new(AtomicBool::new(true)), None);
    let answer = why(TestServer { address, over, thread }.ask(None));
    assert!(answer.contains("no server listens"), "{answer}");
    let opencode = Profiles::embedded().expect("profiles").get("opencode").expect("opencode");
    let places = SourcePlaces::default().with_opencode_as_started(None, None);
    let answer = why(ask(&opencode, std::process::id(), &places));
    assert!(answer.contains("--port"), "{answer}");
    let places = SourcePlaces::default().without_opencode("the password is missing".to_owned());
    assert_eq!(why(ask(&opencode, std::process::id(), &places)), "the password is missing");
}
