//! Hooks in the configuration of an agent that a person starts.

use std::path::PathBuf;

use ensemble_core::message::shell_word;
use ensemble_tmux::provider::{COMMAND, HookConfig, PROGRAM, file_text, filled};
use serde_json::{Map, Value, json};

use crate::agent_program::AgentProgram;
use crate::config_edit::{ConfigEdit, ConfigInsert, read_settings};
use crate::environment::own_program;
use crate::failure::{Failure, Outcome};
use crate::{App, hook_entries};

/// The configuration into which the hooks of a program go.
#[derive(Clone, Copy, Debug)]
pub struct HookTarget {
    pub program: AgentProgram,
    /// Of this user, for all projects; else of this project.
    pub is_of_user: bool,
}

/// The configurations (`project`, `user`) that have our hooks for a program.
pub fn hooks_in_place(app: &App, program: AgentProgram) -> Vec<&'static str> {
    let has = |user: bool| -> Outcome<bool> {
        let target = HookTarget { program, is_of_user: user };
        let profile = app.project()?.profiles()?.get(program.word())?;
        Ok(target.parts(app, profile.hooks())?.iter().all(HookPart::is_in_place))
    };
    let places = [("project", false), ("user", true)].into_iter();
    places.filter(|(_, user)| has(*user).unwrap_or(false)).map(|(place, _)| place).collect()
}

pub struct HookPart {
    pub file: PathBuf,
    guest: ConfigInsert,
    content: HookContent,
}

enum HookContent {
    Events(Map<String, Value>),
    Whole(String),
    Entry(String, String),
}

impl HookPart {
    /// Puts the hooks in. Whether the file was changed.
    pub fn put_in(&self) -> Outcome<bool> {
        self.remove_older()?;
        self.guest.put_in(&self.file, |text| self.content.put_into(text))
    }

    /// Takes the hooks out. The file, and whether it was changed.
    pub fn take_out(&self) -> Outcome<(PathBuf, bool)> {
        self.guest.take_out()
    }

    /// Takes out our own file of another version: it is none of the user's that would have to be restored.
    fn remove_older(&self) -> Outcome {
        let HookContent::Whole(ours) = &self.content else { return Ok(()) };
        let is_older =
            self.text().is_some_and(|text| text != *ours && hook_entries::is_ours(&text));
        match is_older {
            true => self.guest.take_out().map(drop),
            false => Ok(()),
        }
    }

    fn is_in_place(&self) -> bool {
        self.text().is_some_and(|text| matches!(self.content.put_into(&text), Ok(None)))
    }

    /// The file as it is; `None` if it cannot be read.
    fn text(&self) -> Option<String> {
        read_settings(&self.file).ok().flatten()
    }

    pub fn printed(&self) -> String {
        match &self.content {
            HookContent::Events(events) => format!("{:#}\n", json!({ "hooks": events })),
            HookContent::Whole(text) => format!("// {}\n{text}", self.file.display()),
            HookContent::Entry(list, entry) => {
                format!("// {}\n{:#}\n", self.file.display(), json!({ list: [entry] }))
            }
        }
    }
}

impl HookContent {
    fn put_into(&self, text: &str) -> Result<Option<ConfigEdit>, String> {
        match self {
            Self::Events(events) => hook_entries::with_hooks(text, events),
            Self::Whole(whole) => hook_entries::whole(text, whole),
            Self::Entry(list, entry) => hook_entries::with_entry(text, list, entry),
        }
    }
}

impl HookTarget {
    /// All that is put in, in that order. The first one has the note by which older versions know it.
    pub fn parts(&self, app: &App, hooks: &HookConfig) -> Outcome<Vec<HookPart>> {
        let (state, place) = (&app.project()?.state, self.file(app, hooks)?);
        let install = &hooks.install;
        let contents: Vec<(PathBuf, HookContent)> = match install.files.is_empty() {
            true => vec![(place, HookContent::Events(self.events(hooks)?))],
            false => {
                let own = own_program();
                let files = install.files.iter().map(|(name, content)| {
                    (
                        place.join(name),
                        HookContent::Whole(file_text(content, &own, &shell_word(&own))),
                    )
                });
                let lists = install.lists.iter().flat_map(|(file, lists)| {
                    let file = place.join(file);
                    let entry = |(list, entry): (&String, &String)| {
                        HookContent::Entry(list.clone(), entry.clone())
                    };
                    lists.iter().map(move |named| (file.clone(), entry(named)))
                });
                files.chain(lists).collect()
            }
        };
        let scope = if self.is_of_user { "user" } else { "project" };
        let parts = contents.into_iter().enumerate().map(|(index, (file, content))| {
            let suffix = if index == 0 { String::new() } else { format!("-{index}") };
            let note = format!("{}-{scope}{suffix}", self.program.word());
            let guest = hook_entries::guest(state, &note);
            HookPart { file, guest, content }
        });
        Ok(parts.collect())
    }

    /// The hooks of the program, with our own command in them.
    fn events(&self, hooks: &HookConfig) -> Outcome<Map<String, Value>> {
        let none = || Failure::refused(format!("{} has no hooks", self.program.word()));
        let events = Value::from(hooks.events().ok_or_else(none)?.clone());
        let program = own_program();
        let events = filled(&filled(&events, PROGRAM, &program), COMMAND, &shell_word(&program));
        events.as_object().cloned().ok_or_else(none)
    }

    fn file(&self, app: &App, hooks: &HookConfig) -> Outcome<PathBuf> {
        let none = || Failure::refused(format!("{} has no such file", self.program.word()));
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let places = &hooks.install;
        if !self.is_of_user {
            let place = places.project.as_ref().ok_or_else(none)?;
            return Ok(app.project()?.root().join(place));
        }
        let place = places.user.as_ref().ok_or_else(none)?;
        let own = places.home_variable.as_deref().and_then(variable);
        if let (Some(home), Some((_, last))) = (own, place.rsplit_once('/')) {
            return Ok(PathBuf::from(home).join(last));
        }
        let home = variable("HOME").ok_or_else(|| Failure::usage("HOME is not set"))?;
        Ok(PathBuf::from(home).join(place))
    }
}
