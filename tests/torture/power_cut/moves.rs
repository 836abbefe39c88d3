//! The story of a move from one queue to another.

use ensemble_core::Result;
use ensemble_team::migration::migrate;

use super::*;

const IDS: [&str; 3] = ["waiting", "delayed", "dead"];
const DELAY: Duration = Duration::from_secs(3600);

/// Messages that wait, are delayed or dead; none may be missing, or be in both queues at the end.
pub const MIGRATE: Story = Story {
    name: "migrate",
    prepare: |home| prepare(home).expect("prepared"),
    act: |stage| {
        let from = open(&stage.queue, stage.durability).expect("the queue");
        let to =
            open(&stage.queue.with_file_name("other"), stage.durability).expect("another queue");
        migrate(&from, &to).expect("moved");
        say("migrated");
    },
    judge: |bed, told, found| judge(bed, told, found),
    weak: [&[], &[Kind::Lost, Kind::Torn, Kind::Undone, Kind::Stuck]],
};

fn open(queue: &Path, durability: Durability) -> Result<Spool> {
    let options = SpoolOptions { durability, ..SpoolOptions::default() };
    Spool::open(queue, options)
}

fn prepare(home: &Path) -> Result<()> {
    let bed = Bed::at(home);
    let (spool, dispatch) = (bed.spool(), name("dispatch"));
    Spool::create(&home.join("other"), SpoolOptions::default())?;
    // Received in this order, the first two leave `new/`.
    for id in ["dead", "delayed", "waiting"] {
        let id = MessageId::new(id).expect("an id");
        spool
            .publish(&Envelope::new(dispatch.clone(), format!("the body of {id}\n")).with_id(id))?;
    }
    let id = |id: &str| MessageId::new(id).expect("an id");
    let delayed = spool.receive_id(&dispatch, &id("delayed"), &name("holder"))?.expect("it waits");
    spool.release(&delayed.lease, DELAY)?;
    spool.dead_letter_waiting(&dispatch, &id("dead"), "a reason")
}

fn judge(bed: &Bed, told: &[String], found: &mut Findings) -> Result<()> {
    let to = Spool::create(&bed.home.path().join("other"), SpoolOptions::default())?;
    let (from, dispatch) = (bed.spool(), name("dispatch"));
    let is_migrated = told.contains(&"migrated".to_owned());
    // A torn copy is found and moved aside before the next operation.
    from.fsck(true)?;
    to.fsck(true)?;
    migrate(&from, &to)?;
    for word in IDS {
        let id = MessageId::new(word).expect("an id");
        let state = |spool: &Spool| match spool.state(&dispatch, &id) {
            Ok(state) => Ok(state),
            Err(Error::NoMailbox { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let whole = |spool: &Spool| spool.peek(&dispatch, &id).is_ok();
        match (state(&from)?, state(&to)?) {
            (None, None) => found.note(Kind::Lost, word),
            (Some(_), Some(_)) if whole(&from) && whole(&to) => found.note(Kind::Twice, word),
            (None, Some(_)) if !whole(&to) => found.note(Kind::Torn, word),
            (Some(_), _) if !whole(&from) => found.note(Kind::Torn, word),
            (Some(_), None) => found.note(Kind::Stuck, format!("{word} is not moved")),
            (_, Some(State::Dead)) if word != "dead" => found.note(Kind::Undone, word),
            (_, Some(State::Queued { .. })) if word == "dead" && is_migrated => {
                found.note(Kind::Undone, word);
            }
            _ => {}
        }
    }
    Ok(())
}
