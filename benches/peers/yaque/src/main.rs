//! Drives yaque for the benches: `yaque-driver DIRECTORY`. It answers each line of input with one
//! line: the nanoseconds taken, measured in this process.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use futures::executor::block_on;
use yaque::{Receiver, Sender};

const SENTENCE: &str = "task 7 is done, see the report in reports/\n";

fn body(size: usize) -> String {
    SENTENCE.chars().cycle().take(size).collect()
}

fn publish(sender: &mut Sender, count: usize, size: usize) -> Result<(), Box<dyn Error>> {
    let text = body(size);
    for _ in 0..count {
        sender.try_send(text.clone()).map_err(|error| format!("{error:?}"))?;
    }
    Ok(())
}

fn batch(sender: &mut Sender, count: usize, size: usize) -> Result<(), Box<dyn Error>> {
    let all: Vec<String> = std::iter::repeat_n(body(size), count).collect();
    Ok(block_on(sender.send_batch(all))?)
}

/// Dropping a guard without a commit returns its message to the queue.
fn receive(receiver: &mut Receiver, count: usize) -> Result<(), Box<dyn Error>> {
    for _ in 0..count {
        block_on(receiver.recv())?.commit()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("yaque-driver DIRECTORY")?;
    let (mut sender, mut receiver) = yaque::channel(directory)?;
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).copied().unwrap_or_default().parse::<usize>();
        let began = Instant::now();
        match words.first().copied() {
            Some("publish") => publish(&mut sender, number(1)?, number(2)?)?,
            Some("batch") => batch(&mut sender, number(1)?, number(2)?)?,
            Some("receive") => receive(&mut receiver, number(1)?)?,
            _ => {
                writeln!(out, "none")?;
                continue;
            }
        }
        writeln!(out, "{}", began.elapsed().as_nanos())?;
    }
    Ok(())
}
