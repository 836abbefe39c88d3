//! Tasks from draft to merge, and the forbidden transitions on the way.

use ensemble_team::board::{
    AnalysisVerdict, Staleness, active_task, analyze, claimable, is_fenced, leases,
};

use super::*;

#[test]
fn a_task_goes_from_claim_through_review_to_the_merge() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    bed.task("task-2", &["task-1"]);
    let (coder, reviewer) = (bed.agent("coder-1", "coder"), bed.agent("rev-1", "code-reviewer"));
    let unmet = bed.plan("task-2", &coder).unwrap_err().to_string();
    assert!(unmet.contains("it depends on task-1, which is not merged"), "{unmet}");
    let claim = bed.claim("task-1", &coder);
    let agent = |id: &str| bed.state().agents[&name(id)].clone();
    assert_eq!(agent("coder-1").status, agent::State::Working);
    assert_eq!(agent("coder-1").current_task, Some(name("task-1")));
    bed.change(|board| board.submit(&name("task-1"), &claim.holder, "c1"));
    assert_eq!(agent("coder-1").status, agent::State::Waiting);

    let review = bed.change(|board| board.claim_review(&name("task-1"), &reviewer));
    bed.change(|board| board.reject(&name("task-1"), &review.holder, "c1", "No tests.\n\nNone."));
    assert!(bed.text().contains("    rejection_reason: |-\n      No tests.\n\n      None.\n"));
    let again = bed.claim("task-1", &coder);
    assert!(again.holder.epoch > claim.holder.epoch);
    bed.change(|board| board.submit(&name("task-1"), &again.holder, "c2"));
    let review = bed.change(|board| board.claim_review(&name("task-1"), &reviewer));
    let other = bed.refuse(|board| board.approve(&name("task-1"), &review.holder, "c1"));
    assert!(other.to_string().contains("c2 was submitted, the verdict is about c1"), "{other}");
    bed.change(|board| board.approve(&name("task-1"), &review.holder, "c2"));
    assert_eq!(agent("coder-1").status, agent::State::Idle);
    assert_eq!(agent("coder-1").current_task, None);
    bed.change(|board| board.integration_failed(&name("task-1"), "conflict"));
    let plan = bed.plan("task-1", &coder).unwrap();
    assert!(plan.keeps_worktree && plan.is_integration_fix);
    bed.finish("task-1", &coder, &reviewer);
    assert_eq!(bed.status("task-1"), TaskStatus::Merged);
    bed.finish("task-2", &coder, &reviewer);

    let events: Vec<String> =
        bed.state().tasks[0].history.iter().map(|line| line.event.clone()).collect();
    assert_eq!(
        events,
        [
            "created",
            "claimed",
            "ready_for_review",
            "review_claimed",
            "rejected",
            "reclaimed_after_rejection",
            "ready_for_review",
            "review_claimed",
            "approved",
            "integration_failed",
            "claimed_for_integration_fix",
            "ready_for_review",
            "review_claimed",
            "approved",
            "merged"
        ]
    );
}

#[test]
fn every_write_is_one_record_and_a_revision() {
    let bed = Bed::new();
    bed.memory.take_records();
    bed.task("task-1", &[]);
    let records = bed.memory.take_records();
    assert_eq!(records.len(), 1);
    let (kind, data) = &records[0];
    assert_eq!(kind, "board.written");
    assert_eq!(data["revision"], 1);
    assert_eq!(data["steps"][0]["what"], "task.created");
    let digest = ensemble_core::message::Digest::of(bed.text().as_bytes()).to_string();
    assert_eq!(data["sha256"], digest);
    // Nothing changed, nothing was written.
    bed.board.lock().unwrap().commit().unwrap();
    assert_eq!(bed.memory.take_records(), []);
    // Another program wrote.
    std::fs::write(bed.board.path(), bed.text() + "# note to self\n").unwrap();
    drop(bed.board.lock().unwrap());
    let records = bed.memory.take_records();
    assert_eq!(records[0].0, "board.edited");
    assert_eq!(records[0].1["before"], digest);
    drop(bed.board.lock().unwrap());
    assert_eq!(bed.memory.take_records(), []);
}

#[test]
fn the_last_holder_submits_a_task_that_no_agent_has_claimed_since() {
    let bed = Bed::new();
    for gone in [false, true] {
        let task = if gone { "task-2" } else { "task-1" };
        bed.task(task, &[]);
        let ann = bed.agent(if gone { "gone" } else { "ann" }, "coder");
        let old = bed.claim(task, &ann);
        bed.change(|board| board.release(&name(task), old.holder.epoch, "the lease ran out"));
        if gone {
            bed.change(|board| board.unregister(&ann, "silent"));
        }
        let early = TaskHolder { epoch: old.holder.epoch - 1, ..old.holder.clone() };
        bed.refuse(|board| board.submit(&name(task), &early, "c1"));
        bed.change(|board| board.submit(&name(task), &old.holder, "c1"));
        let state = bed.board.read().unwrap();
        let found = state.task(&name(task)).unwrap();
        assert_eq!(found.status, TaskStatus::ReadyForReview);
        assert_eq!(found.assigned_to.as_ref(), Some(&old.holder.by));
    }
    assert!(bed.board.fsck(false).unwrap().is_empty());
}

#[test]
fn a_holder_presumed_dead_is_fenced() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let (ann, bob) = (bed.agent("ann", "coder"), bed.agent("bob", "coder"));
    let reviewer = bed.agent("rev", "code-reviewer");
    let old = bed.claim("task-1", &ann);
    bed.change(|board| board.release(&name("task-1"), old.holder.epoch, "the lease ran out"));
    let submit = |holder: &TaskHolder| {
        let holder = holder.clone();
        move |board: &mut LockedBoard<'_>| board.submit(&name("task-1"), &holder, "c1")
    };
    let stranger = TaskHolder { epoch: old.holder.epoch, ..bob.clone() };
    assert!(
        matches!(bed.refuse(submit(&stranger)).area(), Some(BoardError::NotAllowed { .. })),
        "no agent holds it, and bob never did"
    );
    let new = bed.claim("task-1", &bob);
    let fenced = bed.refuse(submit(&old.holder));
    assert!(is_fenced(&fenced), "{fenced}");
    assert!(fenced.to_string().contains("`bob` (epoch 5) does. Stop working on it"), "{fenced}");
    for refused in [
        bed.refuse(|board| board.block(&name("task-1"), Some(&old.holder), "r", &["q".into()])),
        bed.refuse(|board| board.iterate(&name("task-1"), &old.holder)),
        bed.refuse(|board| board.release(&name("task-1"), old.holder.epoch, "again")),
        bed.refuse(|board| {
            board.hand_off(
                &name("task-1"),
                &old.holder,
                &NewHandoff {
                    summary: "s".into(),
                    next_action: "n".into(),
                    more: serde_json::Map::new(),
                },
            )
        }),
    ] {
        assert!(is_fenced(&refused), "{refused}");
    }
    bed.change(submit(&new.holder));
    // The same for reviews, and for registrations.
    let first = bed.change(|board| board.claim_review(&name("task-1"), &reviewer));
    let taken = bed.refuse(|board| board.claim_review(&name("task-1"), &reviewer));
    assert!(taken.to_string().contains("reviews it"), "{taken}");
    bed.change(|board| board.release(&name("task-1"), first.holder.epoch, "x"));
    bed.change(|board| board.claim_review(&name("task-1"), &reviewer));
    let late = bed.refuse(|board| board.approve(&name("task-1"), &first.holder, "c1"));
    assert!(is_fenced(&late), "{late}");
    let second = bed.refuse(|board| board.register(&NewAgent::new(name("ann"), "coder")));
    assert!(second.to_string().contains("`ann` is registered"), "{second}");
    bed.change(|board| board.unregister(&ann, "gone"));
    let ghost = bed.plan("task-1", &ann).unwrap_err();
    assert!(is_fenced(&ghost), "{ghost}");
    let anew = bed.agent("ann", "coder");
    assert!(anew.epoch > ann.epoch);
    assert!(is_fenced(&bed.refuse(|board| board.unregister(&ann, "late"))));
}

#[test]
fn the_second_phase_of_a_claim_asks_again() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    bed.task("task-2", &[]);
    let (ann, bob) = (bed.agent("ann", "coder"), bed.agent("bob", "coder"));
    let (first, second) = (bed.plan("task-1", &ann).unwrap(), bed.plan("task-1", &bob).unwrap());
    assert_eq!(
        (first.worktree.as_str(), first.branch.as_str()),
        (".worktrees/task-1", "task/task-1")
    );
    let no_base = bed.refuse(|board| board.commit_claim(&first, None));
    assert!(no_base.to_string().contains("needs its base commit"), "{no_base}");
    bed.change(|board| board.commit_claim(&first, Some("c")));
    let late = bed.refuse(|board| board.commit_claim(&second, Some("c")));
    assert!(late.to_string().contains("its status is CLAIMED"), "{late}");
    let busy = bed.plan("task-2", &ann).unwrap_err();
    assert!(busy.to_string().contains("it already has task `task-1` (CLAIMED)"), "{busy}");
    assert_eq!(
        active_task(&bed.state(), &name("ann")).map(|task| task.id.clone()),
        Some(name("task-1"))
    );
    // A plan to keep the worktree is none for a fresh one.
    let third = bed.plan("task-2", &bob).unwrap();
    bed.change(|board| board.add_task(&NewTask::draft(name("task-3"))));
    bed.change(|board| board.commit_claim(&third, Some("c")));
}

#[test]
fn what_breaks_a_rule_is_not_written() {
    let bed = Bed::new();
    bed.task("a", &[]);
    bed.task("b", &["a"]);
    let draft = |after: &str| NewTask::draft(name("c")).after([name(after)]);
    let missing = bed.refuse(|board| board.add_task(&draft("nope")));
    assert!(
        missing.to_string().contains("tasks[2].depends_on[0]: there is no task `nope`"),
        "{missing}"
    );
    let twice = bed.refuse(|board| board.add_task(&NewTask::draft(name("A"))));
    assert!(twice.to_string().contains("task `a` exists"), "{twice}");
    let absent = bed.refuse(|board| board.finalize(&name("aa")));
    assert!(absent.to_string().ends_with("did you mean a?"), "{absent}");
    bed.change(|board| board.add_task(&NewTask::draft(name("c"))));
    let unfinished = bed.refuse(|board| board.finalize(&name("c")));
    assert!(unfinished.to_string().contains("tasks[2].done_when: is missing"), "{unfinished}");
    let questions: Vec<String> = (0..4).map(|n| format!("{n}?")).collect();
    let many = bed.refuse(|board| board.block(&name("a"), None, "r", &questions));
    assert!(many.to_string().contains("has more than 3"), "{many}");
}

#[test]
fn dependants_of_a_superseded_task_depend_on_its_successors() {
    let bed = Bed::new();
    bed.task("a", &[]);
    bed.task("b", &["a"]);
    bed.task("a1", &[]);
    bed.task("a2", &["a1"]);
    let by = [name("a1"), name("a2")];
    let early = bed.refuse(|board| board.supersede(&name("a"), &by, "too broad"));
    assert!(early.to_string().contains("its status is UNCLAIMED"), "{early}");
    bed.change(|board| board.block(&name("a"), None, "too broad", &["split it?".into()]));
    let none = bed.refuse(|board| board.supersede(&name("a"), &[], "r"));
    assert!(none.to_string().contains("no successor is named"), "{none}");
    let circle = bed.refuse(|board| board.supersede(&name("a"), &[name("b")], "r"));
    assert!(circle.to_string().contains("depends on itself: b -> b"), "{circle}");
    bed.change(|board| board.supersede(&name("a"), &by, "too broad"));
    let state = bed.state();
    assert_eq!(state.task(&name("b")).unwrap().depends_on, by);
    assert_eq!(state.task(&name("a1")).unwrap().supersedes, Some(name("a")));
    assert_eq!(bed.status("a"), TaskStatus::Superseded);
    // Nor can anything be added that would wait forever.
    let late = NewTask::new(name("late"), "do late", "s.md", "works").after([name("a")]);
    let refused = bed.refuse(|board| board.add_task(&late)).to_string();
    assert!(
        refused.contains("`a`, which is SUPERSEDED") && refused.contains("`a1`, `a2`"),
        "{refused}"
    );
    bed.change(|board| board.block(&name("a2"), None, "no", &["why?".into()]));
    bed.change(|board| board.abandon(&name("a2"), "no"));
    let late = NewTask::new(name("late"), "do late", "s.md", "works").after([name("a2")]);
    let refused = bed.refuse(|board| board.add_task(&late)).to_string();
    assert!(refused.contains("`a2`, which is ABANDONED"), "{refused}");
}

#[test]
fn limits_exhaust_a_task_and_free_its_coders() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    bed.task("task-2", &[]);
    let reviewer = bed.agent("rev", "code-reviewer");
    for coder in ["ann", "bob"] {
        let agent = bed.agent(coder, "coder");
        for cycle in 0..5 {
            let claim = bed.claim("task-1", &agent);
            let commit = format!("{coder}{cycle}");
            bed.change(|board| board.submit(&name("task-1"), &claim.holder, &commit));
            let review = bed.change(|board| board.claim_review(&name("task-1"), &reviewer));
            bed.change(|board| board.reject(&name("task-1"), &review.holder, &commit, "no"));
        }
        assert_eq!(bed.state().agents[&name(coder)].status, agent::State::Idle);
        let again = bed.plan("task-1", &agent).unwrap_err();
        assert!(again.to_string().contains("its failed coders are"), "{again}");
        // Free for something else.
        assert!(bed.plan("task-2", &agent).is_ok());
    }
    let state = bed.state();
    let ids: Vec<&str> = claimable(&state, None).iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["task-2"], "no agent tries a third time");
    let kinds: Vec<&str> = state.anomalies.iter().map(|anomaly| anomaly.kind.as_str()).collect();
    assert_eq!(kinds, ["review_deadlock", "hypothesis_exhaustion"]);
    // With iterations.
    let agent = bed.agent("eve", "coder");
    let claim = bed.claim("task-2", &agent);
    for _ in 2..=11 {
        bed.change(|board| board.iterate(&name("task-2"), &claim.holder));
    }
    assert_eq!(bed.status("task-2"), TaskStatus::Unclaimed);
    assert_eq!(bed.state().task(&name("task-2")).unwrap().failed_by, [name("eve")]);
}

#[test]
fn leases_expire_by_silence_and_not_by_the_calendar() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let (ann, bob) = (bed.agent("ann", "coder"), bed.agent("bob", "coder"));
    bed.claim("task-1", &ann);
    let directory = bed.board.path().parent().unwrap().to_owned();
    assert_eq!(leases(&bed.state()).len(), 3);
    let mut watch = LeaseWatch::new(Monotonic::ZERO);
    let mut expired = Vec::new();
    for look in 0..=11_u64 {
        // Bob lives; what the board says of times is of another year.
        write_beat(&directory, &bob, look + 1, Duration::from_secs(300)).unwrap();
        let now = Monotonic::ZERO + Duration::from_secs(30 * look);
        for event in scan(&bed.state(), &directory).unwrap() {
            watch.handle(now, event);
        }
        expired.extend(std::iter::from_fn(|| watch.poll_effect()).map(|effect| (look, effect)));
    }
    assert_eq!(expired.len(), 2, "{expired:?}");
    for (look, effect) in expired {
        let Effect::Expire { key, sequence } = effect else { panic!("{effect:?}") };
        assert_eq!((look, key.by()), (10, &ann.by));
        // It beats at the last moment: nothing is taken from it.
        if let BoardLease::Agent { .. } = key {
            write_beat(&directory, &ann, 1, Duration::from_secs(300)).unwrap();
            let late = bed.refuse(|board| board.expire(&key, sequence));
            assert!(late.to_string().contains("it has renewed the lease since"), "{late}");
            bed.change(|board| board.expire(&key, 1));
        } else {
            // Went with the agent.
            let gone = bed.refuse(|board| board.expire(&key, sequence));
            assert!(is_fenced(&gone), "{gone}");
        }
    }
    assert_eq!(bed.status("task-1"), TaskStatus::Unclaimed);
    assert!(bed.state().task(&name("task-1")).unwrap().worktree.is_some(), "for the salvage");
    let anew = bed.agent("ann", "coder");
    // An old claim is not kept alive by a new registration's beats.
    write_beat(&directory, &anew, 7, Duration::from_secs(300)).unwrap();
    let seen = scan(&bed.state(), &directory).unwrap();
    assert!(matches!(&seen[0], Event::Seen { sequence: 7, .. }));
}

#[test]
fn the_circuit_breaker_trips_once_and_only_a_person_resets_it() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let note = |kind: &str, details: Value| {
        let Value::Object(details) = details else { panic!() };
        let anomaly = NewAnomaly {
            kind: kind.into(),
            task: Some(name("task-1")),
            reporter: "ann".into(),
            details,
        };
        bed.change(|board| board.add_anomaly(&anomaly));
    };
    let analysis = || analyze(&bed.state());
    let retry = |pattern: &str| serde_json::json!({ "count": 3, "error_pattern": pattern });
    note("retry_loop", retry("timeout"));
    note("retry_loop", retry("oom"));
    note("retry_loop", retry("Timeout "));
    assert_eq!(analysis().verdict, AnalysisVerdict::Ok);
    note("retry_loop", retry("timeout"));
    let found = analysis();
    assert_eq!((found.verdict, found.triggers.len()), (AnalysisVerdict::Triggered, 1));
    assert_eq!((found.triggers[0].flaw, found.triggers[0].count), ("ARCHITECTURE_FLAW", 3));
    bed.change(|board| board.note_analysis(&found));
    bed.change(|board| board.note_analysis(&analysis()));
    assert_eq!(bed.state().circuit_breaker.unwrap().status.as_deref(), Some("TRIGGERED"));
    bed.change(|board| board.resume("joe"));
    assert_eq!(analysis().verdict, AnalysisVerdict::Ok, "an acknowledged pattern no longer counts");
    assert!(bed.refuse(|board| board.resume("joe")).to_string().contains("is not triggered"));
    for kind in ["workaround", "spec_gap", "spec_ambiguity", "debt_created", "debt_created"] {
        note(kind, serde_json::json!({}));
    }
    note("external_blocker", serde_json::json!({ "blocker_service": "pypi" }));
    note("trade_off", serde_json::json!({ "what": "w", "why": "y", "debt_created": false }));
    let patterns: Vec<String> =
        analysis().triggers.iter().map(|trigger| format!("{:?}", trigger.pattern)).collect();
    assert_eq!(patterns, ["SpecGapCluster"]);
    note("trade_off", serde_json::json!({ "what": "w", "why": "y", "debt_created": "some" }));
    note("workaround", serde_json::json!({}));
    note("external_blocker", serde_json::json!({ "blocker_service": "PyPI" }));
    note("assumption_violated", serde_json::json!({ "assumption": "a", "reality": "b" }));
    note("assumption_violated", serde_json::json!({ "assumption": "a", "reality": "c" }));
    assert_eq!(analysis().triggers.len(), 5);
    let unknown = NewAnomaly {
        kind: "mood".into(),
        task: None,
        reporter: "x".into(),
        details: serde_json::Map::new(),
    };
    assert!(bed.refuse(|board| board.add_anomaly(&unknown)).to_string().contains("must be one of"));
}

#[test]
fn control_files_count_whatever_they_say() {
    let bed = Bed::new();
    let directory = bed.board.path().parent().unwrap().to_owned();
    assert_eq!(ActiveControl::read_all(&directory).unwrap(), []);
    std::fs::write(directory.join("PAUSE"), "").unwrap();
    let found = ActiveControl::read_all(&directory).unwrap();
    assert_eq!(found[0].file, ControlFile::Pause);
    assert!(found[0].since > Timestamp::from_unix_millis(0), "the file's own time");
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    assert!(ActiveControl::put(&directory, ControlFile::Checkpoint, now, "look").unwrap());
    assert!(!ActiveControl::put(&directory, ControlFile::Checkpoint, now, "again").unwrap());
    let found = ActiveControl::read_all(&directory).unwrap();
    let gate = ActiveControl::gate(&found).unwrap();
    assert_eq!(
        (gate.file, gate.reason.as_str(), gate.since),
        (ControlFile::Checkpoint, "look", now)
    );
    let levels = [
        (0, Staleness::Fresh),
        (1_799, Staleness::Fresh),
        (1_800, Staleness::Reminder),
        (7_200, Staleness::Overdue),
        (28_800, Staleness::Forgotten),
    ];
    for (seconds, level) in levels {
        assert_eq!(gate.staleness(now.plus(Duration::from_secs(seconds))), level, "{seconds}");
    }
    let pause = ActiveControl::parse(ControlFile::Pause, "not a time\nmore", now);
    assert_eq!(pause.reason, "not a time\nmore");
    assert_eq!(pause.staleness(now.plus(Duration::from_secs(99_999))), Staleness::Overdue);
    assert_eq!(
        pause.staleness(Timestamp::from_unix_millis(0)),
        Staleness::Fresh,
        "a clock went back"
    );
    // A link in its place stops the team, too.
    std::os::unix::fs::symlink("/nowhere", directory.join("ABORT")).unwrap();
    assert_eq!(
        ActiveControl::gate(&ActiveControl::read_all(&directory).unwrap()).unwrap().file,
        ControlFile::Abort
    );
}

#[test]
fn an_edited_copy_becomes_the_board_if_it_is_valid() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let draft = bed.board.draft().unwrap();
    assert!(draft.apply(&bed.board, draft.text()).unwrap().is_none());
    let broken = draft.text().replace("status: UNCLAIMED", "status: MERGED\n    worktree: w");
    let error = draft.apply(&bed.board, &broken).unwrap_err();
    assert!(matches!(error.area(), Some(BoardError::Invalid { .. })));
    let edited =
        draft.text().replace("tasks:", "# mine\ntasks:").replace("revision: 1", "revision: 0");
    let state = draft.apply(&bed.board, &edited).unwrap().unwrap();
    assert_eq!(state.revision, 2);
    assert!(bed.text().contains("# mine\ntasks:"));
    let late = draft.apply(&bed.board, &edited).unwrap_err();
    assert!(late.to_string().contains("the board has changed since"), "{late}");
    // A board that is broken can be repaired like this.
    std::fs::write(bed.board.path(), broken.replace("MERGED", "DONE")).unwrap();
    assert!(bed.board.lock().is_err());
    let draft = bed.board.draft().unwrap();
    let mended = draft.text().replace("DONE\n    worktree: w\n", "MERGED\n");
    draft.apply(&bed.board, &mended).unwrap().unwrap();
    assert_eq!(bed.status("task-1"), TaskStatus::Merged);
}

#[test]
fn there_is_one_board_in_a_project() {
    let home = tempfile::tempdir().unwrap();
    let missing = Board::find(home.path(), BoardOptions::new("test")).unwrap_err();
    assert!(ensemble_team::board::is_missing(&missing), "{missing}");
    let bed = Bed::with(".liza", "version: 1\ntasks: []\n");
    let second = Board::create(bed.home.path(), BoardOptions::new("test")).unwrap_err();
    assert!(second.to_string().contains(".liza/state.yaml exists"), "{second}");
    std::fs::create_dir(home.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", home.path().join(".ensemble")).unwrap();
    Board::create(home.path(), BoardOptions::new("test")).unwrap();
    assert!(home.path().join("elsewhere/state.yaml").is_file());
}
