//! The contract of a queue for every implementation, one promise a function.
//!
//! `conformance!(module, factory)` makes a test of each for the queues that `factory` makes.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod bed;
pub mod letters;
pub mod order;
pub mod ownership;
pub mod storing;

/// Makes a test of every promise.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $factory:expr) => {
        mod $module {
            use super::*;
            use $crate::conformance::{letters, order, ownership, storing};

            $crate::conformance_tests! { $factory;
                storing: an_id_is_stored_once, an_id_is_not_taken_twice,
                    an_id_stays_taken_when_it_is_settled,
                    a_message_keeps_every_field, concurrent_retries_of_one_id_store_it_once,
                    an_unknown_mailbox_is_an_error, a_full_mailbox_refuses.with_capacity(2),
                    a_full_mailbox_refuses_a_crowd.with_capacity(5),
                    names_with_dots_are_kept_apart, a_message_that_is_too_large_is_refused,
                    content_of_every_size_is_attached, a_sender_has_its_share_of_bytes,
                    what_is_stored_is_recorded, every_state_is_counted;
                order: the_oldest_comes_first, the_most_urgent_comes_first,
                    a_released_message_comes_first,
                    one_particular_message_is_taken_out_of_turn,
                    a_delayed_message_comes_when_it_is_due, an_expired_message_is_not_delivered,
                    unfinished_messages_are_listed_in_the_order_of_receiving,
                    nothing_is_delivered_twice_to_a_crowd;
                ownership: a_message_has_one_holder, a_settled_message_is_done,
                    a_late_holder_is_fenced, a_released_message_fences_its_old_holder,
                    a_silent_holder_loses_its_message, an_extended_lease_holds,
                    a_lease_can_be_used_elsewhere, another_holder_cannot_use_a_lease,
                    a_report_ends_its_task_wherever_the_message_lies;
                letters: a_message_that_always_fails_is_buried, a_buried_message_says_why,
                    a_redriven_message_has_all_its_attempts.with_attempts_max(2),
                    a_silent_holder_uses_up_an_attempt.with_attempts_max(1).with_lease_seconds(10),
                    a_redriven_message_comes_first, a_task_that_expires_has_failed_with_its_holder,
                    only_a_dead_letter_is_redriven;
            }
        }
    };
}

/// One test for each named promise, whose mailbox may have its own settings.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr; $($file:ident: $($promise:ident $(.$with:ident($value:expr))*),+;)+) => {
        $($(
            #[test]
            fn $promise() {
                let settings = ensemble_core::spool::Settings::default()$(.$with($value))*;
                $file::$promise(&$factory(&settings));
            }
        )+)+
    };
}
