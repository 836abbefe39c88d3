use ensemble_app::acting::check_planner;
use ensemble_core::message::Name;
use ensemble_team::board::{Discovery, LockedBoard, NewDiscovery};
use serde_json::{Value, json};

use crate::context::{Context, Failure, Outcome};

/// Record work discovered along the way, and decide what to do about it
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Add(AddDiscovery),
    /// List the discoveries, in the order of the board
    List {
        /// Only those that are immediate and no task yet
        #[arg(long)]
        immediate: bool,
    },
    /// Name the task that a discovery has become
    Convert {
        /// Id of the discovery
        id: Name,
        /// The task
        #[arg(long, value_name = "ID")]
        task: Name,
    },
    /// Defer a discovery
    Defer {
        /// Id of the discovery
        id: Name,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if matches!(self.verb, Verb::Convert { .. } | Verb::Defer { .. }) {
            check_planner(context, &context.board()?.read()?)?;
        }
        match self.verb {
            Verb::Add(add) => add.run(context),
            Verb::List { immediate } => list(context, immediate),
            Verb::Convert { id, task } => {
                change(context, &id, |board| board.convert_discovery(&id, &task))
            }
            Verb::Defer { id } => change(context, &id, |board| board.defer_discovery(&id)),
        }
    }
}

/// Record work that is not yours to do
///
/// With `--immediate` a planner is called for it.
#[derive(Debug, clap::Args)]
struct AddDiscovery {
    /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
    id: Name,
    /// Description of the finding
    #[arg(long, short, value_name = "TEXT")]
    description: String,
    /// During which task it was found
    #[arg(long, value_name = "ID")]
    during: Option<Name>,
    /// Severity, in your own words
    #[arg(long, value_name = "TEXT")]
    severity: Option<String>,
    /// It cannot wait
    #[arg(long)]
    immediate: bool,
    /// Recommended action
    #[arg(long, value_name = "TEXT")]
    recommendation: Option<String>,
}

impl AddDiscovery {
    fn run(self, context: &Context) -> Outcome {
        let new = NewDiscovery {
            id: self.id.clone(),
            by: context.reporter()?,
            during: self.during,
            description: self.description,
            severity: self.severity,
            is_immediate: self.immediate,
            recommendation: self.recommendation,
        };
        change(context, &self.id, |board| board.discover(&new))
    }
}

fn list(context: &Context, immediate: bool) -> Outcome {
    let state = context.board()?.read()?;
    let is_wanted = |discovery: &&Discovery| {
        !immediate
            || (discovery.urgency.as_deref() == Some("immediate")
                && discovery.converted_to_task.is_none())
    };
    let found: Vec<&Discovery> = state.discovered.iter().filter(is_wanted).collect();
    let row = |discovery: &&Discovery| {
        let field = |name: &str| {
            let text = discovery.more.get(name).and_then(Value::as_str);
            text.unwrap_or("-").to_owned()
        };
        let task = discovery.converted_to_task.as_ref();
        vec![
            discovery.id.to_string(),
            discovery.urgency.clone().unwrap_or_else(|| "-".to_owned()),
            field("by"),
            task.map_or_else(|| "-".to_owned(), Name::to_string),
            field("description"),
        ]
    };
    let heading = ["discovery", "urgency", "by", "task", "description"];
    context.out.print_list(&found, &heading, row)
}

fn change(
    context: &Context,
    id: &Name,
    change: impl FnOnce(&mut LockedBoard<'_>) -> ensemble_core::Result<()>,
) -> Outcome {
    let board = context.board()?;
    let mut locked = board.lock()?;
    change(&mut locked)?;
    let state = locked.commit()?;
    let found = state.discovered.iter().find(|discovery| discovery.id == *id);
    let found = found.ok_or_else(|| Failure::nothing(format!("discovery `{id}` is gone")))?;
    let said = match &found.converted_to_task {
        Some(task) => format!("{id} is task {task}"),
        None => format!("{id} {}", found.urgency.as_deref().unwrap_or("deferred")),
    };
    context.out.print_answer(&json!(found), said)
}
