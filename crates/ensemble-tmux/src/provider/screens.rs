//! Diagnoses screens with the built-in profiles: each state that notes and recordings describe.

use super::machine::{AgentAnswer, AgentReport};
use super::{
    DiagnosisContext, Judgement, Profiles, TypingPurpose, UsageLimit, Zones, diagnose,
    diagnose_with, objection,
};
use ensemble_core::agent::{AgentState, Source};
use ensemble_core::pane::{Deferral, Key, PaneState};

/// A pane that shows `screen`, with the cursor at `▮`, or below the screen if there is none.
pub(super) fn pane(command: &str, screen: &str) -> PaneState {
    let lines: Vec<&str> = screen.lines().collect();
    let cursor = lines.iter().enumerate().find_map(|(y, line)| {
        let before = line.split_once('▮')?.0;
        Some((super::cells::width(before), y))
    });
    let (x, y) = cursor.unwrap_or((0, lines.len()));
    PaneState {
        bound: true,
        pid: 1,
        command: command.to_owned(),
        cursor_x: u32::try_from(x).expect("a column"),
        cursor_y: u32::try_from(y).expect("a line"),
        screen: lines.iter().map(|line| line.replace('▮', "").trim_end().to_owned()).collect(),
        ..PaneState::default()
    }
}

fn seen(profile: &str, command: &str, screen: &str) -> Judgement {
    let profile = Profiles::embedded().expect("profiles").get(profile).expect("a profile");
    diagnose(&profile, &pane(command, screen))
}

fn expect(profile: &str, command: &str, screen: &str, state: AgentState) {
    let diagnosis = seen(profile, command, screen);
    assert_eq!(diagnosis.state, state, "{profile}: {screen}\n{diagnosis:#?}");
    assert_eq!(diagnosis.deferral.is_none(), state == AgentState::Ready, "{diagnosis:#?}");
    assert!(!diagnosis.evidence.is_empty());
}

#[test]
fn shell_lines() {
    let ready = [
        "▮",
        "$ ▮",
        "# ▮",
        "user@host:~/src$ ▮",
        "done\nhost% ▮",
        "~> ▮",
        "🚀 日本 ❯ ▮",
        "[root@host dir]# ▮",
    ];
    for screen in ready {
        expect("shell", "bash", screen, AgentState::Ready);
    }
    let draft = [
        "$▮",
        "$  ▮",
        "$ ls▮",
        "$ ▮ls",
        "$ l▮s",
        "$ ▮      12:30",
        "user@host:~$ echo x > ▮",
        "50% full $ ▮",
        "> ▮",
        "quote> ▮",
        "for while> ▮",
        "  ▮",
        "Password: ▮",
        "Continue? [y/N] ▮",
        "working...▮",
    ];
    for screen in draft {
        expect("shell", "bash", screen, AgentState::Draft);
    }
    expect("shell", "-zsh", "$ ▮", AgentState::Ready);
}

#[test]
fn claude() {
    let rule = "─".repeat(60);
    let footer = "  ? for shortcuts";
    let boxed = |line: &str| format!("● Done.\n\n{rule}\n{line}\n{rule}\n{footer}");
    let see = |screen: &str, state| expect("claude", "claude", screen, state);
    see(&boxed("❯ ▮"), AgentState::Ready);
    see(&boxed("❯\u{a0}▮"), AgentState::Ready);
    // Some versions leave the terminal's cursor elsewhere.
    see(&boxed("❯ "), AgentState::Ready);
    see(&boxed("❯ ▮Try \"edit <filepath> to...\""), AgentState::Ready);
    see(&boxed("❯ please merge▮"), AgentState::Draft);
    see(&boxed("❯ please merge"), AgentState::Draft);
    see(&boxed("❯ Try \"this\"▮"), AgentState::Draft);
    see(&boxed("❯ first line\n  second line▮"), AgentState::Draft);
    see(&boxed("❯ \n  second line▮"), AgentState::Draft);
    see(
        &format!("✶ Tomfoolering… (3s)\n{rule}\n❯ ▮\n{rule}\n  esc to interrupt"),
        AgentState::Busy,
    );
    see(
        " Quick safety check: Is this a project you created or one you trust?\n ❯ No, exit▮\n   Yes",
        AgentState::Trust,
    );
    see(
        " Bash command\n   rm x\n Do you want to proceed?\n ❯ 1. Yes▮\n   2. No\n\n Esc to cancel · Tab to amend",
        AgentState::Permission,
    );
    see(
        "New MCP server found in this project: ensemble\n ❯ Continue without using this MCP server",
        AgentState::Dialog,
    );
    see(&format!("{rule}\n❯ ▮\n{rule}\n  Not logged in · run /login"), AgentState::Login);
    see("Select login method:\n ❯ 1. Claude account", AgentState::Login);
    see(
        "  Rewind\n\n  Restore the code and/or conversation to the point before…\n ❯ (current)",
        AgentState::Dialog,
    );
    see(&format!("{rule}\n❯ ▮\n{rule}\n  Press Ctrl-C again to exit"), AgentState::Dialog);
    see("a screen without a rule", AgentState::Unknown);
    see("", AgentState::Unknown);
    expect("claude", "bash", "$ ▮", AgentState::Crashed);
    // With something in its composer it does not offer the shortcuts.
    let typed = |mode: &str| format!("{rule}\n❯ half a▮\n{rule}\n  {mode}");
    for mode in ["⏸ manual mode on", "⏵⏵ auto mode on", "⏵⏵ accept edits on", "⏸ plan mode on"]
    {
        see(&typed(mode), AgentState::Draft);
    }
    see(
        "  Make auto mode your default permission mode?\n  ❯ Yes, set auto mode▮\n    No, keep manual mode",
        AgentState::Dialog,
    );
}

#[test]
fn an_old_error_does_not_count() {
    let composer = format!("{0}\n❯ ▮\n{0}\n  ? for shortcuts", "─".repeat(60));
    for (error, state) in [
        ("  ⎿  Invalid API key · Fix external API key", AgentState::Login),
        ("● API Error: Request rejected (429) · too many requests", AgentState::RateLimited),
    ] {
        expect("claude", "claude", &format!("❯ go\n{error}\n{composer}"), state);
        let later = format!("❯ go\n{error}\n\n❯ again\n\n● Understood.\n\n{composer}");
        expect("claude", "claude", &later, AgentState::Ready);
    }
    let composer = "› ▮Ask Codex to do anything\n\n  model default · ~/p\n  ? for shortcuts";
    for (error, state) in [
        ("■ unexpected status 401 Unauthorized: invalid", AgentState::Login),
        ("■ exceeded retry limit, last status: 429 Too Many Requests", AgentState::RateLimited),
    ] {
        expect("codex", "node", &format!("› go\n{error}\n{composer}"), state);
        let later = format!("› go\n{error}\n› again\n\n• Understood.\n\n{composer}");
        expect("codex", "node", &later, AgentState::Ready);
    }
}

#[test]
fn codex() {
    let see = |screen: &str, state| expect("codex", "node", screen, state);
    let footer = "  ← for agents · ? for shortcuts";
    see(&format!("› ▮Ask Codex to do anything\n\n{footer}"), AgentState::Ready);
    see(&format!("› half a▮\n\n{footer}"), AgentState::Draft);
    // A warning that it shows below a draft.
    see("› half a▮\n\n  model default · ~/p\n        ⚠ 1 warning · f2 to view", AgentState::Draft);
    see(
        &format!("• Working (3s • esc to interrupt)\n\n› ▮Ask Codex to do anything\n\n{footer}"),
        AgentState::Busy,
    );
    see("Trust this folder?\n\n› 1. Trust and continue\n  2. Quit", AgentState::Trust);
    see(
        "Allow the ensemble MCP server to run tool \"x\"?\n› 1. Allow\n  2. Deny\n enter to submit | esc to cancel",
        AgentState::Permission,
    );
    see(
        "Welcome to Codex\n› 1. Sign in with ChatGPT\n  2. Sign in with Device Code",
        AgentState::Login,
    );
    see(
        &format!(
            "■ exceeded retry limit, last status: 429 Too Many Requests\n\n› ▮Ask Codex to do anything\n\n{footer}"
        ),
        AgentState::RateLimited,
    );
    see(&format!("› ▮\n\n  esc again to edit previous message\n{footer}"), AgentState::Ready);
    see("4 hooks are new or changed.\n› 1. Review", AgentState::Dialog);
    see(
        &format!(
            "◦ Reconnect failed — check the endpoint, then relaunch (2m 22s)\n\n› ▮Ask Codex to do anything\n\n{footer}"
        ),
        AgentState::Dialog,
    );
    let mut asking = pane("codex", &format!("› ▮Ask Codex to do anything\n\n{footer}"));
    asking.title = "[ . ] Action Required | p6".to_owned();
    let codex = Profiles::embedded().expect("profiles").get("codex").expect("codex");
    let diagnosis = diagnose(&codex, &asking);
    assert_eq!((diagnosis.state, diagnosis.source), (AgentState::Dialog, Source::Title));
    asking.screen.push("Would you like to run the following command?".to_owned());
    assert_eq!(diagnose(&codex, &asking).state, AgentState::Permission, "the screen tells more");
}

#[test]
fn opencode_and_gemini() {
    let footer = "  tab agents  ctrl+p commands";
    let see = |screen: &str, state| expect("opencode", "opencode", screen, state);
    let edge = format!("  ╹{}", "▀".repeat(40));
    let boxed = |input: &str, below: &str| {
        format!(
            "  ┃\n  ┃  work\n  ┃\n\n  ┃\n{input}\n  ┃\n  ┃  Build · model ours   Sidebar\n{edge}    more\n{below}"
        )
    };
    see(&boxed("  ┃  ▮", footer), AgentState::Ready);
    see(&boxed("  ┃  ▮Ask anything… \"Fix broken tests\"", footer), AgentState::Ready);
    let beside = format!("  ┃  ▮{}Sidebar", " ".repeat(42));
    see(&boxed(&beside, footer), AgentState::Ready);
    see(&boxed("  ┃    ▮", footer), AgentState::Draft);
    see(&boxed("  ┃  half a▮", footer), AgentState::Draft);
    see(&boxed("  ┃  two\n  ┃  lines▮", footer), AgentState::Draft);
    see(&boxed("  ┃  ▮", &format!("  ⬝⬝■■  esc interrupt {footer}")), AgentState::Busy);
    let retries = "  ⬝⬝ too many requests [retrying in 8s attempt #3]   esc interrupt";
    see(&boxed("  ┃  ▮", retries), AgentState::RateLimited);
    // Its menus take the keys, and the composer behind them is still shown.
    let palette =
        format!("          Commands                 esc\n\n          Search▮\n{}", "\n".repeat(3));
    see(&format!("{palette}{}", boxed("  ┃", footer)), AgentState::Dialog);
    see(&format!("      Search▮\n{}", boxed("  ┃", footer)), AgentState::Unknown);
    let asks = "△ Permission required\n  Allow once   Allow always   Reject";
    expect("opencode", "opencode", asks, AgentState::Permission);
    expect("opencode", "opencode", "", AgentState::Starting);
    let composer = "╭────╮\n│ > ▮  Type your message or @path/to/file │\n╰────╯";
    expect("gemini", "node", composer, AgentState::Ready);
    expect("gemini", "node", "⠏ Thinking (esc to cancel, 3s)", AgentState::Busy);
}

#[test]
fn a_limit_says_when_it_ends() {
    let screen = "Claude usage limit reached. Your limit resets at 3pm (Europe/Berlin)\n❯ ▮";
    let diagnosis = seen("claude", "claude", screen);
    assert_eq!(diagnosis.state, AgentState::RateLimited);
    assert_eq!(diagnosis.resets_at.as_deref(), Some("3pm (Europe/Berlin)"));
}

/// A look at a Claude Code at `now` that remembers what the last one has seen.
fn look(screen: &str, now: &str, limit: Option<&UsageLimit>) -> Judgement {
    let claude = Profiles::embedded().expect("profiles").get("claude").expect("claude");
    let zones = Zones::utc();
    let time = Some((now.parse().expect("a time"), &zones));
    diagnose_with(
        &claude,
        &pane("claude", screen),
        &DiagnosisContext { time, limit, ..DiagnosisContext::default() },
    )
}

#[test]
fn a_limit_that_has_passed_is_none_any_more() {
    let said = "Claude usage limit reached. Your limit resets at 3pm (UTC)";
    let idle = format!("{said}\n─────\n❯ ▮\n─────\n  ? for shortcuts");
    let before = look(&idle, "2026-11-22T14:59:59Z", None);
    assert_eq!((before.state, before.source), (AgentState::RateLimited, Source::Screen));
    let until = before.limited_until.expect("an instant").to_string();
    assert_eq!(until, "2026-11-22T15:00:00.000Z");
    let after = look(&idle, "2026-11-22T15:00:00Z", before.limit());
    assert_eq!((after.state, after.deferral.as_ref()), (AgentState::Ready, None));
    assert_eq!((after.limited_until, after.resets_at.as_ref()), (None, None));
    assert_eq!(after.evidence[1].what, "a limit that has passed");
    assert_eq!(after.evidence[1].text, said);
    // Also for a first look that is given the time of the message.
    assert_eq!(look(&idle, "2026-11-22T15:00:01Z", None).state, AgentState::Ready);
    assert_eq!(look(&idle, "2026-11-23T02:00:00Z", after.limit()).state, AgentState::Ready);
    // Nothing shows that it takes input again.
    let covered = look(said, "2026-11-22T15:30:00Z", before.limit());
    assert_eq!(covered.state, AgentState::RateLimited);
    let draft = idle.replace("❯ ▮", "❯ half▮");
    assert_eq!(look(&draft, "2026-11-22T15:30:00Z", None).state, AgentState::Draft);
    // Another limit is below that one.
    let weekly =
        idle.replace("─────\n❯", "You've hit your weekly limit · resets Nov 24 at 3pm\n─────\n❯");
    let weekly = look(&weekly, "2026-11-22T15:30:00Z", None);
    assert_eq!(weekly.state, AgentState::RateLimited);
    assert_eq!(weekly.limited_until.expect("an instant").to_string(), "2026-11-24T15:00:00.000Z");
    // A limit whose end cannot be read does not pass.
    let odd = idle.replace("3pm (UTC)", "teatime");
    let odd = look(&odd, "2026-11-22T15:30:00Z", None);
    assert_eq!((odd.state, odd.limited_until), (AgentState::RateLimited, None));
    assert_eq!(odd.resets_at.as_deref(), Some("teatime"));
}

#[test]
fn a_stretch_of_time_counts_from_when_it_was_first_seen() {
    let codex = Profiles::embedded().expect("profiles").get("codex").expect("codex");
    let screen = "■ You've hit your usage limit. Upgrade to Pro or try again in 2 hours 5 minutes.\n\n› ▮Ask Codex to do anything\n\n  ← for agents · ? for shortcuts";
    let zones = Zones::utc();
    let look = |now: &str, limit: Option<&UsageLimit>| {
        let time = Some((now.parse().expect("a time"), &zones));
        let context = DiagnosisContext { time, limit, ..DiagnosisContext::default() };
        diagnose_with(&codex, &pane("codex", screen), &context)
    };
    let first = look("2026-11-22T10:00:00Z", None);
    assert_eq!(first.limited_until.expect("an instant").to_string(), "2026-11-22T12:05:00.000Z");
    let second = look("2026-11-22T12:04:00Z", first.limit());
    assert_eq!(
        (second.state, second.limited_until),
        (AgentState::RateLimited, first.limited_until)
    );
    assert_eq!(look("2026-11-22T12:05:00Z", second.limit()).state, AgentState::Ready);
}

#[test]
fn the_evidence_is_the_line_that_was_seen() {
    let diagnosis = seen("claude", "claude", "one\n  two esc to interrupt\nthree");
    assert_eq!(diagnosis.evidence[0].text, "two esc to interrupt");
    assert_eq!(diagnosis.evidence[0].source, Source::Screen);
}

#[test]
fn an_agents_own_word_stands_above_its_screen() {
    let claude = Profiles::embedded().expect("profiles").get("claude").expect("claude");
    let says = |state| AgentAnswer::Report {
        report: AgentReport::new(state, "as it says"),
        place: "somewhere".to_owned(),
    };
    let with = |screen: &str, heard: AgentAnswer| {
        let context = DiagnosisContext { heard: Some(&heard), ..DiagnosisContext::default() };
        let diagnosis = diagnose_with(&claude, &pane("claude", screen), &context);
        let word = diagnosis.evidence.iter().filter(|e| e.source == Source::MachineReadable);
        assert_eq!(word.map(|e| e.text.as_str()).collect::<Vec<_>>(), ["as it says (somewhere)"]);
        (diagnosis.state, diagnosis.source, diagnosis.deferral.clone())
    };
    let own = Source::MachineReadable;
    let idle = "❯ ▮\n─────\n  ? for shortcuts";
    let spinning = "❯ ▮\n─────\n  esc to interrupt";
    assert_eq!(with(idle, says(AgentState::Busy)), (AgentState::Busy, own, Some(Deferral::Busy)));
    assert_eq!(with(spinning, says(AgentState::Ready)), (AgentState::Ready, own, None));
    let dialog = Deferral::Dialog { name: "as it says".to_owned() };
    let asked = with(idle, says(AgentState::Permission));
    assert_eq!(asked, (AgentState::Permission, own, Some(dialog)));
    let error = format!("● API Error: Request rejected (429) · try later\n{idle}");
    assert_eq!(seen("claude", "claude", &error).state, AgentState::RateLimited);
    let (state, _, deferral) = with(&error, says(AgentState::Ready));
    assert_eq!((state, deferral), (AgentState::Ready, None), "the error is older than its word");
    assert_eq!(with(&error, says(AgentState::Busy)).2, Some(Deferral::Busy));
    let half = error.replace("❯ ▮", "❯ half▮");
    assert_eq!(with(&half, says(AgentState::Ready)).2, Some(Deferral::Draft));
    // Never above a reason to keep off.
    let draft = with("❯ half▮\n─────\n  ? for shortcuts", says(AgentState::Ready));
    assert_eq!(draft, (AgentState::Draft, Source::Screen, Some(Deferral::Draft)));
    let (state, _, deferral) = with("esc to interrupt", says(AgentState::Ready));
    assert_eq!(state, AgentState::Ready);
    assert!(deferral.is_some(), "there is no composer to type into");
    let ready = says(AgentState::Ready);
    let context = DiagnosisContext { heard: Some(&ready), ..DiagnosisContext::default() };
    let crashed = diagnose_with(&claude, &pane("zsh", "$ ▮"), &context);
    assert_eq!(crashed.state, AgentState::Crashed);
}

#[test]
fn generic_has_the_keys_of_the_seed() {
    use ensemble_core::agent::EscalationStep::{CtrlC, Escape, Nudge, Reset};
    let generic = Profiles::embedded().expect("profiles").get("generic").expect("generic");
    assert_eq!(generic.program().escalation.phase_2, [Escape, Escape, CtrlC, Nudge]);
    assert_eq!(generic.program().escalation.phase_3, [Reset, Nudge]);
    assert_eq!(generic.reset_command(), Some("/clear"));
    let agent = pane("aider", "anything at all▮");
    assert_eq!(diagnose(&generic, &agent).deferral, None);
    assert_eq!(
        objection(&generic, &agent, &DiagnosisContext::default(), TypingPurpose::Press(Key::CtrlC)),
        None
    );
}

#[test]
fn enter_follows_only_what_was_typed() {
    let claude = Profiles::embedded().expect("profiles").get("claude").expect("claude");
    let text = "ensemble: 3 messages for dispatch. Run: ensemble recv";
    let judge = |screen: &str| {
        objection(
            &claude,
            &pane("claude", screen),
            &DiagnosisContext::default(),
            TypingPurpose::Submit { text },
        )
    };
    let footer = "\n─────\n  ? for shortcuts";
    assert_eq!(judge(&format!("❯ {text}▮{footer}")), None);
    assert_eq!(
        judge(&format!("❯ ensemble: 3 messages for\n  dispatch. Run: ensemble recv▮{footer}")),
        None
    );
    assert_eq!(judge(&format!("❯ {text} and more▮{footer}")), Some(Deferral::Draft));
    assert_eq!(judge(&format!("❯ draft {text}▮{footer}")), Some(Deferral::Draft));
    assert_eq!(judge(&format!("❯ ▮{footer}")), Some(Deferral::LineGone), "sent or deleted");
    let busy = format!("❯ {text}▮\n─────\n  esc to interrupt");
    assert_eq!(judge(&busy), Some(Deferral::Busy), "it began to work before the Enter");
    let dialog = format!("❯ {text}▮{footer}\nDo you want to proceed?");
    assert!(matches!(judge(&dialog), Some(Deferral::Dialog { .. })));
}

#[test]
fn a_nudge_that_was_left_standing_is_known_again() {
    let claude = Profiles::embedded().expect("profiles").get("claude").expect("claude");
    let footer = "\n─────\n  ? for shortcuts";
    let text = "ensemble: 12 or more messages for a.b-c. Run: ensemble recv --as a.b-c";
    let stands = |screen: &str, text: &str| {
        super::stands_alone(&claude, &pane("claude", &format!("{screen}{footer}")), text)
    };
    let wrapped = "❯ ensemble: 12 or more messages for a.b-c.\n  Run: ensemble recv --as a.b-c▮";
    assert!(stands(wrapped, text));
    assert!(stands("❯ AGENT_TEAM_PING x 1▮", "AGENT_TEAM_PING x 1"));
    assert!(stands("❯ /clear▮", "/clear"));
    for other in ["❯ ▮", "❯ /clear; rm y▮", "❯ so /clear▮", "$ /clear▮"] {
        assert!(!stands(other, "/clear"), "{other}");
    }
}

#[test]
fn a_wrong_profile_is_refused_with_its_field() {
    let good =
        "name: x\nnudge: ['mail for {mailbox}']\ncomposer: {kind: anywhere}\notherwise: ready\n";
    let parse = |text: &str| super::Profile::parse(text, std::path::Path::new("x.yaml"));
    parse(good).expect("a profile");
    for (wrong, field) in [
        (good.replace("mail for", "$(mail) for"), "nudge"),
        (good.replace("{mailbox}", "{mailbox} {mailbox}"), "nudge"),
        (format!("{good}enter_delay_ms: 60000\n"), "enter_delay_ms"),
        (format!("{good}enter_delay_ms: 20\npaste_delay_ms: 21\n"), "paste_delay_ms"),
        (format!("{good}key_gap_ms: 100\n"), "key_gap_ms"),
        (format!("{good}reset_pause_ms: 60000\n"), "reset_pause_ms"),
        (format!("{good}reset: 'rm -rf x'\n"), "reset"),
        (format!("{good}states: [{{state: busy, pattern: '('}}]\n"), "states[0].pattern"),
        (good.replace("anywhere", "prompt"), "composer.prompt"),
        (good.replace("anywhere", "box"), "composer.side"),
        (format!("{good}surprise: 1\n"), "line"),
        (String::new(), "line"),
    ] {
        let error = parse(&wrong).expect_err(&wrong).to_string();
        assert!(error.contains(&format!("x.yaml: {field}")) || error.contains("x.yaml"), "{error}");
    }
}
