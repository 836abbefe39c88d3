//! Why a server did not do what it was asked.

use std::error::Error;
use std::io::{self, ErrorKind};

/// What the crate says of a server that asks for a password.
const NO_PASSWORD: &str = "password missing";
/// What the crate says of a server without encryption.
const NO_TLS: &str = "server does not support TLS";

/// SQLSTATE codes, or the classes that they begin with, after which a repetition may succeed.
const PASSING: [&str; 9] = [
    "08",    // the connection
    "40",    // a deadlock, or a conflict of transactions
    "53",    // no connection, no memory, no disk is left
    "55P03", // another process holds the lock for too long
    "57014", // the statement took too long
    "57P01", // the server stops
    "57P02", // the server crashed
    "57P03", // the server starts
    "25P03", // the transaction was idle for too long
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::steps) enum PgError {
    #[error("{message} ({code}){}", advice(code))]
    Refused { code: String, message: String },
    #[error("{0}")]
    Away(String),
    #[error("{0}")]
    Unusable(String),
    #[error("no answer to the commit: {0}")]
    Unanswered(String),
}

impl PgError {
    pub(super) fn away(error: impl std::fmt::Display) -> Self {
        Self::Away(error.to_string())
    }

    pub(super) fn of(error: tokio_postgres::Error) -> Self {
        if let Some(refused) = error.as_db_error() {
            let (code, message) = (refused.code().code().to_owned(), refused.message().to_owned());
            return Self::Refused { code, message };
        }
        match error.is_closed() || io_kind(&error).is_some() {
            true => Self::Away(chain(&error)),
            false => Self::Unusable(chain(&error)),
        }
    }

    /// The error of the beginning; `lacking` is why there is no password.
    pub(super) fn of_connecting(error: tokio_postgres::Error, lacking: Option<String>) -> Self {
        match (chain(&error), lacking) {
            (text, Some(lacking)) if text.contains(NO_PASSWORD) => Self::Unusable(lacking),
            (text, _) if text.contains(NO_TLS) => Self::Unusable(format!(
                "{text} (switch it on there, or write `?sslmode=disable` behind the address)"
            )),
            // What TLS refuses.
            (text, _) if io_kind(&error) == Some(ErrorKind::InvalidData) => Self::Unusable(text),
            _ => Self::of(error),
        }
    }

    pub(in crate::steps) fn is_transient(&self) -> bool {
        match self {
            Self::Refused { code, .. } => PASSING.iter().any(|class| code.starts_with(class)),
            Self::Away(_) | Self::Unanswered(_) => true,
            Self::Unusable(_) => false,
        }
    }

    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { code, .. } => code.starts_with("57P") || code == "25P03",
            Self::Away(_) | Self::Unusable(_) | Self::Unanswered(_) => true,
        }
    }
}

fn advice(code: &str) -> &'static str {
    match code {
        "28P01" | "28000" => " (check the user and the password's file)",
        "3D000" => " (make it: `createdb`)",
        "42501" => " (the user must own the schema, or may create one in the database)",
        _ => "",
    }
}

/// An error with its causes: the crate's own text names only the occasion.
pub(super) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn io_kind(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    std::iter::successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref::<io::Error>().map(io::Error::kind))
}
