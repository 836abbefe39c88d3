//! Ten faults in copies of the Python client; the kit names the broken rule of each.

use super::*;

/// A fault: the text that is replaced, and the checks that may find it.
struct Fault {
    name: &'static str,
    from: &'static str,
    to: &'static str,
    stage: &'static str,
    /// One of these must fail.
    found_by: &'static str,
    /// Words of the rule that the kit names.
    rule: &'static str,
}

const FAULTS: [Fault; 13] = [
    Fault {
        name: "a receive that reads before its rename, and answers without having won it",
        from: "                os.rename(path, box / \"cur\" / lease.file)\n                fields, body = decode(_read(box / \"cur\" / lease.file), id)\n",
        to: "                fields, body = decode(_read(path), id)\n                os.rename(path, box / \"cur\" / lease.file)\n",
        stage: "traces",
        found_by: "receive_renames_before_it_reads",
        rule: "rename it, then read it under its new name",
    },
    Fault {
        name: "a plain rename over a message with the same id",
        from: "            while is_chosen and (stored := self._find(box, id)):\n",
        to: "            while stored := None:\n",
        stage: "vectors",
        found_by: "chosen_id_conflict_in_new",
        rule: "if they differ, it is a conflict",
    },
    Fault {
        name: "a file that is not synced",
        from: "            self._sync(temporary)\n",
        to: "",
        stage: "traces",
        found_by: "publish_syncs_the_file_before_its_rename",
        rule: "the client syncs the file and its name before it returns",
    },
    Fault {
        name: "a directory that is not synced",
        from: "        self._sync((box / target).parent)\n",
        to: "",
        stage: "traces",
        found_by: "settle_syncs_the_directory",
        rule: "the client syncs the file and its name before it returns",
    },
    Fault {
        name: "a settle under a lease that is over",
        from: "        with self._held(lease) as box:\n            fields",
        to: "        box = self._box(lease.mailbox)\n        lease = lease._replace(epoch=int(next((box / \"cur\").glob(f\"{lease.id}@*\")).stem.split(\"@\")[2]))\n        with self._held(lease) as box:\n            fields",
        stage: "vectors",
        found_by: "settle_when_held_again",
        rule: "`ENOENT` means that the lease is lost",
    },
    Fault {
        name: "a question that is settled without its answer",
        from: "if is_question and not",
        to: "if (home / \"request.yaml\").exists() and not",
        stage: "vectors",
        found_by: "settle_of_a_build_request_without_an_answer",
        rule: "A client refuses to settle a **request** that has no decision",
    },
    Fault {
        name: "the newest message first",
        from: ", _age(path, match[1]))\n",
        to: ", -_age(path, match[1]))\n",
        stage: "vectors",
        found_by: "oldest_of_new",
        rule: "In `new/`, the oldest first.",
    },
    Fault {
        name: "a release that forgets the epoch",
        from: "@e{lease.epoch}@t{due}.yaml",
        to: "@e0@t{due}.yaml",
        stage: "vectors",
        found_by: "release",
        rule: "keeps the epoch",
    },
    Fault {
        name: "a body that is not compared with its digest",
        from: "if any(fields.get(key, value) != value for key, value in _measures(body).items()):\n",
        to: "if False:\n",
        stage: "vectors",
        found_by: "broken_altered",
        rule: "a mismatch means a damaged file",
    },
    Fault {
        name: "a message that is written where its readers look",
        from: "            os.rename(temporary, target)\n",
        to: "            target.write_bytes(content.encode())\n",
        stage: "disk,traces",
        found_by: "publish_is_a_rename_out_of_tmp",
        rule: "Write the whole file under a unique name in `tmp/`, then rename it.",
    },
    Fault {
        name: "a release without the lock",
        from: "        with self._held(lease, fcntl.LOCK_SH):\n",
        to: "        with self._held(lease):\n",
        stage: "locks",
        found_by: "release_waits_for_the_lock",
        rule: "hold `gate.lock` shared",
    },
    Fault {
        name: "a letter before its reason",
        from: "            self._write(box / \"dead\" / f\"{lease.id}@reason.yaml\", f\"{note}redriven: false\\n\")\n            self._move(box, lease, f\"dead/{lease.id}.yaml\")\n",
        to: "            self._move(box, lease, f\"dead/{lease.id}.yaml\")\n            self._write(box / \"dead\" / f\"{lease.id}@reason.yaml\", f\"{note}redriven: false\\n\")\n",
        stage: "traces",
        found_by: "a_reason_comes_before_its_letter",
        rule: "write the reason, rename",
    },
    Fault {
        name: "a delayed message that is taken at once",
        from: " and int(match[4] or 0) <= now:\n",
        to: ":\n",
        stage: "vectors",
        found_by: "delayed_stays",
        rule: "is the earliest time of receipt",
    },
];

fn planted(fault: &Fault, home: &Path) -> String {
    let client = root().join("clients/python");
    let text = std::fs::read_to_string(client.join("ensemble_client.py")).unwrap();
    assert_eq!(text.matches(fault.from).count(), 1, "{}: the text to replace", fault.name);
    std::fs::write(home.join("ensemble_client.py"), text.replace(fault.from, fault.to)).unwrap();
    std::fs::copy(client.join("adapter.py"), home.join("adapter.py")).unwrap();
    format!("python3 '{}'", home.join("adapter.py").display())
}

/// How many loads may look for a fault that only a race shows.
const RACES_MAX: u32 = 10;

/// A reworded rule is seen here, not first in the long test beneath.
#[test]
fn the_protocol_has_each_rule_that_a_fault_breaks() {
    let protocol = std::fs::read_to_string(root().join("PROTOCOL.md")).unwrap();
    let protocol = protocol.split_whitespace().collect::<Vec<_>>().join(" ");
    for Fault { name, rule, .. } in &FAULTS {
        assert!(protocol.contains(rule), "{name}: {rule:?}");
    }
}

#[test]
#[ignore = "long"]
fn the_kit_finds_each_planted_fault() {
    for fault in &FAULTS {
        let home = tempfile::tempdir().unwrap();
        let client = planted(fault, home.path());
        let (output, lines) = kit(fault.stage, fault.found_by, &[client]);
        assert_eq!(output.status.code(), Some(1), "{}: {lines:#?}", fault.name);
        let failed: Vec<_> = lines.iter().filter(|line| line["verdict"] == "failed").collect();
        let found = failed.iter().find(|line| line["name"] == fault.found_by);
        let found = found.unwrap_or_else(|| panic!("{}: {failed:#?}", fault.name));
        assert!(found["rule"].as_str().unwrap().contains(fault.rule), "{}: {found}", fault.name);
    }
}

/// A message that two holders work on at the same time: each answers before it has won the rename.
#[test]
fn the_load_finds_a_message_with_two_holders() {
    let fault = Fault {
        name: "a lost race that counts as won",
        from: "            except FileNotFoundError:\n                continue  # Another consumer has it, or this one stood still and its lease is over.\n",
        to: "            except FileNotFoundError:\n                fields, body = decode(_read(self._find(box, id)), id)\n                return Message(lease, body, fields)\n",
        stage: "load",
        found_by: "history",
        rule: "Of several clients that try to move one file, one succeeds",
    };
    let home = tempfile::tempdir().unwrap();
    let client = planted(&fault, home.path());
    // A race: on one processor it is rare.
    let found = (0..RACES_MAX).any(|_| {
        let (output, lines) = kit(fault.stage, "", &[client.clone(), client.clone()]);
        let found = lines.iter().any(|line| {
            line["verdict"] == "failed"
                && line["rule"].as_str().is_some_and(|rule| rule.contains(fault.rule))
        });
        assert!(!found || output.status.code() == Some(1), "{lines:#?}");
        found
    });
    assert!(found, "no load of {RACES_MAX} has found it");
}
