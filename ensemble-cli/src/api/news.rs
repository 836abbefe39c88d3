//! The subjects of subscriptions: mail, states of agents, requests, or the event log.
//!
//! | `to` | first | then |
//! |---|---|---|
//! | `mail` | messages that wait in `mailbox` | each message that arrives |
//! | `states` | all agents | an agent whose row has changed |
//! | `requests` | all requests | a request that is new or has another state |
//! | `events` | nothing | each record, those of `types` only |
//!
//! inotify wakes the sleeper. It relies on what it reads and not on the event, so a lost event only costs time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ensemble_app::asking::requests;
use ensemble_app::mail::message_view::MessageView;
use ensemble_app::overview::list_agents;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::durable::make_directory;
use ensemble_core::event_log::Follower;
use ensemble_core::message::fields::with_known_names;
use ensemble_core::message::{ConfigDuration, Name};
use ensemble_core::spool::State;
use ensemble_core::watch::Waiter;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::context::{Context, Failure, Outcome};

const MESSAGES_MAX: usize = 10_000;
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
const TIMEOUT_FORM: &str = "pass a number of seconds up to 86400, or a duration such as 5m";
const PARAMETERS: [&str; 5] = ["to", "mailbox", "types", "where", "timeout_seconds"];

#[derive(Debug)]
pub(super) struct SubscribeParams {
    to: NewsSubject,
    mailbox: Option<Name>,
    types: Vec<String>,
    has: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewsSubject {
    Mail,
    States,
    Requests,
    Events,
}

const SUBJECTS: [(&str, NewsSubject); 4] = [
    ("mail", NewsSubject::Mail),
    ("states", NewsSubject::States),
    ("requests", NewsSubject::Requests),
    ("events", NewsSubject::Events),
];

impl SubscribeParams {
    pub(super) fn read(params: &Map<String, Value>) -> Outcome<Self> {
        match Self::read_all(params)? {
            (_, Some(_)) => Err(Failure::usage("`timeout_seconds` is for `wait`")),
            (wanted, None) => Ok(wanted),
        }
    }

    pub(super) fn read_with_timeout(params: &Map<String, Value>) -> Outcome<(Self, Duration)> {
        match Self::read_all(params)? {
            (wanted, Some(patience)) => Ok((wanted, patience)),
            _ => Err(Failure::usage(format!("`timeout_seconds` is missing: {TIMEOUT_FORM}"))),
        }
    }

    /// Reads all parameters, or says all that is wrong with them.
    fn read_all(params: &Map<String, Value>) -> Outcome<(Self, Option<Duration>)> {
        let (mut subject, mut timeout, mut faults) = (None, None, Vec::new());
        let mut wanted =
            Self { to: NewsSubject::Mail, mailbox: None, types: Vec::new(), has: Map::new() };
        let params = with_known_names(params, &|name| PARAMETERS.contains(&name));
        for (name, value) in params.iter().filter(|(_, value)| !value.is_null() && *value != "") {
            let text = value.as_str().map(str::trim);
            let fault = match (&**name, value) {
                ("to", _) => {
                    let known = SUBJECTS
                        .iter()
                        .find(|(word, _)| text.is_some_and(|text| text.eq_ignore_ascii_case(word)));
                    subject = known.map(|(_, subject)| *subject);
                    subject
                        .is_none()
                        .then_some("is not mail, states, requests or events".to_owned())
                }
                ("mailbox", _) => {
                    let name = text.unwrap_or_default().parse::<Name>();
                    name.map(|name| wanted.mailbox = Some(name)).err().map(|it| it.to_string())
                }
                ("types", Value::String(listed)) => {
                    wanted.types.extend(listed.split(',').map(|it| it.trim().to_owned()));
                    None
                }
                ("types", Value::Array(all)) if all.iter().all(Value::is_string) => {
                    wanted.types.extend(all.iter().filter_map(Value::as_str).map(str::to_owned));
                    None
                }
                ("types", _) => Some("is not a list of texts".to_owned()),
                ("where", Value::Object(members)) => {
                    wanted.has.clone_from(members);
                    None
                }
                ("where", _) => Some("is not an object".to_owned()),
                ("timeout_seconds", _) => {
                    timeout = timeout_of(value);
                    timeout.is_none().then(|| TIMEOUT_FORM.to_owned())
                }
                _ => Some(format!("is not a parameter (there are {})", PARAMETERS.join(", "))),
            };
            faults.extend(fault.map(|fault| format!("{name}: {fault}")));
        }
        match (subject, &faults[..]) {
            (Some(to), []) => Ok((Self { to, ..wanted }, timeout)),
            (None, []) => {
                Err(Failure::usage("to: is missing: pass mail, states, requests or events"))
            }
            (_, faults) => Err(Failure::usage(faults.join("; "))),
        }
    }

    /// Listens from now on, also to files in `wake`.
    pub(super) fn open(self, context: Context, wake: &Path) -> Outcome<NewsSource> {
        let queue = ProjectQueue::open(&context)?;
        let project = context.project()?;
        let logs = project.logs();
        make_directory(&logs)?;
        let mailbox = match self.to {
            NewsSubject::Mail => {
                let own = || context.agent_required().and_then(|_| context.own_mailbox());
                Some(self.mailbox.map_or_else(own, Ok)?)
            }
            _ => None,
        };
        let mut dirs = vec![logs.clone(), project.state.clone(), wake.to_owned()];
        dirs.push(project.queue.join("requests"));
        if let Some(mailbox) = &mailbox {
            // Fails for a mailbox that is not there.
            queue.unfinished(mailbox, 1)?;
            let root = project.queue.join("mailbox").join(mailbox.as_str());
            dirs.extend(["new", "front", "cur"].map(|below| root.join(below)));
        }
        dirs.retain(|dir| dir.is_dir());
        let waiter = Waiter::for_logs(&dirs);
        let follower = Follower::from_end(&logs)?;
        let follower = if self.types.is_empty() { follower } else { follower.only(self.types) };
        Ok(NewsSource {
            subject: self.to,
            mailbox,
            has: self.has,
            context,
            queue,
            waiter,
            follower,
            known: BTreeMap::new(),
        })
    }
}

fn timeout_of(value: &Value) -> Option<Duration> {
    let timeout = ConfigDuration::deserialize(value).ok().map(Duration::from);
    timeout.filter(|timeout| *timeout <= TIMEOUT_MAX)
}

pub(super) struct NewsSource {
    subject: NewsSubject,
    mailbox: Option<Name>,
    has: Map<String, Value>,
    context: Context,
    queue: ProjectQueue,
    waiter: Waiter,
    follower: Follower,
    /// The last reported state, by id.
    known: BTreeMap<String, Value>,
}

impl NewsSource {
    pub(super) fn sleep(&self, patience: Duration) {
        self.waiter.wait(patience);
    }

    pub(super) fn poll_news(&mut self) -> Outcome<Vec<Value>> {
        let news = match self.subject {
            NewsSubject::Events => {
                self.follower.poll()?.iter().map(|record| json!(record)).collect()
            }
            NewsSubject::Mail => self.mail()?,
            NewsSubject::States => {
                let rows = list_agents(&self.context)?;
                self.changed(
                    rows.into_iter().map(|(name, row)| (name.to_string(), row.clone(), row)),
                )
            }
            NewsSubject::Requests => {
                let (entries, _) = requests(&self.context, &self.queue)?.list()?;
                let row = |entry: &ensemble_core::requests::RequestEntry| {
                    (entry.request.request_id.to_string(), json!(entry.state()), entry.to_json())
                };
                self.changed(entries.iter().map(row))
            }
        };
        let is_wanted =
            |news: &Value| self.has.iter().all(|(key, value)| news.get(key) == Some(value));
        Ok(news.into_iter().filter(is_wanted).collect())
    }

    fn mail(&mut self) -> Outcome<Vec<Value>> {
        let Some(mailbox) = &self.mailbox else { return Ok(Vec::new()) };
        let found = self.queue.unfinished(mailbox, MESSAGES_MAX)?;
        let waiting = found.iter().filter(|found| matches!(found.state, State::Queued { .. }));
        let (mut now, mut news) = (BTreeMap::new(), Vec::new());
        for found in waiting {
            let delivery = format!("{} {}", found.id, json!(found.state));
            // Only what is new is read.
            if !self.known.contains_key(&delivery) {
                news.push(
                    MessageView::listed(found, self.queue.peek(mailbox, &found.id)).to_json(),
                );
            }
            now.insert(delivery, Value::Null);
        }
        self.known = now;
        Ok(news)
    }

    /// Those whose state is new, of all that there are.
    fn changed(&mut self, rows: impl Iterator<Item = (String, Value, Value)>) -> Vec<Value> {
        let mut now = BTreeMap::new();
        let mut news = Vec::new();
        for (id, state, row) in rows {
            if self.known.get(&id) != Some(&state) {
                news.push(row);
            }
            now.insert(id, state);
        }
        self.known = now;
        news
    }
}
