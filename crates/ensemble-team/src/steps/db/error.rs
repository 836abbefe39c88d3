//! What a database answers in the place of rows.

use std::path::Path;

use ensemble_core::Error;

use super::sqlite;
use crate::steps::StepError;

pub(in crate::steps) type DbResult<T> = Result<T, DbError>;

#[derive(Debug, thiserror::Error)]
pub(in crate::steps) enum DbError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] super::postgres::PgError),
    #[error("column {column} {detail}")]
    Damaged { column: usize, detail: String },
    #[error("a row is missing")]
    NoRow,
}

impl DbError {
    pub(in crate::steps) fn damaged(column: usize, detail: impl std::fmt::Display) -> Self {
        Self::Damaged { column, detail: detail.to_string() }
    }

    pub(in crate::steps) fn into_error(self, operation: &'static str, path: &Path) -> Error {
        match self {
            Self::Sqlite(error) => sqlite::failed(operation, path, &error),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => {
                let (path, detail, transient) =
                    (path.to_owned(), error.to_string(), error.is_transient());
                match error {
                    super::postgres::PgError::Unanswered(_) => {
                        StepError::Unanswered { operation, path, detail }.into()
                    }
                    _ => StepError::Database { operation, path, detail, transient }.into(),
                }
            }
            Self::Damaged { .. } | Self::NoRow => {
                let (path, detail) = (path.to_owned(), self.to_string());
                StepError::Database { operation, path, detail, transient: false }.into()
            }
        }
    }
}
