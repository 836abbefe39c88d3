//! Requests on a real file system and on a real server, one promise a test. Also a team of a
//! hundred over a modelled file system.

mod bed;
mod files;
mod gates;
mod messages;
mod servers;

/// One test of every promise that both ledgers keep.
macro_rules! promises {
    ($ledger:ident, $bed:expr; $($file:ident: $($promise:ident),+;)+) => {
        mod $ledger {
            $($(
                #[test]
                fn $promise() {
                    super::$file::$promise(&$bed);
                }
            )+)+
        }
    };
}

macro_rules! all_promises {
    ($ledger:ident, $bed:expr) => {
        promises! { $ledger, $bed;
            files: an_id_has_eight_characters_as_in_the_seed_and_none_comes_twice,
                a_chosen_id_is_one_request_however_often_it_is_asked,
                the_first_answer_stands_and_later_ones_hear_who_what_and_when,
                only_the_addressee_decides_and_only_the_requester_takes_it_back,
                who_is_asked_must_have_a_mailbox_and_who_asks_need_not;
            gates: a_gated_task_is_passed_over_until_its_plan_is_approved,
                a_gate_keeps_only_its_own_agent_from_its_own_task,
                a_rejection_opens_the_next_round_with_its_feedback,
                a_held_gated_task_is_not_settled_but_extended_and_given_back,
                a_question_is_not_settled_before_it_is_decided,
                the_same_plan_is_submitted_once_and_another_one_waits_for_the_answer,
                tasks_whose_ids_are_no_names_have_gates_too;
            messages: a_request_and_its_response_have_the_seeds_fields,
                reminders_are_sent_once_each_and_not_after_the_answer,
                a_silent_request_ends_at_its_deadline_and_the_conductor_learns_of_an_unreviewed_plan,
                a_cancelled_request_is_taken_out_of_the_mailbox_or_taken_back,
                a_request_without_a_meaning_ends_and_an_expiry_before_its_time_is_not_written,
                messages_of_other_programs_ask_and_answer_in_either_spelling,
                an_answer_whose_sender_is_only_stated_decides_nothing_and_is_recorded,
                an_answer_before_its_question_and_what_is_no_answer_change_nothing,
                our_own_messages_are_not_taken_for_new_ones;
        }
    };
}

all_promises!(directory, crate::requests::bed::Bed::new());
all_promises!(on_servers, crate::requests::bed::Bed::on_servers());
