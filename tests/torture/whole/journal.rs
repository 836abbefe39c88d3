//! What the agents and the test itself have noted: one line each, written at once, on another disk.

use super::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Seconds since boot, rounded down to hundredths.
    pub at: f64,
    pub verb: String,
    pub agent: String,
    pub task: String,
    pub epoch: u64,
    pub pid: u32,
    pub rest: Vec<String>,
}

/// A disturbance: what, when, until when, and of which processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trouble {
    pub what: String,
    pub from: f64,
    pub to: f64,
    pub pids: Vec<u32>,
}

/// A line of `common.sh`: SECONDS VERB AGENT TASK EPOCH PID WORD...
fn of_agent(text: &str) -> Option<Line> {
    let mut words = text.split_whitespace().map(str::to_owned);
    Some(Line {
        at: words.next()?.parse().ok()?,
        verb: words.next()?,
        agent: words.next()?,
        task: words.next()?,
        epoch: words.next()?.parse().ok()?,
        pid: words.next()?.parse().ok()?,
        rest: words.collect(),
    })
}

/// A line of `supervisors/agent.sh`, which names no agent: SECONDS VERB TASK EPOCH WORD...
fn of_supervised(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (at, verb) = (words.first()?.parse().ok()?, (*words.get(1)?).to_owned());
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    let rest = |from: usize| words.iter().skip(from).map(|word| (*word).to_owned()).collect();
    let line = Line { at, agent: "supervised".to_owned(), ..Line::default() };
    let task = || (*words.get(2).unwrap_or(&"-")).to_owned();
    let epoch = number(3).unwrap_or_default();
    Some(match verb.as_str() {
        "begin" => {
            let pid = u32::try_from(number(4)?).ok()?;
            Line { verb, task: task(), epoch, pid, rest: rest(5), ..line }
        }
        // The holder's epoch, process and supervisor.
        "beside" => Line { verb, task: task(), epoch, rest: rest(3), ..line },
        "done" | "refused" => Line { verb, task: task(), epoch, rest: rest(4), ..line },
        _ => Line { verb, rest: rest(2), ..line },
    })
}

fn text(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may have been cut by a kill.
    text[..text.rfind('\n').map_or(0, |at| at + 1)].to_owned()
}

/// The lines of all agents by their time, and the disturbances.
pub fn read(directory: &Path) -> (Vec<Line>, Vec<Trouble>) {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the journals").flatten() {
        let name = entry.file_name();
        let of = match name.to_str() {
            Some("test") => continue,
            Some("supervised") => of_supervised,
            _ => of_agent,
        };
        lines.extend(text(&entry.path()).lines().filter_map(of));
    }
    lines.sort_by(|a, b| a.at.total_cmp(&b.at));
    (lines, troubles(&text(&directory.join("test"))))
}

/// Joins `begin`s and `end`s: SECONDS begin|end|once WHAT PID...
pub fn troubles(text: &str) -> Vec<Trouble> {
    let mut all: Vec<Trouble> = Vec::new();
    let mut open: BTreeMap<(String, Vec<u32>), usize> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, kind, what, pids @ ..] = words.as_slice() else { continue };
        let at: f64 = at.parse().expect("a time");
        let pids: Vec<u32> = pids.iter().filter_map(|pid| pid.parse().ok()).collect();
        let key = ((*what).to_owned(), pids.clone());
        if *kind == "end" {
            if let Some(begun) = open.remove(&key) {
                all[begun].to = at;
            }
            continue;
        }
        let to = if *kind == "begin" { f64::INFINITY } else { at };
        if *kind == "begin" {
            open.insert(key, all.len());
        }
        all.push(Trouble { what: (*what).to_owned(), from: at, to, pids });
    }
    all
}
