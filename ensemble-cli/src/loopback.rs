//! Code that servers on the loopback interface share: a runtime, and secrets for their clients.

mod connections;

use std::io::Read as _;
use std::net::Ipv4Addr;

use ensemble_app::failure::{Failure, Outcome};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub(crate) use connections::{HttpAnswer, HttpConnection, HttpQuestion, http_answer, serve};

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
