//! Runs what the pages show, exactly as it is written.
//!
//! Each `console` block of each page runs in order, in one `sh` a page that starts in an empty directory. The shell
//! has `ensemble` and `examples/worker.sh` on its PATH and runs inside a separate tmux server. It also has programs
//! named `claude`, `codex` … (`agent.sh`), which are started as the page says.
//!
//! | in the page | means |
//! |---|---|
//! | `$ command`, `> more`, a `\` at the end | a command; it must end with exit code 0 |
//! | `# exit code 1` after it | it must exit with that code |
//! | lines below it | what it prints, on stdout or stderr; without any, it prints nothing |
//! | `…` alone, or within a line | any lines, or any characters |
//! | `3s`, `04:45:12`, `019aa8f2-6a2e`, two spaces | any time, short id, or gap between columns |
//! | a UUID, `%3` | an id: any of its kind where it appears first, and that same one from there on |
//! | `<!-- each in its own terminal -->` before a block | its commands start agents, each in a new window; all of them must join |
//! | `<!-- file: NAME -->` before a block | the block is written to this file |
//! | `<!-- not run: REASON -->` before a block | it is not run; `NOT_RUN` counts these |
//!
//! `trycmd` also runs console blocks, but each of its commands is a process without a shell. It has
//! no `cd`, pipe, `&` or glob. An id that one command prints cannot be given to the next.

mod page;
mod shell;
mod together;

use std::path::{Path, PathBuf};

use ensemble_tmux::provider::Profiles;
use page::{Shown, Step, steps};
use shell::Shell;

use crate::bed::{Bed, objects};
#[cfg(feature = "nats")]
use crate::nats_server::free_port;

/// The blocks that no test runs, by page. A block is added here only with a reason in the page.
const NOT_RUN: [(&str, usize); 6] = [
    ("CONTRIBUTING.md", 2),
    ("README.md", 2),
    ("docs/evidence/reliability.md", 1),
    ("docs/guides/embedding.md", 2),
    ("docs/guides/worktrees.md", 1),
    ("docs/operating/install.md", 1),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages of a directory and of those below it, by their paths below the repository.
fn pages_below(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(directory)).unwrap() {
        let path = directory.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            pages_below(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

fn pages() -> Vec<String> {
    let mut found = vec!["CONTRIBUTING.md".to_owned(), "README.md".to_owned()];
    for directory in ["docs", "examples"] {
        pages_below(Path::new(directory), &mut found);
    }
    found.sort();
    found
}

fn read(page: &str) -> Vec<Step> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    steps(&text).unwrap_or_else(|error| panic!("{page}:{error}"))
}

fn is_command(step: &Step) -> bool {
    matches!(step, Step::Run(_) | Step::Open(_))
}

#[track_caller]
fn run(page: &str) {
    run_with(page, str::to_owned);
}

#[track_caller]
fn run_with(page: &str, change: impl Fn(&str) -> String) {
    let steps = read(page);
    assert!(steps.iter().any(is_command), "{page} shows no command");
    let mut shell = Shell::start();
    for step in &steps {
        match step {
            Step::File { name, content } => shell.write(name, &change(content)),
            Step::Run(command) => {
                let command = &Shown { command: change(&command.command), ..command.clone() };
                let outcome = shell.run(command);
                assert!(outcome.is_ok(), "{page}:{}: {}", command.line, outcome.unwrap_err());
            }
            Step::Open(commands) => shell.open(commands),
            Step::NotRun(_) => {}
        }
    }
}

#[test]
fn blocks_that_are_not_run_are_counted_and_have_a_reason() {
    let mut counted = Vec::new();
    for page in pages() {
        let reasons: Vec<String> = read(&page)
            .into_iter()
            .filter_map(|step| match step {
                Step::NotRun(reason) => Some(reason),
                _ => None,
            })
            .collect();
        for reason in &reasons {
            println!("{page}: not run: {reason}");
            assert!(reason.split_whitespace().count() >= 3, "{page}: `{reason}` is no reason");
        }
        if !reasons.is_empty() {
            counted.push((page, reasons.len()));
        }
    }
    let expected: Vec<(String, usize)> =
        NOT_RUN.iter().filter(|(_, n)| *n > 0).map(|(page, n)| ((*page).to_owned(), *n)).collect();
    assert_eq!(counted, expected);
}

/// Words that run by themselves besides the places of commands.
const SHORT: [&str; 7] = ["help", "hook", "mcp", "projects", "recall", "tmux-status", "watch"];

#[test]
fn pages_name_only_commands_that_exist() {
    let rows = objects(&Bed::empty().ok("admin schema commands"));
    let places: Vec<&str> = rows.iter().map(|row| row["place"].as_str().unwrap()).collect();
    let is_word = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    let is_known = |words: &[&str]| {
        let is_group =
            words.len() == 1 && places.iter().any(|at| at.starts_with(&format!("{} ", words[0])));
        let is_place =
            |length| words.get(..length).is_some_and(|it| places.contains(&&*it.join(" ")));
        is_group || SHORT.contains(&words[0]) || (1..=3).any(is_place)
    };
    let (mut unknown, mut count) = (Vec::new(), 0);
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        for named in text.replace('\n', " ").split("`ensemble ").skip(1) {
            let line = named.split('`').next().unwrap();
            let words: Vec<&str> = line.split(' ').take_while(is_word).collect();
            count += words.len().min(1);
            if !words.is_empty() && !words[0].is_empty() && !is_known(&words) {
                unknown.push(format!("{page}: ensemble {line}"));
            }
        }
    }
    assert!(count > 100 && unknown.is_empty(), "{count}: {unknown:?}");
}

#[test]
fn a_command_that_prints_shows_more_than_that() {
    let is_bare = |step: &Step| matches!(step, Step::Run(shown) if shown.output == ["…"]);
    let bare = pages().into_iter().filter(|page| read(page).iter().any(is_bare));
    assert_eq!(bare.collect::<Vec<_>>(), [""; 0], "each shows `…` alone for a command");
}

#[test]
fn the_first_rust_example_is_the_one_that_the_crate_tests() {
    let text = |page: &str| std::fs::read_to_string(root().join(page)).unwrap();
    let lines = text("ensemble-core/src/lib.rs").replace("//! ", "");
    let start = lines.find("let queue").unwrap();
    let end = lines.find("# Ok::<()").unwrap();
    for page in ["README.md", "ensemble-core/README.md", "docs/guides/embedding.md"] {
        assert!(text(page).contains(&lines[start..end]), "{page} has another first example");
    }
}

#[test]
fn the_tables_of_agents_name_each_one_that_was_seen_working() {
    let profiles = Profiles::embedded().unwrap();
    let is_seen = |name: &&str| profiles.get(name).unwrap().seen_version().is_some();
    let seen: Vec<&str> = profiles.names().filter(is_seen).collect();
    assert!(seen.len() > 5, "{seen:?}");
    for page in ["README.md", "docs/start/running-agents.md", "docs/guides/ways-in.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap().to_lowercase();
        let rows: String = text.lines().filter(|line| line.starts_with('|')).collect();
        for name in &seen {
            assert!(rows.contains(name), "no table of {page} has {name}");
        }
    }
}

const ONE_PROJECT: &str = "docs/one-project.md";

/// Makes a test of each page that shows commands.
macro_rules! pages_are_run {
    ($($(#[$is:meta])* $test:ident: $run:ident($page:literal),)*) => {
        $(#[test]
        $(#[$is])*
        fn $test() {
            $run($page);
        })*

        #[test]
        fn every_page_with_commands_is_run() {
            let shows_commands = |page: &String| read(page).iter().any(is_command);
            let with_commands: Vec<String> = pages().into_iter().filter(shows_commands).collect();
            assert_eq!(with_commands, [$($page),*]);
        }
    };
}

pages_are_run! {
    the_readme_works_as_it_is_written: run("README.md"),
    the_guide_to_the_api_works_as_it_is_written: run("docs/guides/api.md"),
    the_guide_to_the_board_works_as_it_is_written: run("docs/guides/board.md"),
    the_guide_to_dispatch_works_as_it_is_written: run("docs/guides/dispatch.md"),
    the_guide_to_drop_boxes_works_as_it_is_written: run("docs/guides/drop-boxes.md"),
    #[cfg(feature = "nats")]
    the_guide_to_hosts_works_as_it_is_written: run_with_servers("docs/guides/hosts.md"),
    the_guide_to_mail_works_as_it_is_written: run("docs/guides/mail.md"),
    the_guide_to_mcp_works_as_it_is_written: run("docs/guides/mcp.md"),
    the_guide_to_other_projects_works_as_it_is_written: run("docs/guides/other-projects.md"),
    the_guide_to_plans_and_shutdown_works_as_it_is_written: run("docs/guides/plans-and-shutdown.md"),
    the_guide_to_reports_works_as_it_is_written: run("docs/guides/reports.md"),
    the_guide_to_steps_works_as_it_is_written: run("docs/guides/steps.md"),
    the_guide_to_supervisors_works_as_it_is_written: run("docs/guides/supervisors.md"),
    the_guide_to_traces_works_as_it_is_written: run("docs/guides/traces.md"),
    the_guide_to_worktrees_works_as_it_is_written: run("docs/guides/worktrees.md"),
    the_page_of_one_project_works_as_it_is_written: run("docs/one-project.md"),
    #[ignore = "long"]
    the_page_of_running_and_repairing_works_as_it_is_written: run("docs/operating/running.md"),
    the_first_five_minutes_work_as_they_are_written: run("docs/start/five-minutes.md"),
    the_page_of_running_agents_works_as_it_is_written: run("docs/start/running-agents.md"),
    the_page_of_a_team_works_as_it_is_written: run("docs/start/team.md"),
}

/// Ports that pages name.
#[cfg(feature = "nats")]
const PORTS: [&str; 3] = ["4222", "4223", "7422"];

/// Runs a page whose servers have free ports in the place of those that it names.
#[cfg(feature = "nats")]
#[track_caller]
fn run_with_servers(page: &str) {
    let free = PORTS.map(|port| (port, format!("<{port}>"), free_port().to_string()));
    run_with(page, |text| {
        // In two steps, because a free port may contain one that the page names.
        let marked =
            free.iter().fold(text.to_owned(), |text, (port, mark, _)| text.replace(port, mark));
        free.iter().fold(marked, |text, (_, mark, free)| text.replace(mark, free))
    });
}
