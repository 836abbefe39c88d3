//! The configuration of a project over the one of its user.

/// Gives a part of the configuration `or`: what it leaves out is as in another configuration.
macro_rules! fill_absent {
    ($part:ident: $($field:ident),+) => {
        impl $part {
            pub(super) fn or(self, fallback: Self) -> Self {
                Self { $($field: self.$field.or(fallback.$field)),+ }
            }
        }
    };
}

pub(super) use fill_absent;
