//! The 25 invariants of a board, checked on its text by a separate parser and separate code; no
//! check uses the board's own rules.

use std::collections::BTreeSet;

use super::*;

/// Steps of the siblings' table, and those that its limits and leases add.
pub(crate) const ALLOWED: [(&str, &str); 19] = [
    ("DRAFT", "UNCLAIMED"),
    ("UNCLAIMED", "CLAIMED"),
    ("UNCLAIMED", "BLOCKED"),
    ("CLAIMED", "READY_FOR_REVIEW"),
    ("CLAIMED", "BLOCKED"),
    ("CLAIMED", "UNCLAIMED"),
    ("CLAIMED", "REJECTED"),
    ("CLAIMED", "INTEGRATION_FAILED"),
    ("READY_FOR_REVIEW", "APPROVED"),
    ("READY_FOR_REVIEW", "REJECTED"),
    ("APPROVED", "MERGED"),
    ("APPROVED", "INTEGRATION_FAILED"),
    ("REJECTED", "CLAIMED"),
    ("REJECTED", "BLOCKED"),
    ("INTEGRATION_FAILED", "CLAIMED"),
    ("INTEGRATION_FAILED", "BLOCKED"),
    ("BLOCKED", "UNCLAIMED"),
    ("BLOCKED", "SUPERSEDED"),
    ("BLOCKED", "ABANDONED"),
];
const TERMINAL: [&str; 3] = ["MERGED", "SUPERSEDED", "ABANDONED"];
const ACTIVE: [&str; 3] = ["CLAIMED", "READY_FOR_REVIEW", "REJECTED"];

/// A board as a stranger reads it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    board: Value,
}

#[derive(Clone, Copy)]
pub(crate) struct Task<'a>(&'a Value);

impl<'a> Task<'a> {
    pub(crate) fn text(self, field: &str) -> Option<&'a str> {
        self.0[field].as_str()
    }
    /// Whether its newest event but one is a claim.
    fn was_claimed(self) -> bool {
        let history = self.0["history"].as_array().map(Vec::as_slice).unwrap_or_default();
        let event = history.iter().nth_back(1).and_then(|event| event["event"].as_str());
        event.is_some_and(|event| event.contains("claimed") && !event.contains("review"))
    }
    fn has(self, field: &str) -> bool {
        !self.0[field].is_null()
    }
    pub(crate) fn id(self) -> &'a str {
        self.text("id").expect("a task has an id")
    }
    pub(crate) fn status(self) -> &'a str {
        self.text("status").expect("a task has a status")
    }
    fn names(self, field: &str) -> Vec<&'a str> {
        self.0[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
    fn number(self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or(0)
    }
    fn is_active(self) -> bool {
        ACTIVE.contains(&self.status())
    }
}

impl Seen {
    pub(crate) fn new(text: &str) -> Self {
        Self { board: serde_saphyr::from_str(text).expect("it is YAML for other programs, too") }
    }
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.board[field].as_u64().unwrap_or(0)
    }
    pub(crate) fn tasks(&self) -> impl Iterator<Item = Task<'_>> {
        self.board["tasks"].as_array().into_iter().flatten().map(Task)
    }
    pub(crate) fn task(&self, id: &str) -> Option<Task<'_>> {
        self.tasks().find(|task| task.id() == id)
    }
    fn agents(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.board["agents"].as_object().into_iter().flatten()
    }
}

/// The broken invariants, each with its number.
pub(crate) fn broken(seen: &Seen, before: &Seen) -> Vec<String> {
    let mut found = Vec::new();
    let mut must = |number: u8, holds: bool, what: &str| {
        if !holds {
            found.push(format!("{number}. {what}"));
        }
    };
    must(1, seen.number("version") == 1, "the version is 1");
    must(2, seen.number("revision") >= before.number("revision"), "the revision never falls");
    must(3, seen.number("epoch") >= before.number("epoch"), "the epoch never falls");
    let ids: BTreeSet<String> = seen.tasks().map(|task| task.id().to_lowercase()).collect();
    must(4, ids.len() == seen.tasks().count(), "ids differ in more than case");
    for old in before.tasks() {
        let Some(new) = seen.task(old.id()) else {
            must(5, false, &format!("{} does not vanish", old.id()));
            continue;
        };
        let (from, to) = (old.status(), new.status());
        // The last holder submits it, which claims and finishes it in one write.
        let again = to == "READY_FOR_REVIEW" && ALLOWED.contains(&(from, "CLAIMED"));
        let step = from == to || ALLOWED.contains(&(from, to)) || again && new.was_claimed();
        must(6, step, &format!("{}: {from} -> {to} is a step of the table", old.id()));
        must(7, from == to || !TERMINAL.contains(&from), &format!("{} is over", old.id()));
        let waits = |task: Task<'_>| {
            !TERMINAL.contains(&task.status()) && task.names("depends_on").contains(&old.id())
        };
        let is_replaced = from == "BLOCKED" && to == "SUPERSEDED";
        must(7, !is_replaced || !seen.tasks().any(waits), "nothing waits for what was replaced");
        for field in ["lease_epoch", "review_epoch", "review_cycles_total"] {
            must(8, new.number(field) >= old.number(field), &format!("{field} never falls"));
        }
        let history = |task: Task<'_>| task.0["history"].as_array().cloned().unwrap_or_default();
        must(9, history(new).starts_with(&history(old)), "history only grows at its end");
    }
    for task in seen.tasks() {
        for (number, holds, what) in of_task(seen, task) {
            must(number, holds, &format!("{}: {what}", task.id()));
        }
    }
    must(22, !has_cycle(seen), "no task depends on itself");
    let mut busy = BTreeMap::new();
    for task in seen.tasks().filter(|task| task.is_active()) {
        if let Some(agent) = task.text("assigned_to") {
            let other = busy.insert(agent, task.id());
            must(23, other.is_none(), &format!("{agent} has one task, not {other:?}, too"));
        }
    }
    for (name, agent) in seen.agents() {
        let task = agent["current_task"].as_str().and_then(|id| seen.task(id));
        let fits = match agent["status"].as_str().unwrap_or_default() {
            "WORKING" => task.is_some_and(|task| {
                task.status() == "CLAIMED" && task.text("assigned_to") == Some(name)
            }),
            "REVIEWING" => task.is_some_and(|task| task.text("reviewing_by") == Some(name)),
            "WAITING" => task.is_some_and(|task| task.text("assigned_to") == Some(name)),
            _ => agent["current_task"].is_null() || task.is_some(),
        };
        must(24, fits, &format!("{name} does what its task says: {agent}"));
        let epoch = agent["epoch"].as_u64().unwrap_or(0);
        must(25, epoch <= seen.number("epoch"), &format!("{name}'s epoch was given out"));
    }
    found
}

fn of_task<'a>(seen: &Seen, task: Task<'a>) -> Vec<(u8, bool, &'static str)> {
    let is = |status: &str| task.status() == status;
    let unless = |status: &str, holds: bool| !is(status) || holds;
    let merged = |id: &&str| seen.task(id).is_some_and(|other| other.status() == "MERGED");
    let depends_on = task.names("depends_on");
    let (author, reviewer) = (task.text("assigned_to"), task.text("reviewing_by"));
    let failed = task.names("failed_by");
    let distinct: BTreeSet<&str> = failed.iter().copied().collect();
    let exists = |id: &&str| seen.task(id).is_some();
    let successors = task.names("superseded_by");
    let is_free = is("DRAFT") || is("UNCLAIMED");
    let is_loose = is("DRAFT") || is("SUPERSEDED") || is("ABANDONED");
    let epochs = [task.number("lease_epoch"), task.number("review_epoch")];
    vec![
        (10, !is_free || author.is_none(), "a free task has no holder"),
        (
            11,
            unless(
                "CLAIMED",
                author.is_some() && task.has("worktree") && task.has("lease_expires"),
            ),
            "CLAIMED has a coder, a worktree and a lease",
        ),
        (
            12,
            unless("CLAIMED", task.has("base_commit") || task.0["integration_fix"] == true),
            "CLAIMED began at a commit",
        ),
        (13, unless("CLAIMED", depends_on.iter().all(merged)), "CLAIMED waits for nothing"),
        (14, unless("READY_FOR_REVIEW", task.has("review_commit")), "a review has a commit"),
        (15, reviewer.is_none() || is("READY_FOR_REVIEW"), "only a submitted task has a reviewer"),
        (
            16,
            reviewer.is_some() == task.has("review_lease_expires"),
            "exactly the tasks in review have a review lease",
        ),
        (
            17,
            (reviewer.is_none() || reviewer != author)
                && unless(
                    "APPROVED",
                    task.has("approved_by") && task.text("approved_by") != author,
                ),
            "no agent judges its own work",
        ),
        (18, explained(task), "a status has its reason"),
        (
            19,
            depends_on.iter().all(exists)
                && successors.iter().all(exists)
                && depends_on.iter().collect::<BTreeSet<_>>().len() == depends_on.len(),
            "each named task exists once",
        ),
        (20, is_loose || (task.has("done_when") && task.has("spec_ref")), "it is specified"),
        (
            21,
            distinct.len() == failed.len()
                && unless(
                    "CLAIMED",
                    failed.len() < 2 && author.is_some_and(|a| !distinct.contains(a)),
                )
                && epochs.iter().all(|epoch| *epoch <= seen.number("epoch")),
            "a coder that failed does not try again, and its epochs were issued",
        ),
    ]
}

/// Whether a status has its required reason.
fn explained(task: Task<'_>) -> bool {
    let questions = task.names("blocked_questions").len();
    match task.status() {
        "REJECTED" => task.has("rejection_reason"),
        "MERGED" => task.has("merge_commit"),
        "BLOCKED" => task.has("blocked_reason") && (1..=3).contains(&questions),
        "SUPERSEDED" => !task.names("superseded_by").is_empty() && task.has("rescope_reason"),
        _ => true,
    }
}

fn has_cycle(seen: &Seen) -> bool {
    // Takes away what depends on nothing that is left, until nothing changes.
    let mut left: BTreeMap<&str, Vec<&str>> =
        seen.tasks().map(|task| (task.id(), task.names("depends_on"))).collect();
    loop {
        let free: Vec<&str> = left
            .iter()
            .filter(|(_, on)| on.iter().all(|id| !left.contains_key(id)))
            .map(|(id, _)| *id)
            .collect();
        if free.is_empty() {
            return !left.is_empty();
        }
        left.retain(|id, _| !free.contains(id));
    }
}
