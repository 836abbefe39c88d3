//! The drop boxes of a queue: which directories are watched, for which files.
//!
//! ```text
//! box          directory              files              their routes
//! reports      reports/               all                the default ones
//! tasks        tasks/                 all                the default ones
//! ack          ack/                   all                none: they say that an agent has read a task
//! configured   one below the queue,   those of its       its own, behind the routes of the
//!              or the queue itself    pattern            configuration and before the default ones
//! ```
//!
//! The three boxes that are built in are always there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use ensemble_core::dropbox::{BoxSpec, DROP_BOXES, PathPattern, RouteRule, Routes, filled};
use ensemble_core::message::{Name, ReservedName, is_temporary_file};
use ensemble_core::{Error, Result};

const ACK_BOX: &str = "ack";
const QUEUE_ITSELF: &str = ".";
/// Directories of the queue that are used for other files.
const RESERVED: [&str; 7] =
    ["mailbox", "tmp", "requests", "gates", "attachments", "rejected", "wal"];
/// A file in the queue's own directory that no box may match.
const CALENDAR: &str = "calendar.json";
/// The largest number of configured boxes: each takes one watch of the kernel.
pub(super) const BOXES_MAX: usize = 32;
/// The longest pattern, in bytes: file names have at most as many.
const PATTERN_BYTES_MAX: usize = 255;

/// A drop box as it is in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BoxRule {
    /// First part of the paths of its files, in routes, messages and records.
    pub name: Name,
    /// Directory below the queue (default: the name). `.` is the queue's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Pattern of the names of its files, with `*` for any text (default `*`). Other files are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Mailboxes that get each file for which `routes` has no route. `{1}`, `{2}` … stand for what the stars of
    /// `files` matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The type of those messages.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Name>,
}

/// Why a configured drop box or route is refused: the field and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRefusal {
    pub field: &'static str,
    /// The fault, and what to write instead.
    pub detail: String,
}

impl RouteRefusal {
    fn new(field: &'static str, detail: impl Into<String>) -> Self {
        Self { field, detail: detail.into() }
    }
}

/// The drop boxes of a queue, the built-in ones first.
#[derive(Clone, Debug)]
pub struct BoxTable {
    boxes: Vec<BoxSpec>,
    own_routes: Vec<RouteRule>,
}

impl Default for BoxTable {
    fn default() -> Self {
        let boxes = DROP_BOXES.iter().map(|name| BoxSpec::named(name)).collect();
        Self { boxes, own_routes: Vec::new() }
    }
}

impl BoxTable {
    pub fn new(rules: &[BoxRule]) -> Result<Self> {
        let mut table = Self::default();
        for (index, rule) in rules.iter().enumerate() {
            table.add(rule).map_err(|RouteRefusal { field, detail }| {
                Error::malformed("drop_boxes", format!("[{index}].{field}"), detail)
            })?;
        }
        Ok(table)
    }

    pub fn add(&mut self, rule: &BoxRule) -> Result<(), RouteRefusal> {
        let name = rule.name.as_str();
        let refuse = |text: String| Err(RouteRefusal::new("name", text));
        if DROP_BOXES.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return refuse(format!("`{name}` is built in: `routes` says where its files go"));
        }
        if self.boxes.iter().any(|it| it.name().eq_ignore_ascii_case(name)) {
            return refuse(format!("`{name}` is defined twice: choose another name"));
        }
        if self.boxes.len() >= DROP_BOXES.len() + BOXES_MAX {
            return refuse(format!("there are more than {BOXES_MAX} drop boxes"));
        }
        let files = file_pattern(rule)?;
        let directory = self.directory_of(rule, &files)?;
        let own_route = own_route(rule, &files)?;
        let directory = (directory != QUEUE_ITSELF).then_some(directory);
        self.boxes.push(BoxSpec::new(name, directory, files));
        self.own_routes.extend(own_route);
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &BoxSpec> {
        self.boxes.iter()
    }

    pub fn get(&self, name: &str) -> Option<&BoxSpec> {
        self.boxes.iter().find(|it| &**it.name() == name)
    }

    /// The routes of a queue: those of its configuration, those of its boxes, then the default ones.
    pub fn routes(&self, rules: &[RouteRule]) -> Result<Routes> {
        for rule in rules {
            self.check(rule).map_err(|RouteRefusal { detail, .. }| {
                Error::malformed("routes", rule.pattern.clone(), detail)
            })?;
        }
        let all: Vec<RouteRule> = rules.iter().chain(&self.own_routes).cloned().collect();
        Routes::new(&all)
    }

    /// Whether a route can ever match a file that is watched, and has recipients.
    pub fn check(&self, rule: &RouteRule) -> Result<(), RouteRefusal> {
        let pattern = rule.pattern.as_str();
        let refuse = |text: String| Err(RouteRefusal::new("match", text));
        let watched = || {
            let names: Vec<String> = self
                .boxes
                .iter()
                .filter(|it| &**it.name() != ACK_BOX)
                .map(|it| format!("`{}/`", it.name()))
                .collect();
            names.join(", ")
        };
        let Some((place, file)) = pattern.split_once('/') else {
            return refuse(format!(
                "`{pattern}` is not below a drop box: begin it with one of {}",
                watched()
            ));
        };
        let Some(spec) = self.get(place) else {
            return refuse(format!(
                "`{place}/` is not watched: add `{{name: {place}}}` to `drop_boxes`, or begin the pattern with one of {}",
                watched()
            ));
        };
        if place == ACK_BOX {
            let text = "files in `ack/` are not routed, they say that an agent has read a task: use another drop box";
            return refuse(text.to_owned());
        }
        if file.is_empty() || file.contains('/') {
            return refuse(format!(
                "`{pattern}` names no file in `{place}/`, and directories below it are not watched: end it with a file name such as `{place}/*.yaml`"
            ));
        }
        if is_temporary_file(file) {
            return refuse(format!(
                "no file named `{file}` is read: its writer may still write it"
            ));
        }
        let files = PathPattern::new(file);
        if !overlap(spec.files(), &files) {
            return refuse(format!(
                "no file matches both `{file}` and the pattern `{}` of the drop box `{place}`: change one of them",
                spec.files()
            ));
        }
        recipients(&rule.to, &files)
    }

    fn directory_of(&self, rule: &BoxRule, files: &PathPattern) -> Result<String, RouteRefusal> {
        let directory = rule.directory.as_deref().unwrap_or_else(|| rule.name.as_str());
        let field = if rule.directory.is_some() { "directory" } else { "name" };
        // What only a written `directory` can be, and what the name of the box may be, too.
        let refuse = |text: String| Err(RouteRefusal::new("directory", text));
        let refuse_named = |text: String| Err(RouteRefusal::new(field, text));
        if directory == QUEUE_ITSELF {
            let has_extension = rule.files.as_deref().is_some_and(|files| {
                files.rsplit_once('.').is_some_and(|(_, end)| !end.is_empty() && !end.contains('*'))
            });
            if !has_extension {
                return refuse("the queue itself has other files: give `files` an extension, such as `files: \"*.yaml\"`".to_owned());
            }
            if files.stars(CALENDAR).is_some() {
                return refuse(format!(
                    "`files` matches `{CALENDAR}`, which is the queue's own: choose another pattern"
                ));
            }
        } else if let Err(error) = Name::new(directory) {
            return refuse(format!("{error}: name one directory below the queue, without `/`"));
        }
        if RESERVED.iter().any(|known| known.eq_ignore_ascii_case(directory)) {
            return refuse_named(format!(
                "`{directory}/` holds other files of the queue: choose another directory"
            ));
        }
        let is_its =
            |it: &&BoxSpec| it.directory().unwrap_or(QUEUE_ITSELF).eq_ignore_ascii_case(directory);
        match self.boxes.iter().find(is_its) {
            Some(other) => refuse_named(format!(
                "`{directory}/` is the directory of the drop box `{}`: each has its own",
                other.name()
            )),
            None => Ok(directory.to_owned()),
        }
    }

    /// The directories, below the queue, of the files that become messages of a type.
    pub fn directories_of(&self, kind: &str, rules: &[RouteRule]) -> BTreeSet<String> {
        let places = rules.iter().chain(&self.own_routes).filter(|rule| rule.kind.as_str() == kind);
        let names = places.filter_map(|rule| Some(rule.pattern.split_once('/')?.0));
        let specs = names.filter_map(|name| self.get(name));
        specs.map(|spec| spec.directory().unwrap_or(QUEUE_ITSELF).to_owned()).collect()
    }
}

fn file_pattern(rule: &BoxRule) -> Result<PathPattern, RouteRefusal> {
    let files = rule.files.as_deref().unwrap_or("*");
    let refuse = |text: String| Err(RouteRefusal::new("files", text));
    if files.is_empty() || files.len() > PATTERN_BYTES_MAX {
        return refuse(format!("has {} bytes: write 1 to {PATTERN_BYTES_MAX}", files.len()));
    }
    if files.contains('/') || files.contains(char::is_control) {
        return refuse(format!(
            "{files:?} is not a pattern of file names: write one without `/`, such as `*.yaml`"
        ));
    }
    if is_temporary_file(files) {
        return refuse(format!("no file named `{files}` is read: its writer may still write it"));
    }
    Ok(PathPattern::new(files))
}

fn own_route(rule: &BoxRule, files: &PathPattern) -> Result<Option<RouteRule>, RouteRefusal> {
    match (&rule.kind, rule.to.is_empty()) {
        (None, true) => Ok(None),
        (None, false) => {
            Err(RouteRefusal::new("type", "is missing: say which type the messages to `to` have"))
        }
        (Some(kind), true) => Err(RouteRefusal::new(
            "to",
            format!("is empty: name the mailboxes that get messages of type `{kind}`"),
        )),
        (Some(kind), false) => {
            recipients(&rule.to, files)?;
            let pattern = format!("{}/{files}", rule.name);
            Ok(Some(RouteRule { pattern, to: rule.to.clone(), kind: kind.clone() }))
        }
    }
}

/// Whether each recipient can be the name of a mailbox, no matter what the stars stand for.
fn recipients(to: &[String], files: &PathPattern) -> Result<(), RouteRefusal> {
    if to.is_empty() {
        return Err(RouteRefusal::new("to", "has no recipient: name a mailbox"));
    }
    for template in to {
        let stars = vec!["x"; files.stars_count()];
        let name = Name::new(filled(template, &stars)).map_err(|error| {
            let text = format!(
                "`{template}` cannot be a mailbox ({error}): write a name, or `{{1}}` for what the first `*` matches"
            );
            RouteRefusal::new("to", text)
        })?;
        ReservedName::refuse_mailbox(&name)
            .map_err(|reserved| RouteRefusal::new("to", reserved.to_string()))?;
    }
    Ok(())
}

/// Whether some text matches both patterns.
pub(super) fn overlap(one: &PathPattern, other: &PathPattern) -> bool {
    let (ours, theirs) = (one.to_string(), other.to_string());
    let (ours, theirs) = (ours.as_bytes(), theirs.as_bytes());
    // `row[j]`: whether some text matches both `ours[i..]` and `theirs[j..]`.
    let mut below = vec![false; theirs.len() + 1];
    for i in (0..=ours.len()).rev() {
        let mut row = vec![false; theirs.len() + 1];
        for j in (0..=theirs.len()).rev() {
            let (a, b) = (ours.get(i), theirs.get(j));
            row[j] = match (a, b) {
                (None, None) => true,
                (Some(b'*'), _) if below[j] => true,
                (_, Some(b'*')) if row[j + 1] => true,
                (Some(b'*'), Some(_)) => row[j + 1],
                (Some(_), Some(b'*')) => below[j],
                (Some(a), Some(b)) => a == b && below[j + 1],
                (Some(_), None) | (None, Some(_)) => false,
            };
        }
        below = row;
    }
    below[0]
}
