//! Connections of the HTTP server: bounded, and no stranger keeps out a client that has the token.
//!
//! | a connection | ends |
//! |---|---|
//! | whose headers do not come | after [`HEADERS_WITHIN`] |
//! | that has not shown the token, when [`STRANGERS_MAX`] newer ones have come | at once |
//! | without the token | with its refusal |
//! | with the token, beyond [`CLIENTS_MAX`] | with 503 |

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// How long the headers of a request may take.
pub(super) const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// How many connections there are that have not shown the token.
const STRANGERS_MAX: usize = 32;
/// How many connections have shown it.
const CLIENTS_MAX: usize = 256;
/// Pause after an `accept` that failed, as it does without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// All connections, by number.
#[derive(Debug, Default)]
struct Connections {
    /// Those that have not shown the token, oldest first.
    strangers: VecDeque<(u64, AbortHandle)>,
    clients: BTreeSet<u64>,
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    number: u64,
    all: Arc<Mutex<Connections>>,
}

impl Connection {
    fn all(&self) -> MutexGuard<'_, Connections> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its client has shown the token; false if there are too many clients.
    pub(super) fn trust(&self) -> bool {
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
        if all.strangers.len() > STRANGERS_MAX
            && let Some((_, oldest)) = all.strangers.pop_front()
        {
            oldest.abort();
        }
    }

    fn forget(&self) {
        let mut all = self.all();
        all.strangers.retain(|(number, _)| *number != self.number);
        all.clients.remove(&self.number);
    }
}

/// Serves connections until the process ends.
pub(super) async fn serve(listener: TcpListener, router: Router, headers_within: Duration) {
    let all = Arc::<Mutex<Connections>>::default();
    for number in 0.. {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        let connection = Connection { number, all: Arc::clone(&all) };
        let service = TowerToHyperService::new(router.clone().layer(Extension(connection.clone())));
        let own = connection.clone();
        let task = tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(headers_within);
            // A client that goes away is no failure of the server.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            own.forget();
        });
        // The task has not begun: this thread runs all tasks, and has not waited since.
        connection.admit(task.abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use axum::routing::get;

    use super::*;

    fn served() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let answer = |Extension(connection): Extension<Connection>| async move {
                if connection.trust() { "known" } else { "full" }
            };
            let router = Router::new().route("/", get(answer));
            crate::mcp::runtime().unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                serve(listener, router, Duration::from_millis(50)).await;
            });
        });
        address
    }

    fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn headers_that_do_not_come_end_the_connection() {
        let mut slow = TcpStream::connect(served()).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
        // It is closed, perhaps after a refusal; a connection that stays open would not return.
        let _ = slow.read_to_end(&mut Vec::new());
    }

    #[test]
    fn strangers_make_room_for_each_other_and_a_client_is_answered() {
        let address = served();
        let strangers: Vec<TcpStream> =
            (0..4 * STRANGERS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address).ends_with("known"));
        // The oldest was closed to make room.
        assert_eq!((&strangers[0]).read(&mut [0; 1]).unwrap_or(0), 0);
        assert!((0..CLIENTS_MAX + 8).all(|_| ask(address).ends_with("known")), "places come back");
    }
}
