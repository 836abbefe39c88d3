//! A client waits for the mailbox lock, or releases a message so late that no sender misses it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ensemble_core::durable::FileLock;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::cases::TestedClient as _;
use super::disk::held;
use super::program::ClientProgram;
use super::{
    BACKWARDS, ClientCheck, EmptyQueue, LETTER, ProtocolRule, StageChecks, accepted, under_lease,
};

const CHOSEN: ProtocolRule = ("States and moves", "Lock `gate.lock` exclusively.");
const UNLOCKED: ProtocolRule =
    ("States and moves", "It releases with a T at least 2,000 ms ahead.");

/// A client that has not answered by then is waiting for the lock. One that does not wait answers in milliseconds.
const SEEN_WAITING: Duration = Duration::from_millis(400);
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// The least delay of a release without a lock, less what the kit's own look takes.
const UNLOCKED_DELAY_MS_MIN: u64 = 2000;

pub(super) fn check(client: &str) -> Vec<ClientCheck> {
    let mut checks = StageChecks::new(client, "locks");
    let locks =
        EmptyQueue::new().and_then(|bed| Ok(ClientProgram::start(client, &bed.queue())?.locks()));
    match locks {
        Ok(true) => {
            let held = |op: &str, more: Value| {
                move_under_lock(client, op, op != "release", |bed, program| {
                    accepted(program.call(&bed.send("x\n")?))?;
                    let received = accepted(program.call(&bed.receive()))?;
                    let mut call = under_lease(op, &received);
                    if let (Value::Object(call), Value::Object(more)) = (&mut call, more) {
                        call.extend(more);
                    }
                    Ok(call)
                })
            };
            checks.add_check(
                "release_waits_for_the_lock",
                BACKWARDS,
                held("release", json!({ "delay_ms": 0 })),
            );
            checks.add_check(
                "dead_letter_waits_for_the_lock",
                LETTER,
                held("dead_letter", json!({ "reason": "no" })),
            );
            let chosen = move_under_lock(client, "chosen id", true, |bed, _| {
                let mut call = bed.send("x\n")?;
                call["id"] = "chosen".into();
                Ok(call)
            });
            checks.add_check("chosen_id_waits_for_the_lock", CHOSEN, chosen);
        }
        Ok(false) => {
            checks.add_check("release_without_a_lock_is_delayed", UNLOCKED, delayed(client))
        }
        Err(error) => checks.add_check("start", CHOSEN, Err(error)),
    }
    checks.done
}

/// Makes a call while the kit holds the lock: the client has to wait, and then to succeed. A call that
/// needs the lock `exclusively` waits for a shared one, too.
fn move_under_lock(
    client: &str,
    what: &str,
    exclusively: bool,
    prepare: impl FnOnce(&EmptyQueue, &mut ClientProgram) -> Result<Value, String>,
) -> Result<(), String> {
    let bed = EmptyQueue::new()?;
    let mut program = ClientProgram::start(client, &bed.queue())?;
    let call = prepare(&bed, &mut program)?;
    let before = states(&bed);
    let gate = bed.mailbox().join("gate.lock");
    let lock = match exclusively {
        true => FileLock::acquire_shared(&gate, LOCK_PATIENCE),
        false => FileLock::acquire(&gate, LOCK_PATIENCE),
    };
    let lock = lock.map_err(|error| error.to_string())?;
    program.ask(&call)?;
    if let Some(answer) = program.answer_within(SEEN_WAITING)? {
        return Err(format!("{what}: it answered while the lock was held by another: {answer}"));
    }
    program.signal(Signal::STOP);
    let meanwhile = states(&bed);
    program.signal(Signal::CONT);
    drop(lock);
    if meanwhile != before {
        return Err(format!(
            "{what}: files moved while the lock was held by another: {meanwhile:?}"
        ));
    }
    let answer = program.answer_within(ANSWER_PATIENCE)?;
    accepted(answer.ok_or_else(|| format!("{what}: no answer after the lock was free"))).map(drop)
}

fn states(bed: &EmptyQueue) -> Vec<Vec<String>> {
    ["new", "front", "cur", "dead"].map(|state| bed.names(state)).to_vec()
}

fn delayed(client: &str) -> Result<(), String> {
    let (bed, mut program, received) = held(client)?;
    let mut call = under_lease("release", &received);
    call["delay_ms"] = 0.into();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    accepted(program.call(&call))?;
    let names = bed.names("front");
    let due = names
        .iter()
        .find_map(|name| name.rsplit_once("@t")?.1.strip_suffix(".yaml")?.parse::<u64>().ok());
    let earliest = u64::try_from(before).unwrap_or(0) + UNLOCKED_DELAY_MS_MIN;
    match due {
        Some(due) if due >= earliest => Ok(()),
        _ => Err(format!("front/ has {names:?}, T should be {earliest} or later")),
    }
}
