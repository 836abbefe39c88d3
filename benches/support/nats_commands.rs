//! Commands on servers, each a process with its own connection, against a process that connects with async-nats and
//! makes one call. Then `recv` of a mailbox in which many messages were settled, against one without a past.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_core::message::Envelope;

use crate::{Bare, LOOK_INTERVAL, Ours, Outcome, ROUNDS, Server, row_at_most};

/// First argument of the bare client; the address follows.
pub const BARE_CLIENT: &str = "bare-client";
const BARE_STREAM: &str = "commands";
/// Commands of one round, whose median counts.
const STARTS: usize = 9;
/// Settled messages of the mailbox with a past.
const SETTLED: usize = 20_000;
const LEAVING: Duration = Duration::from_secs(600);
/// Connections that fill the mailbox.
const FILLERS: usize = 4;

/// The bare client's whole life, in a separate process: it stores a message in an existing stream.
pub fn connect_and_call(url: &str) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(url).await?);
        let subject = format!("bare.{BARE_STREAM}.{BARE_STREAM}");
        context.publish(subject, "done".into()).await?.await?;
        Ok(())
    })
}

pub fn commands(server: &Server, body: &str) -> Outcome<()> {
    let Some(program) = built_program()? else {
        println!("commands are left out: cargo build --release --package ensemble-broker");
        return Ok(());
    };
    let (home, url) = (tempfile::tempdir()?, server.url());
    let team = format!("transport: {url}\nnats: {{team: bench, host: here}}\n");
    std::fs::write(home.path().join("ensemble.yaml"), team)?;
    let side = Sides { program, project: home.path(), url: &url };
    side.ours(&["init"])?;
    let [plain, old] = ["plain", "old"].map(|name| Ours::new(&url, name));
    let (plain, old) = (plain?, old?);
    drop(Bare::in_stream(&url, BARE_STREAM, BARE_STREAM)?);
    let bare = || side.bare();
    let mut rounds: [Vec<(f64, f64)>; 5] = Default::default();
    for round in 0..ROUNDS {
        let id = |at: usize| format!("m-{round}-{at}");
        let send = |at| side.ours(&["send", "--to", "plain", "--id", &id(at), "-m", "done"]);
        let settle = |at| side.ours(&["settle", &id(at), "--as", "plain"]);
        rounds[0].push((median(send)?, median(|_| bare())?));
        rounds[1].push((median(|_| side.ours(&["inbox", "--as", "plain"]))?, median(|_| bare())?));
        rounds[2].push((median(|_| side.ours(&["recv", "--as", "plain"]))?, median(|_| bare())?));
        rounds[3].push((median(settle)?, median(|_| bare())?));
        rounds[4].push((median(|_| side.ours(&["status"]))?, median(|_| bare())?));
    }
    for (name, rounds) in ["send", "inbox", "recv", "settle", "status"].iter().zip(rounds) {
        row_at_most(&format!("`{name}`, to connecting and one call"), rounds);
    }
    past(&side, &plain, &old, body)
}

/// `recv` right after many messages were settled, and once they have left the mailbox.
fn past(side: &Sides<'_>, plain: &Ours, old: &Ours, body: &str) -> Outcome<()> {
    fill(side.url, body)?;
    compare(side, plain, old, "just settled")?;
    let began = Instant::now();
    let mut left = 0;
    while left < SETTLED as u64 {
        if began.elapsed() > LEAVING {
            return Err(format!("{left} of {SETTLED} settled messages have left in time").into());
        }
        left += old.queue.set_settled_apart()?;
        std::thread::sleep(LOOK_INTERVAL);
    }
    println!(
        "settled messages have left their mailbox after {:.0} s",
        began.elapsed().as_secs_f64()
    );
    compare(side, plain, old, "set apart")
}

fn compare(side: &Sides<'_>, plain: &Ours, old: &Ours, when: &str) -> Outcome<()> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        for _ in 0..STARTS {
            plain.publish("next")?;
            old.publish("next")?;
        }
        let took = median(|_| side.ours(&["recv", "--as", "old"]))?;
        rounds.push((took, median(|_| side.ours(&["recv", "--as", "plain"]))?));
    }
    row_at_most(&format!("`recv`, {SETTLED} {when}, to none"), rounds);
    Ok(())
}

/// Publishes, receives and settles in the mailbox `old`.
fn fill(url: &str, body: &str) -> Outcome<()> {
    std::thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLERS)
            .map(|_| {
                scope.spawn(|| -> Outcome<()> {
                    let ours = Ours::at(url, "old")?;
                    for _ in 0..SETTLED / FILLERS {
                        ours.queue.publish(&Envelope::new(ours.mailbox.clone(), body))?;
                        ours.receive_and_settle()?;
                    }
                    Ok(())
                })
            })
            .collect();
        fillers.into_iter().try_for_each(|filler| filler.join().map_err(|_| "a filler failed")?)
    })
}

struct Sides<'a> {
    program: PathBuf,
    project: &'a Path,
    url: &'a str,
}

impl Sides<'_> {
    fn ours(&self, arguments: &[&str]) -> Outcome<f64> {
        started(Command::new(&self.program).args(arguments).current_dir(self.project))
    }

    fn bare(&self) -> Outcome<f64> {
        started(Command::new(std::env::current_exe()?).args([BARE_CLIENT, self.url]))
    }
}

/// Microseconds from before the start to after the end.
fn started(command: &mut Command) -> Outcome<f64> {
    command.env_remove("ENSEMBLE_QUEUE").env_remove("ENSEMBLE_AGENT_ID");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status()?;
    let took = began.elapsed().as_secs_f64() * 1e6;
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}

fn median(act: impl Fn(usize) -> Outcome<f64>) -> Outcome<f64> {
    let mut times = (0..STARTS).map(act).collect::<Outcome<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[STARTS / 2])
}

/// The program that `make packages` has built, or else the released form.
fn built_program() -> Outcome<Option<PathBuf>> {
    let this = std::env::current_exe()?;
    let programs = this.ancestors().nth(2).ok_or("this program has no directory")?;
    let packaged = format!("../{}-unknown-linux-musl/release/ensemble", std::env::consts::ARCH);
    let forms = [programs.join(packaged), programs.join("ensemble")];
    Ok(forms.into_iter().find(|program| program.is_file()))
}
