//! A supervisor over a board that the hosts share.

use ensemble_core::document::SharedFiles;

use crate::memory::Memory;

use super::*;

const ME: &str = "planner-1";

/// Says how often the agent was registered, and has enough once it is.
#[derive(Default)]
struct UntilRegistered {
    said: Vec<String>,
}

impl SupervisorServices for UntilRegistered {
    fn rest(&mut self, limit: Duration) {
        driver::nap(limit);
    }
    fn is_over(&mut self) -> bool {
        self.said.iter().any(|line| line.contains("is registered"))
    }
    fn print_line(&mut self, line: &str) {
        self.said.push(line.to_owned());
    }
}

#[test]
fn a_registration_that_was_stored_without_an_answer_is_its_own_and_is_made_anew() {
    let home = tempfile::tempdir().unwrap();
    let files = Arc::new(Memory::default());
    let shared: Arc<dyn SharedFiles> = Arc::<Memory>::clone(&files);
    let mut options = BoardOptions::new(ME);
    (options.copy, options.shared) = (Some(home.path().join(".ensemble/copy")), Some(shared));
    let board = Board::create_shared(home.path(), options).unwrap();
    files.answer_no_write_of("role: planner");
    let mut order = SuperviseOrder::new(name(ME), BoardRole::Planner, vec!["true".to_owned()]);
    order.pace.poll = Duration::from_millis(50);
    let mut here = UntilRegistered::default();
    supervise(&board, None, &order, &mut here).unwrap();
    let failed = here.said.iter().filter(|line| line.contains("cannot register")).count();
    assert_eq!(failed, 1, "{:?}", here.said);
    assert!(board.read().unwrap().agents.is_empty(), "it leaves no registration behind");
}
