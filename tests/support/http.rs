//! An HTTP server for tests, which answers each request until it is dropped.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// `answer` makes a status and a body of each request.
    pub(crate) fn start(answer: impl Fn(&str) -> (&'static str, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let mut request = [0; 1024];
                let n = stream.read(&mut request).unwrap_or(0);
                let (status, body) = answer(&String::from_utf8_lossy(&request[..n]));
                let length = body.len();
                let _ =
                    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
            }
        });
        Self { address, over, thread: Some(thread) }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}
