//! No room for a file: the limit of a process for the size of its files (RLIMIT_FSIZE) is lowered while it
//! runs. A write beyond the limit fails with EFBIG, as one on a full disk fails with ENOSPC.

use rustix::process::{Resource, Rlimit};
use serde_json::Value;

use super::cases::TestedClient as _;
use super::program::ClientProgram;
use super::{
    ClientCheck, EmptyQueue, LETTER, PUBLISH, ProtocolRule, SETTLE, StageChecks, accepted,
    under_lease,
};

const RELEASE: ProtocolRule =
    ("States and moves", "| release | → `front/<id>@p<P>@e<E>@t<T>.yaml` | holder |");

/// A file may have this many bytes when the disk is "full": less than an envelope's first fields.
const ROOM_BYTES: u64 = 100;
const BODY_BYTES: usize = 20_000;

pub(super) fn check(client: &str) -> Vec<ClientCheck> {
    let mut checks = StageChecks::new(client, "disk");
    checks.add_check("a_cut_message_is_not_published", PUBLISH, publish(client));
    checks.add_check("settle_needs_no_room", SETTLE, finish(client, "settle"));
    checks.add_check("release_needs_no_room", RELEASE, finish(client, "release"));
    checks.add_check("a_letter_without_a_reason_stays_held", LETTER, bury(client));
    checks.done
}

fn limit(program: &ClientProgram, bytes: Option<u64>) -> Result<(), String> {
    let limit = Rlimit { current: bytes, maximum: None };
    rustix::process::prlimit(Some(program.pid()), Resource::Fsize, limit)
        .map(drop)
        .map_err(|error| format!("cannot set RLIMIT_FSIZE: {error}"))
}

fn publish(client: &str) -> Result<(), String> {
    let bed = EmptyQueue::new()?;
    let mut program = ClientProgram::start(client, &bed.queue())?;
    accepted(program.call(&bed.send("first\n")?))?;
    let call = bed.send(&"x".repeat(BODY_BYTES))?;
    limit(&program, Some(ROOM_BYTES))?;
    let full = program.call(&call);
    if let Ok(answer) = &full
        && answer["ok"] == true
    {
        return Err("it said that a message was stored for which there was no room".to_owned());
    }
    let waiting = (bed.names("new"), bed.names("front"));
    if waiting.0.len() + waiting.1.len() != 1 {
        return Err(format!("a part of the message is in the mailbox: {waiting:?}"));
    }
    // A client that the error has ended is started again.
    if full.is_err() {
        program = ClientProgram::start(client, &bed.queue())?;
    } else {
        limit(&program, None)?;
    }
    accepted(program.call(&call)).map(drop)
}

pub(super) fn held(client: &str) -> Result<(EmptyQueue, ClientProgram, Value), String> {
    let bed = EmptyQueue::new()?;
    let mut program = ClientProgram::start(client, &bed.queue())?;
    accepted(program.call(&bed.send("x\n")?))?;
    let received = accepted(program.call(&bed.receive()))?;
    Ok((bed, program, received))
}

fn finish(client: &str, op: &str) -> Result<(), String> {
    let (_bed, mut program, received) = held(client)?;
    limit(&program, Some(0))?;
    let mut call = under_lease(op, &received);
    if op == "release" {
        call["delay_ms"] = 0.into();
    }
    accepted(program.call(&call)).map(drop)
}

fn bury(client: &str) -> Result<(), String> {
    let (bed, mut program, received) = held(client)?;
    limit(&program, Some(0))?;
    let mut call = under_lease("dead_letter", &received);
    call["reason"] = "no room".into();
    let answer = program.call(&call);
    let (held, dead) = (bed.names("cur"), bed.names("dead"));
    if held.len() != 1 || dead.iter().any(|name| !name.ends_with("@reason.yaml")) {
        return Err(format!("without a reason it moved: cur/ has {held:?}, dead/ has {dead:?}"));
    }
    match answer {
        Ok(answer) if answer["ok"] == true => Err("it said that the letter was written".to_owned()),
        Ok(_) => {
            limit(&program, None)?;
            accepted(program.call(&call)).map(drop)
        }
        Err(_) => accepted(ClientProgram::start(client, &bed.queue())?.call(&call)).map(drop),
    }
}
