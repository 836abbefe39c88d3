use std::collections::BTreeMap;

use ensemble_app::steps::open_steps;
use ensemble_app::text::{one_line, plural};
use ensemble_core::Error;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::requests::Requests;
use ensemble_core::spool::Spool;
use ensemble_team::board::is_missing;
use ensemble_team::replay::{BOARD_PATH, DifferenceKind, DiskState, Replay, ReplayDifference};
use serde_json::json;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{BAD, FAINT, GOOD, STRONG};

pub(super) fn replay(context: &Context, strict: bool) -> Outcome {
    let logs = super::require_log(context)?;
    let earlier = Replay::read(&logs)?;
    let disk = read_disk(context)?;
    let replay = Replay::read(&logs)?;
    let differences = replay.compare_moving(&earlier, &disk, SystemClock.wall());
    for gap in replay.gaps() {
        let object = json!({ "log": gap, "text": gap.to_string() });
        context.out.print_answer(&object, context.out.paint(BAD, format!("log  {gap}")))?;
    }
    for part in &disk.unread {
        let line = format!("not read  {}", one_line(&part.text));
        context.out.print_answer(part, context.out.paint(BAD, line))?;
    }
    differences.iter().try_for_each(|difference| show(context, difference))?;
    let count = |kind| differences.iter().filter(|d| d.kind == kind).count() as u64;
    let (wrong, untold) = (count(DifferenceKind::Contradiction), count(DifferenceKind::Unrecorded));
    summary(context, &replay, wrong, untold)?;
    context.out.flush()?;
    if wrong > 0 || (strict && untold > 0) {
        let counted = if strict { wrong + untold } else { wrong };
        let text = format!("{} between log and disk", plural(counted, "difference"));
        return Err(Failure::new(VerbExit::Corrupt, text)
            .with_hint("`ensemble why ID` tells what the log has of each; nothing was changed"));
    }
    if !disk.unread.is_empty() {
        let text = "what could not be read was not compared with the log";
        return Err(Failure::refused(text).with_hint("`ensemble status` says what helps"));
    }
    if replay.gaps().is_empty() {
        return Ok(());
    }
    let text = "the log is not whole: what it lacks could not be compared";
    Err(Failure::refused(text).with_hint("was a file of the log moved away or cut?"))
}

fn show(context: &Context, difference: &ReplayDifference) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        return out.object(difference);
    }
    let ReplayDifference { kind, about, id, path, log, disk, record, .. } = difference;
    let word = match kind {
        DifferenceKind::Contradiction => out.paint(BAD, "contradiction"),
        DifferenceKind::Unrecorded => out.paint(FAINT, "unrecorded"),
    };
    let name = out.paint(STRONG, format!("{about} {}", one_line(id)));
    out.line(format!("{word}  {name}  {}", one_line(path)))?;
    let of = if record.is_empty() { String::new() } else { format!("  ({})", one_line(record)) };
    out.line(format!("    log: {}{of}", one_line(log)))?;
    out.line(format!("    disk: {}", one_line(disk)))
}

fn summary(context: &Context, replay: &Replay, wrong: u64, untold: u64) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        let mut whole = json!({
            "contradictions": wrong, "unrecorded": untold, "records": replay.records(),
            "log_is_whole": replay.gaps().is_empty(),
        });
        for (name, count) in replay.counts() {
            whole[name] = json!(count);
        }
        return out.object(&whole);
    }
    let counts: Vec<String> =
        replay.counts().iter().map(|(name, count)| format!("{count} {name}")).collect();
    let of = format!("{}: {}", plural(replay.records(), "record"), counts.join(", "));
    let verdict = match (wrong, untold) {
        (0, 0) => out.paint(GOOD, "as the log tells"),
        (0, _) => out.paint(GOOD, "nothing contradicts the log"),
        (_, _) => out.paint(BAD, "not as the log tells"),
    };
    out.line(format!("{verdict}  ({of})"))
}

/// The state on disk. Parts that the project does not have, or has elsewhere, are skipped, and one that cannot be read
/// keeps no other from the comparison.
fn read_disk(context: &Context) -> Outcome<DiskState> {
    let project = context.project()?;
    if project.is_shared()? {
        let text = "the mailboxes are on the team's servers, not in a directory";
        return Err(Failure::refused(text).with_hint("docs/guides/hosts.md says what works where"));
    }
    let mut disk = DiskState::default();
    match Spool::open(&project.queue, context.spool_options(project)) {
        Ok(spool) => {
            disk.add_mailboxes(&spool, project.root())?;
            disk.add_requests(&Requests::new(&spool).with_kinds(project.kinds()?))?;
        }
        // A project may have a blackboard and no mail; mail that the log reports is missing then.
        Err(Error::NoQueue { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let board = project.find_board(context.board_options(project)?, context.shared_files()?);
    match board.and_then(|board| disk.add_board(&board, project.root())) {
        Err(error) if !is_missing(&error) => disk.add_unread(BOARD_PATH, &error),
        _ => {}
    }
    // Without a database there are no steps, which is not the same as not to have looked.
    disk.steps = Some(BTreeMap::new());
    if project.has_steps() {
        let steps = open_steps(context).and_then(|steps| Ok(disk.add_steps(&steps)?));
        if let Err(failure) = steps {
            disk.steps = None;
            disk.add_unread(".ensemble/steps.db", &failure.text());
        }
    }
    Ok(disk)
}
