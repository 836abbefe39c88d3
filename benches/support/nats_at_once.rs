//! Several clients that send and receive, one connection each, over one stream on either side. They
//! keep all processors busy, so the row reports processor time of the server and the clients beside
//! the rate.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::{Bare, MESSAGES, Ours, Outcome, ROUNDS, Server, row};

/// Clients at a time.
const WORKERS: usize = 4;

/// Measurements of one turn of one side.
#[derive(Clone, Copy)]
struct Turn {
    /// Messages a second that all clients send and receive together.
    rate: f64,
    /// Processor time of the server and of the clients, in microseconds a message.
    server: f64,
    clients: f64,
}

pub fn at_once(server: &Server, body: &str, envelope: &[u8]) -> Outcome<()> {
    let url = server.url();
    let names: Vec<String> = (0..WORKERS).map(|n| format!("w{n}")).collect();
    let ours: Vec<Ours> = names.iter().map(|n| Ours::new(&url, n)).collect::<Outcome<_>>()?;
    let bare: Vec<Bare> =
        names.iter().map(|n| Bare::in_stream(&url, "team", n)).collect::<Outcome<_>>()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let a = turn(server, &ours, |w| w.publish(body).and_then(|()| w.receive_and_settle()))?;
        let b = turn(server, &bare, |w| w.publish(envelope).and_then(|()| w.receive_and_settle()))?;
        rounds.push((a, b));
    }
    let of = |which: fn(&Turn) -> f64| rounds.iter().map(|(a, b)| (which(a), which(b))).collect();
    row("publish + receive + settle, 4 at once", "/s", of(|turn| turn.rate), false);
    row("processor time of the server for it", "us", of(|turn| turn.server), true);
    row("processor time of the clients for it", "us", of(|turn| turn.clients), true);
    Ok(())
}

fn turn<T: Sync>(
    server: &Server,
    workers: &[T],
    act: impl Fn(&T) -> Outcome<()> + Sync,
) -> Outcome<Turn> {
    let (start, server_before, clients_before) = (Instant::now(), server.cpu()?, own_cpu());
    std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter()
            .map(|worker| scope.spawn(|| (0..MESSAGES).try_for_each(|_| act(worker))))
            .collect();
        running.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker failed")?)
    })?;
    let (took, messages) = (start.elapsed().as_secs_f64(), (workers.len() * MESSAGES) as f64);
    let micros = |seconds: f64| seconds * 1e6 / messages;
    Ok(Turn {
        rate: messages / took,
        server: micros(server.cpu()? - server_before),
        clients: micros(own_cpu() - clients_before),
    })
}

/// Processor time used by this process, in seconds.
fn own_cpu() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}
