//! The databases over which the tests run.

use std::path::Path;

use ensemble_core::durable::Durability;

#[cfg(feature = "postgres")]
use super::{PostgresOptions, name};
use super::{StepOptions, StepStore};

#[cfg(feature = "postgres")]
#[path = "../../../../../tests/support/postgres.rs"]
mod postgres_support;

macro_rules! over_databases {
    ($($test:ident),* $(,)?) => {
        mod over_sqlite {
            $(#[test] fn $test() { $crate::steps::tests::databases::over($crate::steps::tests::databases::Kind::Sqlite, super::$test); })*
        }
        #[cfg(feature = "postgres")]
        mod over_postgres {
            $(#[test] fn $test() { $crate::steps::tests::databases::over($crate::steps::tests::databases::Kind::Postgres, super::$test); })*
        }
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
}

thread_local! {
    /// The database of the test that this thread runs.
    static KIND: std::cell::Cell<Kind> = const { std::cell::Cell::new(Kind::Sqlite) };
}

pub(super) fn over(kind: Kind, test: fn()) {
    KIND.set(kind);
    test();
}

/// A smaller number over a server, where each statement costs a round trip.
pub(super) fn fewer(number: u32) -> u32 {
    if KIND.get() == Kind::Sqlite { number } else { number / 6 }
}

/// Opens the database of a directory; a server has a schema for each.
pub(super) fn open_with(home: &Path, options: StepOptions) -> StepStore {
    let options = options.with_durability(Durability::Process);
    match KIND.get() {
        Kind::Sqlite => StepStore::open(&home.join("steps.db"), options).unwrap(),
        #[cfg(feature = "postgres")]
        Kind::Postgres => {
            let cluster = postgres_support::Cluster::shared();
            let team = name(&postgres_support::team_of(home));
            let server = PostgresOptions::new(&cluster.address(), &team).unwrap();
            StepStore::on_server(server, options)
        }
    }
}
