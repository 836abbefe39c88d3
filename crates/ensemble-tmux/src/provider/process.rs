//! What the system reveals about a process, if anything.

use super::profile::{is_shell, program_name};
use crate::sys::{self, stat};
use ensemble_core::pane::ForegroundProcess;

/// The fields of `/proc/PID/stat` behind the program's name, counted as in proc(5).
const FIRST_AFTER_NAME: usize = 3;
const PARENT: usize = 4;
const GROUP: usize = 5;
const SESSION: usize = 6;
/// The group in the foreground of the process's terminal; negative without one.
const FOREGROUND: usize = 8;
const START_TIME: usize = 22;
const EXIT_CODE: usize = 52;

const DESCENDANTS_MAX: usize = 64;
/// Programs that run a script named by an argument.
const INTERPRETERS: [&str; 8] = ["bun", "deno", "node", "nodejs", "perl", "python", "ruby", "tsx"];
/// Options of shells and interpreters that take a word which is not a script.
const OPTIONS_WITH_WORD: [&str; 11] = [
    "--rcfile",
    "--init-file",
    "-o",
    "-O",
    "+O",
    "-r",
    "--require",
    "--import",
    "--loader",
    "-W",
    "-X",
];
/// Options of interpreters that take the program itself.
const OPTIONS_WITH_PROGRAM: [&str; 4] = ["-c", "-e", "--eval", "--command"];
/// The program and the verb of a supervisor.
const SUPERVISOR: (&str, &str) = ("ensemble", "supervise");

/// How far up the tree to look for an ancestor.
const GENERATIONS_MAX: usize = 16;
/// How far up the whole line is followed: deeper than tools are nested, and an end in any case.
const LINE_MAX: usize = 128;

/// When process `pid` started, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    field(&stat(pid)?, START_TIME)
}

/// Whether process `pid` that began at `started` still runs: it has not ended, not even uncollected.
/// Without a start time, any process of that pid counts.
pub fn is_running(pid: u32, started: Option<u64>) -> bool {
    stat(pid).is_some_and(|stat| {
        let same = started.is_none_or(|started| field(&stat, START_TIME) == Some(started));
        same && !has_ended(&stat)
    })
}

/// How many generations `pid` is below `ancestor`; 0 if it is the same.
pub(super) fn generations_below(pid: u32, ancestor: u32) -> Option<usize> {
    std::iter::successors(Some(pid), |pid| parent_of(*pid))
        .take(GENERATIONS_MAX)
        .position(|pid| pid == ancestor)
}

pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    u32::try_from(field(&stat(pid)?, PARENT)?).ok()
}

/// Process `pid` and its descendants, nearest first, if the system reveals them.
pub(super) fn below(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() && found.len() < DESCENDANTS_MAX {
        let children = sys::children(found[next]);
        found.extend(children);
        next += 1;
    }
    found
}

/// The processes in the foreground of the terminal of `pid`, the first process of a pane. These are the members of
/// its foreground process group, the group's leader first. Ends the search after the first one that is `enough`.
/// Empty if the system does not reveal them: without `/proc`, without a terminal, or where it hides the processes of
/// other users.
pub(crate) fn foreground(
    pid: u32,
    enough: impl Fn(&ForegroundProcess) -> bool,
) -> Vec<ForegroundProcess> {
    let Some(first) = stat(pid) else { return Vec::new() };
    let number = |field_number| field(&first, field_number);
    let (Some(session), Some(group)) = (number(SESSION), number(FOREGROUND)) else {
        return Vec::new();
    };
    let terminal = TerminalGroup { session, group };
    // Usually the leader lives, and its program is the one that is looked for.
    let seeds = [u32::try_from(group).unwrap_or(pid), pid];
    let found = terminal.search(seeds.to_vec(), true, &enough);
    if !found.is_empty() && sys::lists_children() {
        return found;
    }
    terminal.search(sys::all().unwrap_or_default(), false, &enough)
}

struct TerminalGroup {
    session: u64,
    group: u64,
}

impl TerminalGroup {
    /// The members of the foreground group among `pids`, and with `descend` among what descends from them. Processes
    /// that have left the session are not followed.
    fn search(
        &self,
        mut pids: Vec<u32>,
        descend: bool,
        enough: impl Fn(&ForegroundProcess) -> bool,
    ) -> Vec<ForegroundProcess> {
        let mut found = Vec::new();
        let mut next = 0;
        while let Some(pid) = pids.get(next).copied() {
            next += 1;
            let Some(stat) = stat(pid).filter(|_| !pids[..next - 1].contains(&pid)) else {
                continue;
            };
            if field(&stat, SESSION) != Some(self.session) {
                continue;
            }
            if field(&stat, GROUP) == Some(self.group) && !has_ended(&stat) {
                found.push(described(pid, &stat, u64::from(pid) == self.group));
                if found.last().is_some_and(&enough) {
                    break;
                }
            }
            if descend && pids.len() < DESCENDANTS_MAX {
                pids.extend(sys::children(pid));
            }
        }
        found.sort_by_key(|process| !process.leads);
        found
    }
}

/// The names by which a process may be known. They are that of its program as the system has it,
/// the first word of its command line, and an interpreter's script.
fn described(pid: u32, stat: &str, leads: bool) -> ForegroundProcess {
    let words = command_line(pid).unwrap_or_default();
    let mut process = ForegroundProcess { pid, leads, ..ForegroundProcess::default() };
    let known = [words.first().map(String::as_str), name_of(stat)];
    let mut names: Vec<&str> = known.into_iter().flatten().map(base_name).collect();
    process.shell = names.iter().any(|name| is_shell(name));
    let interprets = process.shell || names.iter().any(|name| is_interpreter(name));
    process.supervises = names.contains(&SUPERVISOR.0)
        && words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == SUPERVISOR.1);
    let told =
        if interprets { told_to_run(&words, process.shell) } else { InterpreterTarget::Nothing };
    process.reads_commands = process.shell && told == InterpreterTarget::Nothing;
    process.given_command = process.shell && told == InterpreterTarget::Program;
    if let InterpreterTarget::Script(script) = told {
        names.push(base_name(script));
    }
    for name in names {
        if !name.is_empty() && !process.names.iter().any(|known| known == name) {
            process.names.push(name.to_owned());
        }
    }
    process
}

/// A program's name without its directory and without the dash of a login shell.
fn base_name(word: &str) -> &str {
    program_name(word.rsplit('/').next().unwrap_or(word))
}

/// `python3.12` is one, too.
fn is_interpreter(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name)
}

/// What an interpreter runs, from its command line.
#[derive(Debug, PartialEq, Eq)]
enum InterpreterTarget<'a> {
    Script(&'a str),
    /// The program is on the command line.
    Program,
    Nothing,
}

fn told_to_run(words: &[String], is_shell: bool) -> InterpreterTarget<'_> {
    // `-lc` is `-l -c`.
    let has_c = |word: &str| is_shell && !word.starts_with("--") && word.contains('c');
    let mut rest = words.iter().skip(1).map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "-m" | "--" => {
                return rest.next().map_or(InterpreterTarget::Nothing, InterpreterTarget::Script);
            }
            _ if OPTIONS_WITH_PROGRAM.contains(&word) => return InterpreterTarget::Program,
            _ if OPTIONS_WITH_WORD.contains(&word) => drop(rest.next()),
            _ if word.starts_with('-') && has_c(word) => return InterpreterTarget::Program,
            _ if word.starts_with(['-', '+']) => {}
            _ => return InterpreterTarget::Script(word),
        }
    }
    InterpreterTarget::Nothing
}

fn has_ended(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// The second field, which the system cuts to 15 bytes.
pub(crate) fn name_of(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.0.split_once('(')?.1)
}

pub(super) fn command_line(pid: u32) -> Option<Vec<String>> {
    let text = sys::command_line(pid)?;
    let text = String::from_utf8_lossy(&text);
    let words: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// The value of one variable in the environment with which a process was started.
pub(crate) fn variable(pid: u32, name: &str) -> Option<Vec<u8>> {
    let environment = sys::environment(pid)?;
    let value =
        |entry: &[u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    environment.split(|byte| *byte == 0).find_map(value)
}

/// `pid` and its ancestors, the nearest first, each with its start time: together they name a
/// process beyond doubt. The line ends at a process that has ended, or that this user may not read.
pub fn line_of(pid: u32) -> Vec<(u32, u64)> {
    let mut line = Vec::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| *pid > 0 && line.len() < LINE_MAX) {
        let Some(stat) = stat(pid) else { break };
        let Some(started) = field(&stat, START_TIME) else { break };
        line.push((pid, started));
        next = field(&stat, PARENT).and_then(|pid| u32::try_from(pid).ok());
    }
    line
}

/// The nearest ancestor of `pid` that is not a shell, with its start time: the program that has `pid` run, directly
/// or by a command line. `None` if the system does not reveal it.
pub fn program_above(pid: u32) -> Option<(u32, u64)> {
    let above = line_of(pid).into_iter().skip(1);
    let is_program = |(pid, _): &(u32, u64)| {
        let stat = stat(*pid);
        let name = stat.as_deref().and_then(name_of);
        name.is_some_and(|name| !is_shell(base_name(name)))
    };
    above.filter(is_program).find(|(pid, _)| *pid > 1)
}

/// Exit status of the first process of a dead pane: as tmux reports it, or otherwise from the process table. Some
/// ends of children are missed by tmux 3.3a. It collects such a child only after another one has ended.
pub(crate) fn exit_status(reported: Option<i32>, pid: u32) -> Option<i32> {
    reported.or_else(|| uncollected_status(&stat(pid)?))
}

/// The exit status of a process that has ended and that its parent has not collected yet. `None` for a
/// process that runs, or was ended by a signal.
pub(crate) fn uncollected_status(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    if !after_name.starts_with('Z') {
        return None;
    }
    // As waitpid(2) reports it: the signal in the lower seven bits, or the status above the lower eight.
    let code = field(stat.trim_end(), EXIT_CODE)?;
    if code & 0x7f == 0 { i32::try_from(code >> 8).ok() } else { None }
}

/// The name, the second field, is in parentheses and may hold both spaces and parentheses.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(number - FIRST_AFTER_NAME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_wicked_name() {
        let stat = "7 (a) b) S 41 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(field(stat, START_TIME), Some(4242));
        assert_eq!(field(stat, PARENT), Some(41));
        assert_eq!(field("7 (a", PARENT), None);
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_interpreter_tells_what_it_runs() {
        for (line, is_shell, told) in [
            ("node /usr/bin/gemini --yolo", false, InterpreterTarget::Script("/usr/bin/gemini")),
            (
                "node --no-warnings --require x /usr/bin/codex",
                false,
                InterpreterTarget::Script("/usr/bin/codex"),
            ),
            ("python3 -m aider", false, InterpreterTarget::Script("aider")),
            ("node -e claude", false, InterpreterTarget::Program),
            ("sh -c claude", true, InterpreterTarget::Program),
            ("bash -lc claude", true, InterpreterTarget::Program),
            ("bash --rcfile x -i", true, InterpreterTarget::Nothing),
            ("-bash", true, InterpreterTarget::Nothing),
            ("sh -eu ./worker.sh claude", true, InterpreterTarget::Script("./worker.sh")),
        ] {
            assert_eq!(told_to_run(&words(line), is_shell), told, "{line}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_program_and_its_script() {
        let stat = |name: &str| format!("7 ({name}) S 41 7 7 34816 7");
        let process = described(std::process::id(), &stat("node-MainThread"), true);
        assert!(process.names.contains(&"node-MainThread".to_owned()), "{process:?}");
        assert!(process.leads && !process.shell && !process.reads_commands);
        assert!(has_ended("7 (a) S) Z 1") && !has_ended("7 (a) Z) S 1"));
        assert!(
            is_interpreter("python3.12") && is_interpreter("node") && !is_interpreter("claude")
        );
        assert_eq!((base_name("/bin/-bash"), base_name("-zsh")), ("bash", "zsh"));
    }

    #[test]
    fn we_descend_from_our_parent() {
        let parent = std::os::unix::process::parent_id();
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(generations_below(std::process::id(), parent), Some(1));
        assert_eq!(generations_below(parent, std::process::id()), None);
        assert!(below(parent).contains(&std::process::id()), "we are below our parent");
        let words = command_line(std::process::id()).expect("we were started with something");
        assert_eq!(words[0], std::env::args().next().expect("a name"));
        let line = line_of(std::process::id());
        assert_eq!(line[0], (std::process::id(), start_time(std::process::id()).unwrap()));
        assert_eq!(line[1].0, parent);
        assert_eq!(line.last().map(|(pid, _)| *pid), Some(1));
    }
}
