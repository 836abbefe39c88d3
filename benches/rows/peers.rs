//! Other queues at the same durability, each only if it is installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::shared::Queue;
use crate::support::process::Guard;
use crate::support::{Outcome, go_on, place, table};

/// How often a server that was just started is tried.
const CONNECT_TRIES: usize = 100;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

pub struct Peer {
    pub name: &'static str,
    pub subject: &'static str,
    pub address: PathBuf,
    _server: Option<Guard>,
}

/// Starts what is installed and says what is not.
pub fn start(home: &Path) -> Vec<Peer> {
    let tried = [
        ("Redis list, appendfsync always", "redis", redis(home)),
        ("beanstalkd -f0", "beanstalkd", beanstalkd(home)),
        ("SQLite WAL FULL (python3)", "sqlite", python()),
    ];
    let mut peers = Vec::new();
    for (name, subject, server) in tried {
        match server {
            Ok(server) => {
                let address = home.join(format!("{subject}.sock"));
                peers.push(Peer { name, subject, address, _server: server });
            }
            Err(why) => table::note(&format!("{name} is left out: {why}")),
        }
    }
    peers
}

fn redis(home: &Path) -> Outcome<Option<Guard>> {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    command.arg("--unixsocket").arg(home.join("redis.sock")).arg("--dir").arg(home);
    let server = Guard::start(&mut command)?;
    connect(&home.join("redis.sock"))?;
    Ok(Some(server))
}

fn beanstalkd(home: &Path) -> Outcome<Option<Guard>> {
    let log = place::child(home, "beanstalkd.log.d")?;
    let socket = home.join("beanstalkd.sock");
    let mut command = Command::new("beanstalkd");
    command.arg("-l").arg(format!("unix:{}", socket.display())).arg("-b").arg(log).arg("-f0");
    let server = Guard::start(&mut command)?;
    connect(&socket)?;
    Ok(Some(server))
}

fn python() -> Outcome<Option<Guard>> {
    let has =
        Command::new("python3").args(["-c", "import sqlite3"]).stderr(Stdio::null()).status()?;
    if has.success() { Ok(None) } else { Err("python3 has no sqlite3".into()) }
}

fn connect(socket: &Path) -> Outcome<UnixStream> {
    for _ in 0..CONNECT_TRIES {
        go_on()?;
        if let Ok(stream) = UnixStream::connect(socket) {
            return Ok(stream);
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
    Err(format!("nobody listens at {}", socket.display()).into())
}

/// One connection, one question at a time.
struct Line {
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Line {
    fn connect(address: &str) -> Outcome<Self> {
        let output = connect(Path::new(address))?;
        Ok(Self { input: BufReader::new(output.try_clone()?), output })
    }

    fn ask(&mut self, question: &str) -> Outcome<String> {
        self.output.write_all(question.as_bytes())?;
        let mut answer = String::new();
        self.input.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }

    /// The content that follows an answer, with its line end.
    fn content(&mut self, bytes: usize) -> Outcome<String> {
        let mut content = vec![0; bytes + 2];
        self.input.read_exact(&mut content)?;
        content.truncate(bytes);
        Ok(String::from_utf8(content)?)
    }
}

/// A list with a list of what is being worked on, the way Redis documents reliable queues.
pub struct Redis(Line);

impl Redis {
    pub fn connect(address: &str) -> Outcome<Self> {
        Line::connect(address).map(Self)
    }

    fn command(&mut self, words: &[&str]) -> Outcome<String> {
        let mut question = format!("*{}\r\n", words.len());
        for word in words {
            question.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.ask(&question)
    }
}

impl Queue for Redis {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        let unique = format!("{}-{} {body}", std::process::id(), crate::support::now_ns());
        Ok(self.command(&["LPUSH", "work", &unique])?.starts_with(':'))
    }

    fn take(&mut self) -> Outcome<bool> {
        let answer = self.command(&["LMOVE", "work", "held", "RIGHT", "LEFT"])?;
        let Some(length) = answer.strip_prefix('$').filter(|length| *length != "-1") else {
            return Ok(false);
        };
        let message = self.0.content(length.parse()?)?;
        Ok(self.command(&["LREM", "held", "1", &message])? == ":1")
    }
}

pub struct Beanstalkd(Line);

impl Beanstalkd {
    pub fn connect(address: &str) -> Outcome<Self> {
        Line::connect(address).map(Self)
    }
}

impl Queue for Beanstalkd {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        let question = format!("put 0 0 300 {}\r\n{body}\r\n", body.len());
        Ok(self.0.ask(&question)?.starts_with("INSERTED"))
    }

    fn take(&mut self) -> Outcome<bool> {
        let answer = self.0.ask("reserve-with-timeout 0\r\n")?;
        let Some((id, bytes)) = answer.strip_prefix("RESERVED ").and_then(|a| a.split_once(' '))
        else {
            return Ok(false);
        };
        self.0.content(bytes.parse()?)?;
        Ok(self.0.ask(&format!("delete {id}\r\n"))? == "DELETED")
    }
}

/// Eight processes of Python; the time is spent in SQLite and in the disk.
const SQLITE: &str = r#"
import multiprocessing, os, sqlite3, sys, time
path, window = sys.argv[1], float(sys.argv[2])
def connect():
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("pragma journal_mode=wal"); db.execute("pragma synchronous=full")
    return db
def work(side, start, done):
    db, body, count = connect(), "x" * 500, 0
    while time.time() < start + window:
        if side == 0:
            db.execute("insert into work(body, state) values(?, 0)", (body,))
            continue
        row = db.execute("update work set state=1 where id=(select id from work where state=0 limit 1) returning id").fetchone()
        if row is None:
            time.sleep(0.0002); continue
        db.execute("update work set state=2 where id=?", row)
        if start <= time.time() < start + window: count += 1
    done.put(count)
db = connect()
db.execute("create table if not exists work(id integer primary key, body, state)")
db.execute("create index if not exists waiting on work(id) where state=0")
db.close()
done, start = multiprocessing.Queue(), time.time() + 0.6
all = [multiprocessing.Process(target=work, args=(n % 2, start, done)) for n in range(8)]
[p.start() for p in all]; print(sum(done.get() for _ in all) / window); [p.join() for p in all]
"#;

/// Messages a second through SQLite.
pub fn sqlite(home: &Path, window: Duration) -> Outcome<f64> {
    go_on()?;
    let run = Command::new("python3")
        .args(["-c", SQLITE])
        .arg(home.join("work.db"))
        .arg(window.as_secs_f64().to_string())
        .output()?;
    Ok(String::from_utf8(run.stdout)?.trim().parse()?)
}
