//! Ports of servers that tests start, kill and start again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

/// A port of the loopback address that the system gives to no other program until this one ends, also while its server
/// does not run. A socket stays bound to it and does not listen. So a server may, which reuses addresses as all do.
pub fn reserved_port() -> u16 {
    static RESERVED: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    port
}
