//! Other watchers of a directory, each driven as directly as it allows, and the origin of their
//! stamps.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::peer::{self, Lines};
use crate::support::process::{Guard, PATIENCE, Stamps};
use crate::support::{Outcome, go_on, now_ns};

/// How another watcher reports a file.
pub enum Arrivals {
    /// A role of this program takes the stamp.
    Stamps(Stamps),
    /// As [`Arrivals::Stamps`], but the reported file has another name.
    Any { stamps: Stamps, _reader: Option<Guard> },
    /// The handler takes the stamp: `CLOCK_MONOTONIC in ns` and the name.
    Own(Lines),
    /// The handler stamps with the wall clock: `seconds.micros` and the name.
    Wall(Lines),
    /// The bench stamps the line on arrival, which costs another wake-up.
    Arrival(Lines),
    /// As [`Arrivals::Arrival`], from watchman's socket.
    Watchman(Watchman),
}

impl Arrivals {
    /// Time at which the watcher saw `name`, which was renamed after `began`.
    pub fn heard(&self, name: &str, began: u64) -> Outcome<u64> {
        loop {
            let (stamp, line) = match self {
                Self::Stamps(stamps) => stamps.next()?,
                Self::Any { stamps, .. } => match stamps.next()?.0 {
                    stamp if stamp > began => return Ok(stamp),
                    _ => continue,
                },
                Self::Own(lines) => {
                    let (_, line) = lines.next()?;
                    let (stamp, rest) = line.split_once(' ').ok_or("no stamp")?;
                    (stamp.parse()?, rest.to_owned())
                }
                Self::Wall(lines) => {
                    let (_, line) = lines.next()?;
                    let (stamp, rest) = line.split_once(' ').ok_or("no stamp")?;
                    (from_wall(stamp)?, rest.to_owned())
                }
                Self::Arrival(lines) => lines.next()?,
                Self::Watchman(watchman) => watchman.lines.next()?,
            };
            if line.contains(name) {
                return Ok(stamp);
            }
        }
    }

    fn ready(self) -> Outcome<Self> {
        self.heard("ready", 0)?;
        Ok(self)
    }
}

/// Converts a recent wall-clock time to monotonic time.
fn from_wall(stamp: &str) -> Outcome<u64> {
    let (seconds, micros) = stamp.split_once(['.', ',']).ok_or("no fraction of a second")?;
    let stamp = seconds.parse::<u64>()? * 1_000_000_000 + micros.parse::<u64>()? * 1_000;
    // Some ten nanoseconds are between the two clock readings.
    let (wall, mono) = (SystemTime::now().duration_since(UNIX_EPOCH)?, now_ns());
    Ok(mono.saturating_sub(u64::try_from(wall.as_nanos())?.saturating_sub(stamp)))
}

pub struct Other {
    pub name: &'static str,
    /// Receives the watched directory, and one for its own files.
    pub start: fn(&Path, &Path) -> Outcome<Arrivals>,
}

pub const OTHERS: [Other; 8] = [
    Other { name: "inotifywait -m, shell loop", start: |dir, _| shell(dir) },
    Other { name: "Python watchdog", start: |dir, _| watchdog(dir) },
    Other { name: "chokidar", start: |dir, _| chokidar(dir) },
    Other { name: "watchexec, debounce 0", start: |dir, _| watchexec(dir, &["--debounce", "0ms"]) },
    Other { name: "watchexec, as it comes", start: |dir, _| watchexec(dir, &[]) },
    Other { name: "watchman, settle 1 ms", start: |dir, home| watchman(dir, home, Some(1)) },
    Other { name: "watchman, as it comes", start: |dir, home| watchman(dir, home, None) },
    Other { name: "fs.watch of node", start: |dir, _| fs_watch(dir) },
];

/// The usual shell loop, all in one bash: it starts no process for a file.
const LOOP: &str = r#"
exec 3< <(exec "$2" "${@:3}" -m -q -e moved_to --format %f "$1" 2>&1)
# It says nothing once it watches if it is quiet: the kernel knows.
until grep -qs inotify "/proc/$!/fdinfo/"*; do kill -0 $! || exit; done
echo "$EPOCHREALTIME ready"
while read -r file <&3; do
    echo "$EPOCHREALTIME $file"
done"#;

fn shell(dir: &Path) -> Outcome<Arrivals> {
    let inotifywait = peer::command("inotifywait")?;
    let mut command = peer::command("bash")?;
    command.args(["-c", LOOP, "loop"]).arg(dir);
    command.arg(inotifywait.get_program()).args(inotifywait.get_args());
    Arrivals::Wall(Lines::start(&mut command)?).ready()
}

fn watchdog(dir: &Path) -> Outcome<Arrivals> {
    Arrivals::Own(Lines::start(peer::script("watchdog_reader.py")?.arg(dir))?).ready()
}

fn node(script: &str, dir: &Path) -> Outcome<Command> {
    let mut command = peer::command("node")?;
    command.arg(peer::ours(script)).arg(dir).env("ENSEMBLE_BENCH_PEERS", peer::directory()?);
    Ok(command)
}

fn chokidar(dir: &Path) -> Outcome<Arrivals> {
    if !peer::directory()?.join("node_modules/chokidar").is_dir() {
        return Err("chokidar is not installed (benches/peers.sh installs it)".into());
    }
    Arrivals::Own(Lines::start(&mut node("chokidar_reader.mjs", dir)?)?).ready()
}

fn fs_watch(dir: &Path) -> Outcome<Arrivals> {
    Arrivals::Own(Lines::start(&mut node("fs_watch_reader.mjs", dir)?)?).ready()
}

/// It only prints events and starts no process.
fn watchexec(dir: &Path, more: &[&str]) -> Outcome<Arrivals> {
    let mut command = peer::command("watchexec")?;
    command.args(["--only-emit-events", "--emit-events-to=json-stdio", "--no-vcs-ignore"]);
    command.args(["--no-global-ignore", "--no-project-ignore", "--fs-events", "create,rename"]);
    command.args(more).arg("--watch").arg(dir).current_dir(dir);
    let mut lines = Lines::start(&mut command)?;
    until_it_watches(lines.guard().id())?;
    Ok(Arrivals::Arrival(lines))
}

/// Waits until the kernel lists an inotify watch of the process.
pub fn until_it_watches(process: u32) -> Outcome<()> {
    let began = now_ns();
    let infos = format!("/proc/{process}/fdinfo");
    while now_ns() - began < PATIENCE.as_nanos() as u64 {
        go_on()?;
        for info in std::fs::read_dir(&infos)? {
            // A descriptor may close in the meantime.
            let text = std::fs::read_to_string(info?.path()).unwrap_or_default();
            if text.contains("inotify wd:") {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("it does not start watching".into())
}

/// The watchman server, and the connection with the subscription.
pub struct Watchman {
    lines: Socket,
    _server: Guard,
}

struct Socket {
    stream: std::cell::RefCell<BufReader<UnixStream>>,
}

impl Socket {
    fn next(&self) -> Outcome<(u64, String)> {
        let mut line = String::new();
        if self.stream.borrow_mut().read_line(&mut line)? == 0 {
            return Err("its server closed the connection".into());
        }
        Ok((now_ns(), line))
    }

    fn ask(&self, question: &serde_json::Value) -> Outcome<String> {
        let line = format!("{question}\n");
        self.stream.borrow_mut().get_mut().write_all(line.as_bytes())?;
        let answer = self.next()?.1;
        match answer.contains("\"error\"") {
            true => Err(answer.into()),
            false => Ok(answer),
        }
    }
}

fn watchman(dir: &Path, home: &Path, settle: Option<u32>) -> Outcome<Arrivals> {
    let own = crate::support::place::child(home, &format!("watchman-{}", settle.unwrap_or(20)))?;
    let socket = own.join("socket");
    let mut command = peer::command("watchman")?;
    command.args(["--foreground", "--no-save-state"]);
    command.arg("--sockname").arg(&socket).arg("--logfile").arg(own.join("log"));
    command.arg("--pidfile").arg(own.join("pid")).env("HOME", &own);
    let server = Guard::start(command.stderr(std::process::Stdio::null()))?;
    if let Some(settle) = settle {
        std::fs::write(dir.join(".watchmanconfig"), format!("{{\"settle\": {settle}}}\n"))?;
    }
    let stream = super::peers::connect(&socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let lines = Socket { stream: BufReader::new(stream).into() };
    // watchman reports real paths.
    let dir = dir.canonicalize()?;
    lines.ask(&serde_json::json!(["watch", dir]))?;
    lines.ask(&serde_json::json!(["subscribe", dir, "bench", { "fields": ["name"] }]))?;
    Ok(Arrivals::Watchman(Watchman { lines, _server: server }))
}
