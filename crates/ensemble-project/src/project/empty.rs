//! Sections of a configuration without anything in them: their lines were commented out, or all is left to the defaults.

/// The text with empty sections commented out, and `{}` behind an agent or provider that is only named. Lines keep
/// their numbers.
pub(super) fn without_empty(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let scripts = find_blocks(&lines);
    let mut read: Vec<String> = Vec::with_capacity(lines.len());
    // The next line that says something: its depth, and whether it is an item of a list.
    let mut next = (0, false);
    for (at, line) in lines.iter().enumerate().rev() {
        let said = line.split(" #").next().unwrap_or_default().trim_end();
        let depth = said.len() - said.trim_start().len();
        let is_silent = said.trim_start().is_empty() || said.trim_start().starts_with('#');
        let is_open = said.ends_with(':') && !said.trim_start().starts_with('-');
        let is_empty = is_open && next.0 <= depth && !(next.0 == depth && next.1);
        let is_named = depth > 0 && is_below_names(&lines[..at], depth);
        match (is_silent || scripts[at], is_empty) {
            (true, _) => read.push((*line).to_owned()),
            (false, true) if !is_named => read.push(format!("#{line}")),
            (false, is_empty) => {
                let end = if is_empty { " {}" } else { "" };
                read.push(format!("{}{end}{}", said, &line[said.len()..]));
                next = (depth, said.trim_start().starts_with('-'));
            }
        }
    }
    read.reverse();
    read.join("\n") + "\n"
}

/// Which lines belong to a text of several lines, such as a script.
fn find_blocks(lines: &[&str]) -> Vec<bool> {
    let mut begun: Option<usize> = None;
    let is_inside = |line: &&str| {
        let depth = line.len() - line.trim_start().len();
        if line.trim().is_empty() || begun.is_some_and(|outer| depth > outer) {
            return begun.is_some();
        }
        let last = line.trim_end().rsplit(' ').next().unwrap_or_default();
        begun = last.starts_with(['|', '>']).then_some(depth);
        false
    };
    lines.iter().map(is_inside).collect()
}

/// Whether the section that a line of this depth belongs to has members that are only named.
fn is_below_names(before: &[&str], depth: usize) -> bool {
    let is_less = |line: &&&str| {
        let said = line.trim_start();
        !said.is_empty() && !said.starts_with('#') && line.len() - said.len() < depth
    };
    before.iter().rfind(is_less).is_some_and(|line| {
        ["agents:", "providers:"].iter().any(|section| line.starts_with(section))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::ProjectConfig;

    fn read(text: &str) -> Result<ProjectConfig, String> {
        ProjectConfig::parse(text, Path::new("ensemble.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_without_anything_is_one_that_is_not_there() {
        for text in [
            "team:\n",
            "routes:\ndrop_boxes:\n  # - name: x\nnotify: # later\n",
            "ladder:\n  phase:\n\nlint:\n#  mode: warn\n",
        ] {
            assert_eq!(read(text), Ok(ProjectConfig::default()), "{text}");
        }
        let agents =
            read("agents:\n  a:\n  b: # the second\n    role: coder\n  c:\nteam:\n").unwrap();
        let names: Vec<&str> = agents.agents.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let kept = read("team:\nworktrees:\n  tests: |\n    if x:\n    then\n").unwrap();
        assert_eq!(kept.worktrees.tests.as_deref(), Some("if x:\nthen\n"));
    }
}
