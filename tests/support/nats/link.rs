//! A stretch of network between a client and a server, or two servers. It can be slow, and it can
//! stop carrying anything while both ends believe that they are connected.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Longer than any test; a change of weather ends it.
const FOREVER: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Everything arrives after this time.
    Fair(Duration),
    /// Nothing arrives; it is carried once the weather changes, as TCP sends again.
    Cut,
    Over,
}

#[derive(Debug)]
struct Shared {
    weather: Mutex<Weather>,
    changed: Condvar,
    /// Of the connections that are carried; one that has ended closes its descriptor.
    ends: Mutex<Vec<Weak<TcpStream>>>,
    /// The version that servers claim to have, if it is not their own.
    version: Option<&'static str>,
}

/// What a server says first, with another version.
fn claiming(version: &str, said: &[u8]) -> Vec<u8> {
    const FIELD: &str = "\"version\":\"";
    let said = String::from_utf8_lossy(said);
    match said.strip_prefix("INFO ").and_then(|info| info.split_once(FIELD)) {
        Some((before, after)) => {
            let (_, after) = after.split_once('"').unwrap();
            format!("INFO {before}{FIELD}{version}\"{after}").into_bytes()
        }
        None => said.into_owned().into_bytes(),
    }
}

impl Shared {
    /// Waits until what has just come is to arrive; `false` when the link is gone.
    fn carries(&self) -> bool {
        let start = Instant::now();
        let mut weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let late = match *weather {
                Weather::Over => return false,
                Weather::Cut => FOREVER,
                Weather::Fair(delay) => delay.saturating_sub(start.elapsed()),
            };
            if late.is_zero() {
                return true;
            }
            let changed = self.changed.wait_timeout(weather, late);
            weather = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pump(&self, from: &TcpStream, to: &TcpStream) {
        let (mut reader, mut writer) = (from, to);
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            let said = match self.version.filter(|_| buffer.starts_with(b"INFO ")) {
                Some(version) => claiming(version, &buffer[..count]),
                None => buffer[..count].to_vec(),
            };
            if !self.carries() || writer.write_all(&said).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// Listens on its own port and carries each connection to another port.
pub struct Link {
    pub port: u16,
    shared: Arc<Shared>,
}

impl Link {
    pub fn to(target: u16) -> Self {
        Self::claiming(target, None)
    }

    /// As [`Link::to`]; the server claims to have this version.
    pub fn claiming(target: u16, version: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            weather: Mutex::new(Weather::Fair(Duration::ZERO)),
            changed: Condvar::new(),
            ends: Mutex::default(),
            version,
        });
        let carrying = Arc::clone(&shared);
        std::thread::spawn(move || {
            for here in listener.incoming().map_while(Result::ok) {
                if *carrying.weather.lock().unwrap() == Weather::Over {
                    return;
                }
                let Ok(there) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let (here, there) = (Arc::new(here), Arc::new(there));
                let mut ends = carrying.ends.lock().unwrap();
                ends.retain(|end| end.strong_count() > 0);
                ends.extend([&here, &there].map(Arc::downgrade));
                drop(ends);
                for (from, to) in [(Arc::clone(&here), Arc::clone(&there)), (there, here)] {
                    let carrying = Arc::clone(&carrying);
                    std::thread::spawn(move || carrying.pump(&from, &to));
                }
            }
        });
        Self { port, shared }
    }

    pub fn delay(&self, delay: Duration) {
        self.set(Weather::Fair(delay));
    }

    pub fn cut(&self) {
        self.set(Weather::Cut);
    }

    pub fn heal(&self) {
        self.set(Weather::Fair(Duration::ZERO));
    }

    fn set(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
        self.shared.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set(Weather::Over);
        for end in self.shared.ends.lock().unwrap().drain(..).filter_map(|end| end.upgrade()) {
            let _ = end.shutdown(Shutdown::Both);
        }
        // The thread that accepts ends with this one.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
