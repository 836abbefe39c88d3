//! The network between a host and a server: connections are passed on, until the cable is pulled.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub(super) struct NetworkCable {
    pub(super) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_pulled: AtomicBool,
    is_over: AtomicBool,
    numbers: AtomicU64,
    /// Both ends of each connection.
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
}

impl NetworkCable {
    /// A port of this machine that leads to another one.
    pub(super) fn to(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let cable = Self { port: listener.local_addr()?.port(), state: Arc::default() };
        let state = Arc::clone(&cable.state);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if state.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Without another end the connection is closed.
                if !state.is_pulled.load(Ordering::Relaxed) {
                    let _ = connect(&state, near, port);
                }
            }
        });
        Ok(cable)
    }

    /// Ends all connections; new ones are closed at once.
    pub(super) fn pull(&self) {
        self.state.is_pulled.store(true, Ordering::Relaxed);
        self.state.end_all();
    }

    pub(super) fn plug(&self) {
        self.state.is_pulled.store(false, Ordering::Relaxed);
    }
}

impl State {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, [TcpStream; 2]>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_all(&self) {
        self.open().drain().for_each(|(_, ends)| end(&ends));
    }
}

impl Drop for NetworkCable {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        self.state.end_all();
        // The thread waits for a connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn end(ends: &[TcpStream; 2]) {
    for stream in ends {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Passes bytes on in both directions until one of the ends is closed.
fn connect(state: &Arc<State>, near: TcpStream, port: u16) -> io::Result<()> {
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let number = state.numbers.fetch_add(1, Ordering::Relaxed);
    for (mut from, mut to) in
        [(near.try_clone()?, far.try_clone()?), (far.try_clone()?, near.try_clone()?)]
    {
        let state = Arc::clone(state);
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            end(&[from, to]);
            state.open().remove(&number);
        });
    }
    state.open().insert(number, [near, far]);
    Ok(())
}
