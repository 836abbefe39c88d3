//! Addresses beyond one project: `NAME@PROJECT`, by the registry of this user's projects.
//!
//! | the sender, as its project knows it | the reader in the other project reads |
//! |---|---|
//! | the person | that it is the person who runs the team |
//! | an agent, proved by pass or pane | its name and its project; its text is not trusted |
//! | a name alone | that it is not proved |
//!
//! The answer is returned in the same way: the message names the project of its sender. Who may write into the other
//! queue, its directory says. An agent sends without a person being asked, so it begins a conversation only with the
//! projects that `other_projects` in its `ensemble.yaml` names.

use std::str::FromStr;

use ensemble_core::message::Name;
use ensemble_core::message::fields::strip_quotes;
use ensemble_project::registry::{KnownProject, known_projects, note_project, project_name};

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::mail::sending::known_recipients;
use crate::queue::ProjectQueue;

/// A recipient: a mailbox of this project, or of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub name: Name,
    pub project: Option<Name>,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        // `@worker-1` has no project.
        let text = strip_quotes(text).trim_start_matches('@');
        match text.split_once('@') {
            None => Ok(Self { name: name(text)?, project: None }),
            Some((mailbox, project)) => {
                Ok(Self { name: name(mailbox)?, project: Some(name(project)?) })
            }
        }
    }
}

pub struct OtherProject {
    /// The other project as this caller sees it; the caller is known by its own project.
    pub app: App,
    pub queue: ProjectQueue,
}

impl OtherProject {
    /// Opens the project of this name for a message that answers none.
    pub fn open_to_send(app: &App, name: &Name) -> Outcome<Self> {
        let (identity, project) = (app.identity()?, app.project()?);
        if identity.is_member() && !project.config.other_projects.contains(name) {
            let text = format!("agents of this project may not write to the project `{name}`");
            let hint = format!("a person allows it in ensemble.yaml: `other_projects: [{name}]`");
            return Err(Failure::refused(text).with_hint(hint));
        }
        Self::open(app, name)
    }

    pub fn open(app: &App, name: &Name) -> Outcome<Self> {
        let mut found: Vec<KnownProject> =
            known_projects().into_iter().filter(|it| it.name == *name).collect();
        let Some(known) = found.pop() else {
            let text = format!("you have no project `{name}` on this machine");
            let hint = "`ensemble projects` lists them; `ensemble init` in its directory adds one";
            return Err(Failure::nothing(text).with_hint(hint));
        };
        if let Some(second) = found.first() {
            let places = format!("{} and {}", known.queue.display(), second.queue.display());
            let text = format!("several projects are called `{name}`: {places}");
            let hint = "give one another name in its ensemble.yaml: `team: {name: NAME}`";
            return Err(Failure::refused(text).with_hint(hint));
        }
        let app = App::new(Some(known.queue), None, app.caller);
        let queue = ProjectQueue::open(&app)?;
        Ok(Self { app, queue })
    }

    /// The mailbox there that a name means, which must exist.
    pub fn recipient(&self, name: &Name) -> Outcome<Name> {
        let mut known =
            known_recipients(self.app.project()?, &*self.queue, std::slice::from_ref(name), false)?;
        Ok(known.remove(0))
    }
}

/// The name of the caller's own project, which is noted so that the answer finds it.
pub fn own_project(app: &App) -> Outcome<Name> {
    let project = app.project()?;
    let _ = note_project(project);
    Ok(project_name(project)?)
}
