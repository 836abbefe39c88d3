//! Code that servers on the loopback interface share: a runtime, and secrets for their clients.
//!
//! Connections of an HTTP server: bounded, and no stranger keeps out a client that has the token.
//!
//! | a connection | ends |
//! |---|---|
//! | whose headers do not come | after [`HEADERS_WITHIN`] |
//! | that has not shown the token, when [`STRANGERS_MAX`] newer ones have come, or when there is no file descriptor for a new one | at once |
//! | without the token | with its refusal |
//! | with the token, beyond [`CLIENTS_MAX`] | with 503 |

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use crate::context::{Failure, Outcome, locked};

const TOKEN_BYTES: usize = 24;
/// One thread for the protocol; calls have their own threads.
pub(crate) fn runtime() -> Outcome<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start the server: {error}")))
}

/// A runtime, and what listens on this port in it; 0 takes a free one.
pub(crate) fn listen(port: u16) -> Outcome<(Runtime, TcpListener)> {
    let (runtime, address) = (runtime()?, (Ipv4Addr::LOCALHOST, port));
    let bound = runtime.block_on(TcpListener::bind(address)).map_err(|error| {
        Failure::refused(format!("cannot listen on {}:{port}: {error}", Ipv4Addr::LOCALHOST))
    });
    Ok((runtime, bound?))
}

pub(crate) fn fresh_token() -> Outcome<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let read = |bytes: &mut [u8]| std::fs::File::open("/dev/urandom")?.read_exact(bytes);
    read(&mut bytes).map_err(|error| Failure::refused(format!("no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// How many connections there are that have not shown the token: more than a client opens before its first request.
const STRANGERS_MAX: usize = 256;
const CLIENTS_MAX: usize = 256;
/// Pause after an `accept` that failed, as it does without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) type HttpQuestion = Request<Incoming>;
pub(crate) type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

pub(crate) fn http_answer(
    status: StatusCode,
    headers: &[(HeaderName, &str)],
    content: impl Into<Bytes>,
) -> HttpAnswer {
    let mut answer = Response::new(Full::new(content.into()).boxed());
    *answer.status_mut() = status;
    for (name, value) in headers {
        let value = HeaderValue::from_str(value);
        answer.headers_mut().extend(value.ok().map(|value| (name.clone(), value)));
    }
    answer
}

#[derive(Debug, Default)]
struct HttpConnections {
    /// Those that have not shown the token, oldest first.
    strangers: VecDeque<(u64, AbortHandle)>,
    clients: BTreeSet<u64>,
}

impl HttpConnections {
    fn end_oldest_stranger(&mut self) {
        if let Some((_, oldest)) = self.strangers.pop_front() {
            oldest.abort();
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct HttpConnection {
    number: u64,
    all: Arc<Mutex<HttpConnections>>,
}

impl HttpConnection {
    fn all(&self) -> MutexGuard<'_, HttpConnections> {
        locked(&self.all)
    }

    /// Its client has shown the token; false if there are too many clients.
    pub(crate) fn trust(&self) -> bool {
        let mut all = self.all();
        if !all.clients.contains(&self.number) && all.clients.len() >= CLIENTS_MAX {
            return false;
        }
        all.strangers.retain(|(number, _)| *number != self.number);
        all.clients.insert(self.number);
        true
    }

    /// Begins as that of a stranger; the oldest stranger makes room.
    fn admit(&self, task: AbortHandle) {
        let mut all = self.all();
        all.strangers.push_back((self.number, task));
        if all.strangers.len() > STRANGERS_MAX {
            all.end_oldest_stranger();
        }
    }

    fn forget(&self) {
        let mut all = self.all();
        all.strangers.retain(|(number, _)| *number != self.number);
        all.clients.remove(&self.number);
    }
}

/// The next connection. Its answers leave at once: they are short, and their client waits for each.
async fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    // Without it the system holds a short packet back for 40 ms.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

pub(crate) async fn serve<A: Future<Output = HttpAnswer> + Send + 'static>(
    listener: TcpListener,
    answer: impl Fn(HttpConnection, HttpQuestion) -> A + Clone + Send + 'static,
) {
    serve_within(HEADERS_WITHIN, listener, answer).await;
}

async fn serve_within<A: Future<Output = HttpAnswer> + Send + 'static>(
    headers_within: Duration,
    listener: TcpListener,
    answer: impl Fn(HttpConnection, HttpQuestion) -> A + Clone + Send + 'static,
) {
    let all = Arc::<Mutex<HttpConnections>>::default();
    for number in 0.. {
        let stream = loop {
            match accept(&listener).await {
                Ok(stream) => break stream,
                Err(_) => {
                    locked(&all).end_oldest_stranger();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        let connection = HttpConnection { number, all: Arc::clone(&all) };
        let (own, asked, answer) = (connection.clone(), connection.clone(), answer.clone());
        let service = service_fn(move |request| {
            let answered = answer(asked.clone(), request);
            async move { Ok::<_, Infallible>(answered.await) }
        });
        let task = tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(headers_within);
            // A client that disconnects is not a failure of the server.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            own.forget();
        });
        // The task has not begun: this thread runs all tasks, and has not waited since.
        connection.admit(task.abort_handle());
        // Those who have sent their token show it before the next one comes.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    fn served(headers_within: Duration) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let answer = |connection: HttpConnection, _| async move {
                http_answer(StatusCode::OK, &[], if connection.trust() { "known" } else { "full" })
            };
            runtime().unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                serve_within(headers_within, listener, answer).await;
            });
        });
        address
    }

    fn begin(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).unwrap()
    }

    fn ask(mut stream: TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn headers_that_do_not_come_end_the_connection() {
        let mut slow = begin(served(Duration::from_millis(50)));
        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
        // It is closed, perhaps after a refusal; a connection that stays open would not return.
        let _ = slow.read_to_end(&mut Vec::new());
    }

    #[test]
    fn strangers_make_room_for_each_other_and_a_client_is_answered() {
        let address = served(HEADERS_WITHIN);
        let strangers: Vec<TcpStream> = (0..STRANGERS_MAX + 8).map(|_| begin(address)).collect();
        assert!(ask(begin(address)).ends_with("known"));
        // The oldest was closed to make room.
        assert_eq!((&strangers[0]).read(&mut [0; 1]).unwrap_or(0), 0);
        drop(strangers);
        assert!(
            (0..CLIENTS_MAX + 8).all(|_| ask(begin(address)).ends_with("known")),
            "places come back"
        );
    }

    #[test]
    fn clients_that_all_connect_before_their_first_request_are_all_answered() {
        let address = served(HEADERS_WITHIN);
        let clients: Vec<TcpStream> = (0..200).map(|_| begin(address)).collect();
        let answers: Vec<String> = clients.into_iter().map(ask).collect();
        assert!(answers.iter().all(|answer| answer.ends_with("known")), "{answers:?}");
    }

    #[test]
    fn a_short_answer_is_not_held_back() {
        runtime().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _client = begin(listener.local_addr().unwrap());
            assert!(accept(&listener).await.unwrap().nodelay().unwrap());
        });
    }
}
