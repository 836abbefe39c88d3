//! A project of ensemble-claude, as it is on the disk, and the configuration that it becomes.
//!
//! ```text
//! what is there                               becomes
//! CONDUCTOR_PANE, DISPATCH_PANE, WORKER_n_PANE  an agent with its role and pane
//! WORKERS_SESSION                             the team's session
//! queue/reports/<task>.yaml                   a route behind those that are built in
//! queue/reviews/, queue/conductor/            drop boxes with their routes
//! queue/completion-summary.yaml               a drop box: the queue itself, for that file
//! everything else                             left as it is, and named
//! ```
//!
//! Only `panes.env` is read. It is never run, although its writer meant it for `source`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::text::plural;
use ensemble_core::durable::{Dir, read_file};
use ensemble_core::message::Name;
use serde::Serialize;
use serde_json::json;

const PID_BYTES_MAX: usize = 64;

pub(super) const NAME: &str = "ensemble-claude";
const PANES_FILE: &str = "panes.env";
const PANES_BYTES_MAX: usize = 64 * 1024;
/// The watcher of ensemble-claude writes its process id here.
const PID_FILE: &str = "inbox_watcher.pid";
const PROVIDER: &str = "claude";

/// Drop boxes beside the built-in ones: name, directory, files, recipient, type, and what the files are.
const BOXES: [(&str, &str, &str, &str, &str, &str); 3] = [
    ("conductor", "conductor", "*.yaml", "dispatch", "dispatch.instruction", "instructions"),
    ("reviews", "reviews", "*.yaml", "dispatch", "report.review", "reviews"),
    ("summary", ".", "completion-summary.yaml", "conductor", "report.summary", "summaries"),
];
/// Routes: pattern, recipient, type. The last one takes `<task>.yaml`, so the default ones come before it.
const ROUTES: [(&str, &str, &str); 5] = [
    ("reports/completion-summary.yaml", "conductor", "report.summary"),
    ("reports/escalation-*.yaml", "conductor", "report.escalation"),
    ("reports/*-review.yaml", "dispatch", "report.review"),
    ("reports/*-completed.yaml", "dispatch", "report.completed"),
    ("reports/*.yaml", "dispatch", "report.completed"),
];
const LEFT: [(&str, &str); 5] = [
    ("queue/processing", "tasks that its own queue has claimed"),
    (".ensemble/config.yaml", "its own settings; ours are in ensemble.yaml"),
    ("status/dashboard.md", "`ensemble` shows the team live"),
    (".ensemble/logs", "its records; a last line names our session"),
    (".claude/agents", "Claude Code reads them as before"),
];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UpstreamAgent {
    pub(super) name: Name,
    pub(super) role: &'static str,
    pub(super) pane: String,
    /// Whether tmux has the pane now; nothing if no server could be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lives: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UpstreamRemark {
    pub(super) what: String,
    pub(super) why: String,
}

#[derive(Debug, Default)]
pub(super) struct UpstreamProject {
    pub(super) agents: Vec<UpstreamAgent>,
    pub(super) session: Option<String>,
    /// The socket of the tmux server that has at least one of the panes.
    pub(super) socket: Option<PathBuf>,
    pub(super) boxes: Vec<UpstreamRemark>,
    pub(super) left: Vec<UpstreamRemark>,
    pub(super) watcher: Option<u32>,
}

impl UpstreamProject {
    pub(super) fn read(root: &Path) -> Outcome<Self> {
        let state = root.join(".ensemble");
        let panes = match Dir::open(&state) {
            Ok(dir) => dir.read(PANES_FILE, PANES_BYTES_MAX)?,
            Err(_) => None,
        };
        if panes.is_none() && !root.join("queue/conductor").is_dir() {
            let text = format!(
                "{} is not a project of {NAME}: it has neither .ensemble/{PANES_FILE} nor queue/conductor/",
                root.display()
            );
            return Err(Failure::refused(text)
                .with_hint("name its directory, `ensemble init` alone makes a new project"));
        }
        let mut found = Self::default();
        match panes {
            Some(content) => found.take_panes(&String::from_utf8_lossy(&content)),
            None => found
                .leave(format!(".ensemble/{PANES_FILE}"), "is not there: no agent is taken over"),
        }
        found.look_for_panes();
        found.count_files(root);
        for (place, why) in LEFT.into_iter().filter(|(place, _)| root.join(place).exists()) {
            found.leave(place, why);
        }
        found.watcher = running(&state.join(PID_FILE));
        Ok(found)
    }

    fn leave(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left.push(UpstreamRemark { what: what.into(), why: why.into() });
    }

    pub(super) fn leave_answered(&mut self, paths: Vec<String>) {
        for path in paths {
            self.leave(format!("queue/{path}"), "was dealt with: not routed again");
        }
    }

    fn take_panes(&mut self, text: &str) {
        let assignments = text.lines().filter_map(|line| {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
            Some((key.trim(), value.trim().trim_matches(['"', '\''])))
        });
        for (key, value) in assignments {
            match (key, agent_of(key)) {
                (_, Some((name, role))) => self.take_agent(key, name, role, value),
                ("WORKERS_SESSION", _) if is_session(value) => {
                    self.session = Some(value.to_owned())
                }
                ("CONDUCTOR_SESSION" | "WORKERS_SESSION", _) => {
                    self.leave(format!("{key}={value}"), "its panes are found by their ids");
                }
                ("WORKER_AREA_PANE", _) => {
                    self.leave(format!("{key}={value}"), "a place for workers, no agent")
                }
                ("DASHBOARD_PANE" | "MODE_VIZ_PANE", _) => {
                    self.leave(format!("{key}={value}"), "a display, no agent");
                }
                _ => self.leave(format!("{key}={value}"), "has no meaning here"),
            }
        }
        self.agents.sort_by_key(|agent| rank(&agent.name));
    }

    fn take_agent(&mut self, key: &str, name: Name, role: &'static str, pane: &str) {
        let is_pane = pane.strip_prefix('%').is_some_and(|id| {
            !id.is_empty() && id.len() <= 9 && id.bytes().all(|byte| byte.is_ascii_digit())
        });
        if !is_pane {
            return self.leave(format!("{key}={pane}"), "is not the id of a pane, such as %3");
        }
        if let Some(other) = self.agents.iter().find(|it| it.pane == pane && it.name != name) {
            let why = format!("is the pane of {}", other.name);
            return self.leave(format!("{key}={pane}"), why);
        }
        // As in a shell, the last assignment counts.
        self.agents.retain(|it| it.name != name);
        self.agents.push(UpstreamAgent { name, role, pane: pane.to_owned(), lives: None });
    }

    fn look_for_panes(&mut self) {
        let Ok(server) = ensemble_app::agent_panes::nearest_server(None) else { return };
        let Ok(panes) = server.panes() else { return };
        for agent in &mut self.agents {
            let lives = panes.iter().any(|pane| pane.id == agent.pane && !pane.dead);
            agent.lives = Some(lives);
        }
        if self.agents.iter().any(|agent| agent.lives == Some(true)) {
            self.socket = Some(server.socket().to_owned());
        }
    }

    fn count_files(&mut self, root: &Path) {
        let queue = root.join("queue");
        let built_in = [
            ("reports", "*.yaml", "reports"),
            ("tasks", "*-task.yaml", "tasks"),
            ("ack", "*.ack", "acks"),
        ];
        let further =
            BOXES.iter().map(|(_, directory, files, .., noun)| (*directory, *files, *noun));
        for (directory, files, noun) in built_in.into_iter().chain(further) {
            let entries = std::fs::read_dir(queue.join(directory)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let (start, end) = files.split_once('*').unwrap_or((files, ""));
            let is_it = |name: &String| {
                !name.starts_with('.') && name.starts_with(start) && name.ends_with(end)
            };
            let count = names.filter(is_it).count();
            let what = if directory == "." {
                format!("queue/{files}")
            } else {
                format!("queue/{directory}/")
            };
            let file = plural(count as u64, "file");
            self.boxes.push(UpstreamRemark { what, why: format!("{noun}, {file} now") });
        }
    }

    pub(super) fn configuration(&self) -> String {
        let quoted = |text: &str| json!(text).to_string();
        let mut text = String::from(
            "# yaml-language-server: $schema=.ensemble/ensemble.schema.json\n\
             # Taken over from ensemble-claude by `ensemble init --from ensemble-claude`. Change it as you like.\n",
        );
        if self.session.is_some() || self.socket.is_some() {
            text += "\nteam:\n";
            if let Some(session) = &self.session {
                let _ = writeln!(text, "  session: {}", quoted(session));
            }
            if let Some(socket) = &self.socket {
                let _ = writeln!(text, "  socket: {}", quoted(&socket.to_string_lossy()));
            }
        }
        if !self.agents.is_empty() {
            text += "\n# The panes are those of .ensemble/panes.env: `ensemble up` takes them in and starts nothing there.\nagents:\n";
            self.agents.iter().for_each(|agent| text += &agent.line());
        }
        text +=
            "\n# Places beside reports/, tasks/ and ack/ that the watcher looks at.\ndrop_boxes:\n";
        (0..BOXES.len()).for_each(|index| text += &box_line(index));
        text += "\n# The first four are the default ones. They come before the last one, which takes every other report.\nroutes:\n";
        for (pattern, to, kind) in ROUTES {
            let _ = writeln!(text, "  - {{match: \"{pattern}\", to: [{to}], type: {kind}}}");
        }
        text
    }

    pub(super) fn lacking(&self, config: &ensemble_project::ProjectConfig) -> Vec<String> {
        let agents = self.agents.iter().filter(|agent| {
            config.agents.get(&agent.name).and_then(|it| it.pane.as_ref()) != Some(&agent.pane)
        });
        let has_box = |directory: &str| {
            config
                .drop_boxes
                .iter()
                .any(|it| it.directory.as_deref().unwrap_or_else(|| it.name.as_str()) == directory)
        };
        let boxes = BOXES.iter().enumerate().filter(|(_, it)| !has_box(it.1));
        let (pattern, to, kind) = ROUTES[ROUTES.len() - 1];
        let has_route = config.routes.iter().any(|route| route.pattern == pattern);
        let route = format!("routes: {{match: \"{pattern}\", to: [{to}], type: {kind}}}");
        agents
            .map(|agent| format!("agents: {}", agent.line().trim()))
            .chain(boxes.map(|(index, _)| {
                format!("drop_boxes: {}", box_line(index).trim().trim_start_matches("- "))
            }))
            .chain((!has_route).then_some(route))
            .collect()
    }
}

impl UpstreamAgent {
    fn line(&self) -> String {
        let Self { name, role, pane, .. } = self;
        format!("  {name}: {{role: {role}, provider: {PROVIDER}, pane: \"{pane}\"}}\n")
    }
}

fn box_line(index: usize) -> String {
    let (name, directory, files, to, kind, _) = BOXES[index];
    let place =
        if name == directory { String::new() } else { format!("directory: \"{directory}\", ") };
    format!("  - {{name: {name}, {place}files: \"{files}\", to: [{to}], type: {kind}}}\n")
}

fn agent_of(key: &str) -> Option<(Name, &'static str)> {
    let (name, role) = match key.strip_suffix("_PANE")? {
        "CONDUCTOR" => ("conductor".to_owned(), "conductor"),
        "DISPATCH" => ("dispatch".to_owned(), "dispatch"),
        worker => {
            let number: u32 = worker.strip_prefix("WORKER_")?.parse().ok()?;
            (format!("worker-{number}"), "worker")
        }
    };
    Some((Name::new(name).ok()?, role))
}

fn rank(name: &Name) -> (u8, u32) {
    match name.as_str() {
        "conductor" => (0, 0),
        "dispatch" => (1, 0),
        worker => (2, worker.rsplit('-').next().and_then(|it| it.parse().ok()).unwrap_or(u32::MAX)),
    }
}

fn is_session(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_control() || matches!(c, ':' | '.'))
}

/// The process that a file names, if it is a shell script of that name.
fn running(file: &Path) -> Option<u32> {
    let pid: u32 = {
        let content = read_file(file, PID_BYTES_MAX).ok()??;
        String::from_utf8(content).ok()?.trim().parse().ok()?
    };
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    String::from_utf8_lossy(&line).contains("inbox_watcher").then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(panes: &str) -> UpstreamProject {
        let mut found = UpstreamProject::default();
        found.take_panes(panes);
        found
    }

    #[test]
    fn the_last_assignment_of_an_agent_counts_and_no_pane_has_two() {
        let found = of(
            "WORKER_10_PANE=%9\nexport WORKER_2_PANE=\"%5\"\nCONDUCTOR_PANE=%0\nDISPATCH_PANE=%0\n\
             WORKER_2_PANE=%6\nWORKER_1_PANE=main.1\n# WORKER_3_PANE=%7\nEVIL=$(touch x)\nWORKER_x_PANE=%8\n",
        );
        let agents: Vec<String> =
            found.agents.iter().map(|it| format!("{} {}", it.name, it.pane)).collect();
        assert_eq!(agents, ["conductor %0", "worker-2 %6", "worker-10 %9"]);
        let left: Vec<&str> = found.left.iter().map(|it| it.what.as_str()).collect();
        let expected =
            ["DISPATCH_PANE=%0", "WORKER_1_PANE=main.1", "EVIL=$(touch x)", "WORKER_x_PANE=%8"];
        assert_eq!(left, expected);
        assert_eq!(found.left[0].why, "is the pane of conductor");
    }

    #[test]
    fn its_configuration_is_one_and_lacks_nothing() {
        let mut found = of("WORKERS_SESSION=my-workers\nCONDUCTOR_PANE=%0\nWORKER_1_PANE=%3\n");
        found.socket = Some("/tmp/a \"quoted\" one".into());
        let text = found.configuration();
        let config =
            ensemble_project::ProjectConfig::parse(&text, Path::new("ensemble.yaml")).unwrap();
        assert_eq!(config.team.socket, found.socket);
        assert_eq!(config.team.session.as_deref(), Some("my-workers"));
        assert_eq!(found.lacking(&config), Vec::<String>::new());
        let other = ensemble_project::ProjectConfig::default();
        assert_eq!(found.lacking(&other).len(), 2 + BOXES.len() + 1);
    }
}
