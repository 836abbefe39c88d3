//! Setters that the options of queues, boards, step queues, worktrees and servers share.

/// Writes the setters of fields that the options of every store have: `durability`, `recorder`,
/// `clock` and `patience`. Name the type and those of the fields that it has.
#[doc(hidden)]
#[macro_export]
macro_rules! shared_setters {
    ($options:ty: $($field:ident),+) => {
        impl $options {
            $($crate::shared_setters!(@ $field);)+
        }
    };
    (@ durability) => {
        #[must_use]
        pub const fn with_durability(
            mut self,
            durability: $crate::durable::Durability,
        ) -> Self {
            self.durability = durability;
            self
        }
    };
    (@ recorder) => {
        #[must_use]
        pub fn with_recorder(
            mut self,
            recorder: std::sync::Arc<dyn $crate::event_log::Recorder>,
        ) -> Self {
            self.recorder = recorder;
            self
        }
    };
    (@ clock) => {
        #[must_use]
        pub fn with_clock(
            mut self,
            clock: std::sync::Arc<dyn $crate::env::Clock + Send + Sync>,
        ) -> Self {
            self.clock = clock;
            self
        }
    };
    (@ patience) => {
        #[must_use]
        pub const fn with_patience(mut self, patience: std::time::Duration) -> Self {
            self.patience = patience;
            self
        }
    };
}
