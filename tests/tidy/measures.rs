//! What is measured of the tree, in one table: docs/internals/measures.md.
//!
//! ```text
//! above its budget       a test fails and names the places, those in the files changed last first
//! far below its budget   a test fails: `BLESS=1` lowers the budget, which it never raises
//! ```

use std::time::SystemTime;

use crate::*;

const PAGE: &str = "docs/internals/measures.md";
const HEAD: &str = "| measure | measured | budget | goal |\n|---|--:|--:|--:|\n";
/// How far a budget may be above its number until it has to be lowered, so that two changes at a time do not meet in
/// the table because of one word.
const SLACK_PERCENT: u64 = 2;
const PLACES_SHOWN: usize = 20;

pub(crate) struct Measure {
    name: String,
    count: u64,
    /// As `path:line: what`.
    places: Vec<String>,
    goal: &'static str,
    /// How far above today's number the budget is when it is written.
    room: u64,
}

impl Measure {
    /// A count of places that becomes smaller until it is the goal.
    pub(crate) fn shrinking(name: &str, places: Vec<String>, goal: &'static str) -> Self {
        let count = places.len().try_into().unwrap();
        Self { name: name.to_owned(), count, places, goal, room: 0 }
    }

    /// A number that grows by ordinary work: only growth beyond the room fails.
    pub(crate) fn roomy(name: &str, count: u64, room: u64, goal: &'static str) -> Self {
        Self { name: name.to_owned(), count, places: Vec::new(), goal, room }
    }

    /// The number where it is not that of the places.
    pub(crate) fn with_count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    fn is_far_below(&self, budget: u64) -> bool {
        self.count + self.room + budget * SLACK_PERCENT / 100 < budget
    }

    /// The places of the files that were changed last.
    fn last_changed(&self) -> Vec<&String> {
        let changed = |place: &&String| {
            let path = root().join(place.split(':').next().unwrap_or_default());
            path.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        let mut places: Vec<&String> = self.places.iter().collect();
        places.sort_by_cached_key(|place| std::cmp::Reverse(changed(place)));
        places.truncate(PLACES_SHOWN);
        places
    }
}

fn measures() -> Vec<Measure> {
    let of_structure = [layers::measures(), doors::measures(), names::measures()];
    let of_text = [words::measures(), sizes::measures()];
    of_structure.into_iter().chain(of_text).flatten().collect()
}

/// The budgets of the table, by the names of what they are for.
fn budgets(page: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        let budget = cells.get(2)?.replace(',', "").parse().ok()?;
        Some((cells[0].to_owned(), budget))
    };
    page.lines().filter_map(row).collect()
}

fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let group = |(at, digit): (usize, char)| match (digits.len() - at) % 3 {
        0 if at > 0 => format!(",{digit}"),
        _ => digit.to_string(),
    };
    digits.chars().enumerate().map(group).collect()
}

/// The budget that `BLESS=1` writes: never above the old one.
fn blessed(measure: &Measure, budget: Option<u64>) -> u64 {
    let new = measure.count + measure.room;
    let is_lower = |budget: u64| measure.room == 0 || measure.is_far_below(budget);
    budget.map_or(new, |budget| if is_lower(budget) { budget.min(new) } else { budget })
}

/// The rows, each as it is in the page unless its budget changes.
fn table(measures: &[Measure], page: &str) -> String {
    let budgets = budgets(page);
    let row = |measure: &Measure| {
        let budget = budgets.get(&measure.name).copied();
        let new = blessed(measure, budget);
        let old = page.lines().find(|line| line.starts_with(&format!("| {} |", measure.name)));
        match old.filter(|_| budget == Some(new)) {
            Some(row) => format!("{row}\n"),
            None => shown(measure, new),
        }
    };
    measures.iter().map(row).collect()
}

fn shown(measure: &Measure, budget: u64) -> String {
    let Measure { name, count, goal, .. } = measure;
    format!("| {name} | {} | {} | {goal} |\n", grouped(*count), grouped(budget))
}

fn fault(measure: &Measure, budget: Option<u64>) -> Option<String> {
    let Measure { name, count, .. } = measure;
    let Some(budget) = budget else {
        return Some(format!("{name}: not in {PAGE}: run this test with BLESS=1"));
    };
    if *count > budget {
        let places = measure.last_changed().into_iter().map(|place| format!("\n    {place}"));
        let places: String = places.collect();
        return Some(format!("{name}: {count}, and the budget is {budget}{places}"));
    }
    (measure.room == 0 && measure.is_far_below(budget)).then(|| {
        format!("{name}: {count}; run this test with BLESS=1 to lower the budget {budget}")
    })
}

#[test]
fn each_measure_is_within_its_budget() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, _) = page.split_once(HEAD).expect("a table");
    let (measures, budgets) = (measures(), budgets(&page));
    let now =
        |measure: &Measure| shown(measure, budgets.get(&measure.name).copied().unwrap_or_default());
    println!("{HEAD}{}", measures.iter().map(now).collect::<String>());
    let is_blessing = std::env::var_os("BLESS").is_some();
    if is_blessing {
        std::fs::write(&path, format!("{before}{HEAD}{}", table(&measures, &page))).unwrap();
    }
    let budget = |measure: &Measure| {
        let budget = budgets.get(&measure.name).copied();
        if is_blessing { Some(blessed(measure, budget)) } else { budget }
    };
    let faults: Vec<String> =
        measures.iter().filter_map(|measure| fault(measure, budget(measure))).collect();
    assert_none("what is measured of the tree", &faults);
    let names = |name: &String| measures.iter().any(|measure| measure.name == *name);
    let unknown: Vec<String> = budgets.into_keys().filter(|name| !names(name)).collect();
    assert!(is_blessing || unknown.is_empty(), "no longer measured: {unknown:?}");
}

#[test]
fn budgets_only_shrink() {
    let measure =
        |count: usize| Measure::shrinking("lies", vec!["a.rs:1: lies".into(); count], "0");
    assert_eq!(fault(&measure(100), Some(100)), None);
    assert_eq!(fault(&measure(98), Some(100)), None);
    assert!(fault(&measure(97), Some(100)).unwrap().contains("BLESS=1"));
    assert!(fault(&measure(1), None).unwrap().contains("BLESS=1"));
    assert!(fault(&measure(101), Some(100)).unwrap().contains("a.rs:1: lies"));
    assert_eq!(blessed(&measure(97), Some(100)), 97);
    assert_eq!(blessed(&measure(101), Some(100)), 100);
    let roomy = Measure { room: 3_000, ..measure(50) };
    assert_eq!(blessed(&roomy, None), 3_050);
    assert_eq!(fault(&roomy, Some(3_050)), None);
    assert_eq!(blessed(&roomy, Some(3_060)), 3_060);
    assert_eq!(fault(&roomy, Some(9_000)), None);
    let row = "| lies | 1,234 | 1,234 | 0 |\n";
    assert_eq!(table(&[measure(1_234)], "| lies | 2,000 | 2,000 | 0 |\n"), row);
    assert_eq!(table(&[measure(1_234)], ""), row);
    let kept = "| lies | 1 | 3,060 | 0 |\n";
    assert_eq!(table(&[Measure { room: 3_000, ..measure(50) }], kept), kept);
    assert_eq!(budgets(row), BTreeMap::from([("lies".to_owned(), 1_234)]));
}
