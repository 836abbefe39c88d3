//! NATS JetStream: a stream on disk with one durable consumer, by the plain protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::Started;
use super::line::until;
use crate::rows::shared::Queue;
use crate::support::process::{Guard, PATIENCE};
use crate::support::{Outcome, now_ns, peer, place};

/// Starts a server with `sync` as its `sync_interval`; the default interval is two minutes.
pub fn start(home: &Path, sync: Option<&str>) -> Started {
    // The port is free now, and no other process requests it.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let store = place::child(home, "nats")?;
    let sync = sync.map_or_else(String::new, |sync| format!("sync_interval: {sync}"));
    let config = home.join("nats.conf");
    std::fs::write(
        &config,
        format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\"\n {sync} }}\n",
            store.display()
        ),
    )?;
    let mut command = peer::command("nats-server")?;
    let mut check = peer::command("nats-server")?;
    if !check.arg("-t").arg("-c").arg(&config).stderr(Stdio::null()).status()?.success() {
        return Err("this nats-server cannot sync each message, 2.10 can".into());
    }
    let server = Guard::start(command.arg("-c").arg(&config).stderr(Stdio::null()))?;
    let address = format!("127.0.0.1:{port}");
    until(&address, || TcpStream::connect(&address))?;
    let mut nats = Nats::connect(&address)?;
    nats.request(
        "$JS.API.STREAM.CREATE.WORK",
        r#"{"name":"WORK","subjects":["work"],"retention":"workqueue","storage":"file"}"#,
    )?;
    nats.request(
        "$JS.API.CONSUMER.DURABLE.CREATE.WORK.takers",
        r#"{"stream_name":"WORK","config":{"durable_name":"takers","ack_policy":"explicit",
            "deliver_policy":"all","ack_wait":300000000000,"max_ack_pending":10000}}"#,
    )?;
    Ok((PathBuf::from(address), Some(server)))
}

/// One connection with its own inbox.
pub struct Nats {
    input: BufReader<TcpStream>,
    output: TcpStream,
    inbox: String,
    asked: u64,
}

struct Answer {
    /// Subject that acknowledges the content.
    reply: Option<String>,
    content: Vec<u8>,
    has_status: bool,
}

impl Nats {
    pub fn connect(address: &str) -> Outcome<Self> {
        let output = TcpStream::connect(address)?;
        output.set_nodelay(true)?;
        output.set_read_timeout(Some(PATIENCE))?;
        let inbox = format!("_INBOX.{}x{}", std::process::id(), now_ns());
        let input = BufReader::new(output.try_clone()?);
        let mut nats = Self { input, output, inbox, asked: 0 };
        nats.line()?;
        let hello =
            r#"CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
        let hello = format!("{hello}\r\nSUB {}.* 1\r\nPING\r\n", nats.inbox);
        nats.output.write_all(hello.as_bytes())?;
        while nats.line()? != "PONG" {}
        Ok(nats)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Err("the server closed the connection".into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Appends a request to the output buffer.
    fn put(&mut self, bytes: &mut Vec<u8>, subject: &str, payload: &str) {
        self.asked += 1;
        let head = format!("PUB {subject} {}.{} {}\r\n", self.inbox, self.asked, payload.len());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(payload.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }

    fn ask(&mut self, subject: &str, payload: &str) -> Outcome<Answer> {
        let mut bytes = Vec::with_capacity(payload.len() + 200);
        self.put(&mut bytes, subject, payload);
        self.output.write_all(&bytes)?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<Answer> {
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            // MSG subject sid [reply] size, HMSG subject sid [reply] headers size.
            let (reply_at, headers) = match words.first().copied() {
                Some("MSG") => (words.len() == 5, 0),
                Some("HMSG") => (words.len() == 6, words[words.len() - 2].parse()?),
                Some("PING") => {
                    self.output.write_all(b"PONG\r\n")?;
                    continue;
                }
                Some("-ERR") => return Err(line.into()),
                _ => continue,
            };
            let size: usize = words[words.len() - 1].parse()?;
            let mut content = vec![0; size + 2];
            self.input.read_exact(&mut content)?;
            content.truncate(size);
            let content = content.split_off(headers);
            let reply = reply_at.then(|| words[3].to_owned());
            return Ok(Answer { reply, content, has_status: headers > 0 });
        }
    }

    fn request(&mut self, subject: &str, payload: &str) -> Outcome<()> {
        let answer = String::from_utf8(self.ask(subject, payload)?.content)?;
        if answer.contains("\"error\"") { Err(answer.into()) } else { Ok(()) }
    }
}

fn is_stored(answer: &Answer) -> bool {
    answer.content.windows(5).any(|part| part == b"\"seq\"")
}

impl Queue for Nats {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        Ok(is_stored(&self.ask("work", body)?))
    }

    /// Sends all requests, then reads all answers.
    fn send_batch(&mut self, body: &str, count: usize) -> Outcome<bool> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            self.put(&mut bytes, "work", body);
        }
        self.output.write_all(&bytes)?;
        let mut stored = true;
        for _ in 0..count {
            stored &= is_stored(&self.answer()?);
        }
        Ok(stored)
    }

    fn take(&mut self) -> Outcome<bool> {
        self.pull(&mut || ())
    }

    fn wait(&mut self, seen: &mut dyn FnMut()) -> Outcome<()> {
        self.pull(seen).map(drop)
    }
}

impl Nats {
    /// Waits briefly for a message, since the server notifies its consumer with a delay. The
    /// acknowledgement returns once the server has stored it.
    fn pull(&mut self, seen: &mut dyn FnMut()) -> Outcome<bool> {
        let next = "$JS.API.CONSUMER.MSG.NEXT.WORK.takers";
        let answer = self.ask(next, r#"{"batch":1,"expires":200000000}"#)?;
        let Some(reply) = answer.reply.filter(|_| !answer.has_status) else { return Ok(false) };
        seen();
        self.ask(&reply, "+ACK")?;
        Ok(true)
    }
}
