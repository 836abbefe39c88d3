//! Values that statements get, and rows that they return: whole numbers and texts, or nothing. Lists are JSON texts.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DbError, DbResult, DbRow};
use crate::proto::step::TddPhase;
use crate::steps::{PauseScope, Policy, StepKey};
use ensemble_core::message::Name;

const OTHER_TYPE: &str = "has another type";

/// A value of a statement. Its type is known even if it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::steps) enum BindValue<'v> {
    Integer(Option<i64>),
    Text(Option<Cow<'v, str>>),
}

pub(in crate::steps) trait BindParameter {
    const NONE: BindValue<'static>;

    fn bind(&self) -> BindValue<'_>;
}

macro_rules! bind_parameters {
    ($self:ident: $($kind:ty as $sort:ident($value:expr);)*) => {$(
        impl BindParameter for $kind {
            const NONE: BindValue<'static> = BindValue::$sort(None);

            fn bind(&$self) -> BindValue<'_> {
                BindValue::$sort(Some($value))
            }
        }
    )*};
}

bind_parameters! { self:
    str as Text(Cow::Borrowed(self));
    String as Text(Cow::Borrowed(self));
    Name as Text(Cow::Borrowed(self.as_str()));
    bool as Integer(i64::from(*self));
    u32 as Integer(i64::from(*self));
    i64 as Integer(*self);
    // A number beyond the largest of the database is stored as that.
    u64 as Integer(i64::try_from(*self).unwrap_or(i64::MAX));
    TddPhase as Integer(i64::from(self.rank()));
}

impl<T: Serialize> BindParameter for [T] {
    const NONE: BindValue<'static> = BindValue::Text(None);

    fn bind(&self) -> BindValue<'_> {
        let list = serde_json::to_string(self).unwrap_or_else(|_| "[]".to_owned());
        BindValue::Text(Some(Cow::Owned(list)))
    }
}

impl<T: Serialize> BindParameter for Vec<T> {
    const NONE: BindValue<'static> = BindValue::Text(None);

    fn bind(&self) -> BindValue<'_> {
        self.as_slice().bind()
    }
}

impl<T: BindParameter + ?Sized> BindParameter for &T {
    const NONE: BindValue<'static> = T::NONE;

    fn bind(&self) -> BindValue<'_> {
        (**self).bind()
    }
}

impl<T: BindParameter> BindParameter for Option<T> {
    const NONE: BindValue<'static> = T::NONE;

    fn bind(&self) -> BindValue<'_> {
        self.as_ref().map_or(T::NONE, BindParameter::bind)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::steps) enum RowCell<'r> {
    Null,
    Integer(i64),
    Text(&'r str),
}

impl<'r> RowCell<'r> {
    fn integer(self) -> Result<i64, String> {
        match self {
            RowCell::Integer(number) => Ok(number),
            RowCell::Null | RowCell::Text(_) => Err(OTHER_TYPE.to_owned()),
        }
    }

    fn text(self) -> Result<&'r str, String> {
        match self {
            RowCell::Text(text) => Ok(text),
            RowCell::Null | RowCell::Integer(_) => Err(OTHER_TYPE.to_owned()),
        }
    }
}

/// A type that a column is read as.
pub(in crate::steps) trait ColumnType: Sized {
    /// An error says what is wrong with the cell.
    fn from_cell(cell: RowCell<'_>) -> Result<Self, String>;
}

macro_rules! column_types {
    ($cell:ident: $($kind:ty = $value:expr;)*) => {$(
        impl ColumnType for $kind {
            fn from_cell($cell: RowCell<'_>) -> Result<Self, String> {
                $value
            }
        }
    )*};
}

column_types! { cell:
    String = cell.text().map(str::to_owned);
    Name = Self::new(cell.text()?).map_err(|error| error.to_string());
    bool = cell.integer().map(|number| number != 0);
    u32 = cell.integer()?.try_into().map_err(|_| OTHER_TYPE.to_owned());
    i64 = cell.integer();
    // A counter, which is never negative.
    u64 = cell.integer().map(|number| Self::try_from(number).unwrap_or(0));
    TddPhase = usize::try_from(cell.integer()?).ok().and_then(|rank| Self::ALL.get(rank).copied())
        .ok_or_else(|| OTHER_TYPE.to_owned());
    PauseScope = Ok(if cell.text()? == "step" { Self::Step } else { Self::Queue });
    Policy = Ok(if cell.text()? == "tdd" { Self::Tdd } else { Self::None });
}

impl<T: DeserializeOwned> ColumnType for Vec<T> {
    fn from_cell(cell: RowCell<'_>) -> Result<Self, String> {
        serde_json::from_str(cell.text()?).map_err(|error| error.to_string())
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    fn from_cell(cell: RowCell<'_>) -> Result<Self, String> {
        match cell {
            RowCell::Null => Ok(None),
            RowCell::Integer(_) | RowCell::Text(_) => T::from_cell(cell).map(Some),
        }
    }
}

/// The columns of a row, read one after the other.
pub(in crate::steps) struct RowColumns<'r> {
    row: &'r dyn DbRow,
    next: usize,
}

impl<'r> RowColumns<'r> {
    pub(super) const fn of(row: &'r dyn DbRow) -> Self {
        Self { row, next: 0 }
    }
}

/// A type that one or several columns are read as.
pub(in crate::steps) trait RowType: Sized {
    fn read(columns: &mut RowColumns<'_>) -> DbResult<Self>;
}

impl<T: ColumnType> RowType for T {
    fn read(columns: &mut RowColumns<'_>) -> DbResult<Self> {
        let column = columns.next;
        columns.next += 1;
        T::from_cell(columns.row.cell(column)?).map_err(|detail| DbError::damaged(column, detail))
    }
}

macro_rules! tuple_row_types {
    ($(($($part:ident),*))*) => {$(
        impl<$($part: RowType),*> RowType for ($($part,)*) {
            fn read(columns: &mut RowColumns<'_>) -> DbResult<Self> {
                Ok(($($part::read(columns)?,)*))
            }
        }
    )*};
}
tuple_row_types! { (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E, F) (A, B, C, D, E, F, G) }

/// Reads the columns of a struct in the order of these fields; those behind `;` are not columns.
macro_rules! row_type {
    ($kind:ident: $($field:ident),* $(; $($more:ident: $value:expr),*)?) => {
        impl $crate::steps::db::RowType for $kind {
            fn read(
                columns: &mut $crate::steps::db::RowColumns<'_>,
            ) -> $crate::steps::db::DbResult<Self> {
                Ok(Self {
                    $($field: $crate::steps::db::RowType::read(columns)?,)*
                    $($($more: $value,)*)?
                })
            }
        }
    };
}
pub(in crate::steps) use row_type;

row_type! { StepKey: task_id, step_index }
