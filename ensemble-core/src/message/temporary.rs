//! Names of files that are only on their way, or copies.

/// How the names of temporary files and backups end: those of editors, downloads and shells.
const TEMPORARY_ENDS: [&str; 22] = [
    ".tmp",
    ".temp",
    ".part",
    ".partial",
    ".swp",
    ".swo",
    ".swx",
    ".kate-swp",
    ".crswap",
    ".lock",
    "~",
    ".bak",
    ".old",
    ".orig",
    ".rej",
    ".save",
    ".new",
    ".crdownload",
    ".download",
    ".filepart",
    "___jb_tmp___",
    "___jb_old___",
];
/// How such names begin: those of Claude Code and of Office, and the files that file managers put into each directory.
const TEMPORARY_STARTS: [&str; 5] = ["tmpclaude-", "~$", "Thumbs.db", "desktop.ini", "@eaDir"];
/// What such names contain: those of writers that count, and copies of what two machines have changed.
const TEMPORARY_PARTS: [&str; 3] = [".tmp.", ".sync-conflict-", "conflicted copy"];
/// The ends of documents, behind which a number is that of an earlier version, and `sb-` that of a save on a Mac.
const DOCUMENT_ENDS: [&str; 5] = [".yaml", ".yml", ".json", ".md", ".txt"];
/// What the copies of `git mergetool` have before their number and their ending.
const MERGE_PARTS: [&str; 4] = ["_BACKUP_", "_BASE_", "_LOCAL_", "_REMOTE_"];

/// Whether a name is an editor's or a writer's temporary file, a backup, or a lock.
pub fn is_temporary_file(file: &str) -> bool {
    let is_sed = |rest: &str| rest.len() == 6 && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    let is_version = |(name, number): (&str, &str)| {
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_number || number.starts_with("sb-"))
            && DOCUMENT_ENDS.iter().any(|end| name.ends_with(end))
    };
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    // Emacs saves in `#name#`; Vim sees with `4913` whether it may write.
    file.starts_with('.')
        || file.strip_prefix('#').is_some_and(|rest| rest.ends_with('#'))
        || file == "4913"
        || TEMPORARY_STARTS.iter().any(|start| file.starts_with(start))
        || TEMPORARY_PARTS.iter().any(|part| file.contains(part))
        || file.strip_prefix("sed").is_some_and(is_sed)
        || TEMPORARY_ENDS.iter().any(|end| file.ends_with(end))
        || file.rsplit_once('.').is_some_and(is_version)
        || MERGE_PARTS.iter().any(|end| stem.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::is_temporary_file;

    #[test]
    fn temporary_files_of_editors_and_copies_are_left_alone() {
        let temporary = "x.yaml.tmp|x.temp|x.swp|x~|x.yaml.~1~|x.bak|x.old|x.orig|x.rej|x.crdownload|x.download|#x#\
            |.#x|4913|~$x.docx|~syncthing~x.yaml.tmp|x.sync-conflict-20260101-120000-ABC.yaml|Thumbs.db\
            |x (conflicted copy 2026-01-01).yaml|desktop.ini|.DS_Store|x.yaml___jb_tmp___|x.yaml___jb_old___\
            |x.yaml.tmp.12345.67890ab|sedAbC123|tmpclaude-1-cwd|x.yaml.1|x.json.3421098765|.nfs0001\
            |x.yaml.crswap|x.yaml.kate-swp|@eaDir\
            |x.yaml.sb-1a2b3c-xyz|x_BACKUP_123.yaml|x_BASE_123.yaml|x_LOCAL_123.yaml|x_REMOTE_123.yaml";
        for file in temporary.split('|') {
            assert!(is_temporary_file(file), "{file}");
        }
        let own = "x.yaml|4914|4913-completed.yaml|49131-completed.yaml|#4-completed.yaml|x.1|v1.2|x-completed (1).yaml|sedation.yaml|x.yaml.|older|template.yaml|conflict.md|x copy.yaml|x_LOCAL.yaml|x_BASE_1-completed.yaml|x.sb-1.yaml";
        for file in own.split('|') {
            assert!(!is_temporary_file(file), "{file}");
        }
    }
}
