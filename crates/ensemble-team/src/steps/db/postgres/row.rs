//! Values and cells as the crate sends and reads them.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::super::{BindValue, DbError, DbResult, DbRow, RowCell};

type SentValue = Result<IsNull, Box<dyn Error + Sync + Send>>;
type ReadValue<T> = Result<T, Box<dyn Error + Sync + Send>>;

pub(super) struct PgRow(pub(super) Row);

impl DbRow for PgRow {
    fn cell(&self, column: usize) -> DbResult<RowCell<'_>> {
        let read = self.0.try_get::<_, FoundCell<'_>>(column);
        read.map(|found| found.0).map_err(|error| DbError::damaged(column, error))
    }
}

struct FoundCell<'r>(RowCell<'r>);

impl<'r> FromSql<'r> for FoundCell<'r> {
    fn from_sql(kind: &Type, raw: &'r [u8]) -> ReadValue<Self> {
        Ok(Self(match *kind {
            Type::BOOL => RowCell::Integer(bool::from_sql(kind, raw)?.into()),
            Type::INT2 => RowCell::Integer(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => RowCell::Integer(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => RowCell::Integer(i64::from_sql(kind, raw)?),
            _ => RowCell::Text(<&str>::from_sql(kind, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> ReadValue<Self> {
        Ok(Self(RowCell::Null))
    }

    fn accepts(kind: &Type) -> bool {
        let is_number = matches!(*kind, Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8);
        is_number || <&str as FromSql<'_>>::accepts(kind)
    }
}

/// PostgreSQL stores no zero byte in a text.
impl ToSql for BindValue<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> SentValue {
        match self {
            Self::Integer(number) => number.to_sql(kind, out),
            Self::Text(text) => {
                text.as_ref().map(|text| text.replace('\0', "\u{fffd}")).to_sql(kind, out)
            }
        }
    }

    fn accepts(kind: &Type) -> bool {
        <i64 as ToSql>::accepts(kind) || <&str as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}
