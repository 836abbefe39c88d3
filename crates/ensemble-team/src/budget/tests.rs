use ensemble_core::message::Timestamp;
use ensemble_core::proto::testing::name;

use super::*;
use ensemble_usage::{Prices, Tokens, UsageEntry, UsageEvent};

fn usd(usd: f64) -> BudgetLimit {
    BudgetLimit { usd: Some(usd), tokens: None }
}

/// Usage that cost `usd`: one million tokens at that price.
fn spent(usd: f64) -> UsageTotals {
    let prices = format!("as_of: now\nmodels:\n  - {{model: m, input: {usd:?}, output: 0}}\n");
    let prices = Prices::parse(&prices, "prices.yaml".as_ref()).unwrap();
    let tokens = Tokens { input: 1_000_000, ..Tokens::default() };
    let what = UsageEvent::Request { model: "m".to_owned(), tokens, cost_usd: None };
    let mut spent = UsageTotals::default();
    spent.add([&UsageEntry { at: Timestamp::from_unix_millis(0), what }], &prices);
    spent
}

fn over(budgets: &ProjectBudgets) -> Vec<String> {
    let agents = [(name("w1"), spent(2.0)), (name("w2"), spent(5.0))].into_iter().collect();
    let tasks = [("t1".to_owned(), spent(3.0))].into_iter().collect();
    budgets.over(&agents, &tasks).iter().map(|over| over.scope.to_string()).collect()
}

#[test]
fn a_limit_is_reached_by_what_its_scope_has_used() {
    let mut budgets = ProjectBudgets::default();
    assert!(budgets.are_none());
    assert_eq!(over(&budgets), [""; 0]);
    budgets.team = usd(7.0);
    assert!(!budgets.are_none());
    assert_eq!(over(&budgets), ["the team"]);
    budgets.team = usd(7.01);
    budgets.agent = usd(2.0);
    assert_eq!(over(&budgets), ["agent w1", "agent w2"]);
    budgets.agents.insert(name("w2"), usd(6.0));
    assert_eq!(over(&budgets), ["agent w1"]);
    budgets.task = BudgetLimit { usd: None, tokens: Some(1_000_000) };
    assert_eq!(over(&budgets), ["agent w1", "task t1"]);
    budgets.allowed.insert(BudgetScope::Agent(name("w1")), usd(0.5));
    let tokens = BudgetLimit { usd: None, tokens: Some(1) };
    budgets.allowed.insert(BudgetScope::Task("t1".to_owned()), tokens);
    assert_eq!(over(&budgets), [""; 0]);
    // More dollars do not help against a limit in tokens.
    budgets.allowed.insert(BudgetScope::Task("t1".to_owned()), usd(100.0));
    assert_eq!(over(&budgets), ["task t1"]);
}

#[test]
fn what_is_parked_stands_in_the_way_until_more_is_allowed() {
    let home = tempfile::tempdir().unwrap();
    let file = BudgetFile::open(home.path());
    let is_free = |task, agent| file.obstacle(task, &name(agent)).unwrap().is_none();
    assert!(is_free(Some("t1"), "w1"), "there is no file");
    let overrun = |scope: &BudgetScope, limit| {
        let (scope, limit) = (scope.clone(), usd(limit));
        BudgetOverrun { scope, limit, used: usd(9.0) }
    };
    let (agent, task) = (BudgetScope::Agent(name("w1")), BudgetScope::Task("t1".to_owned()));
    let now = Timestamp::from_unix_millis(1_000);
    let park = |over: Vec<BudgetOverrun>, now: Timestamp| {
        let mut locked = file.lock().unwrap();
        let new = locked.park(over, now);
        locked.write().unwrap();
        new.len()
    };
    assert_eq!(park(vec![overrun(&agent, 1.0), overrun(&task, 1.0)], now), 2);
    assert_eq!([is_free(None, "w1"), is_free(Some("t1"), "w2")], [false, false]);
    assert_eq!([is_free(None, "w2"), is_free(Some("t2"), "w2")], [true, true]);
    // The next look sees the same, and one of them has ended.
    let later = Timestamp::from_unix_millis(2_000);
    assert_eq!(park(vec![overrun(&agent, 1.0)], later), 0);
    assert_eq!(file.parked().unwrap()[0].since, now);
    assert!(is_free(Some("t1"), "w2"));

    let mut locked = file.lock().unwrap();
    locked.allow(&agent, usd(2.0));
    locked.allow(&agent, BudgetLimit { usd: Some(0.5), tokens: Some(7) });
    locked.write().unwrap();
    assert!(is_free(None, "w1"));
    let locked = file.lock().unwrap();
    let more = BudgetLimit { usd: Some(2.5), tokens: Some(7) };
    assert_eq!(locked.allowed().collect::<Vec<_>>(), [(agent.clone(), more)]);
    drop(locked);
    // It is not enough: that is another overrun.
    let over = vec![overrun(&agent, 3.5), overrun(&BudgetScope::Team, 1.0)];
    assert_eq!(park(over, later), 2);
    assert!(!is_free(None, "w2"), "the team is parked");
}

#[test]
fn a_damaged_file_is_said() {
    let home = tempfile::tempdir().unwrap();
    for content in ["", "[]", "{\"version\": 9}", "{\"parked\": [{\"scope\": \"moon\"}]}"] {
        std::fs::write(home.path().join("budget.json"), content).unwrap();
        let file = BudgetFile::open(home.path());
        assert!(file.parked().is_err(), "{content}");
        assert!(file.lock().is_err(), "{content}");
        assert_eq!(file.obstacle(None, &name("w1")).unwrap(), None, "{content}");
    }
}
