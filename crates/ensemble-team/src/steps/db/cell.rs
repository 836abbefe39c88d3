//! Values that statements get, and cells that rows have: whole numbers and texts, or nothing.

use std::borrow::Cow;

/// A value of a statement. Its type is known even if it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::steps) enum BindValue<'v> {
    Integer(Option<i64>),
    Text(Option<Cow<'v, str>>),
}

/// A type that can be a value of a statement.
pub(in crate::steps) trait BindParameter {
    const NONE: BindValue<'static>;

    fn bind(&self) -> BindValue<'_>;
}

impl BindParameter for str {
    const NONE: BindValue<'static> = BindValue::Text(None);

    fn bind(&self) -> BindValue<'_> {
        BindValue::Text(Some(Cow::Borrowed(self)))
    }
}

impl BindParameter for String {
    const NONE: BindValue<'static> = BindValue::Text(None);

    fn bind(&self) -> BindValue<'_> {
        self.as_str().bind()
    }
}

impl BindParameter for i64 {
    const NONE: BindValue<'static> = BindValue::Integer(None);

    fn bind(&self) -> BindValue<'_> {
        BindValue::Integer(Some(*self))
    }
}

/// A number beyond the largest of the database is stored as that.
impl BindParameter for u64 {
    const NONE: BindValue<'static> = BindValue::Integer(None);

    fn bind(&self) -> BindValue<'_> {
        BindValue::Integer(Some(Self::min(*self, i64::MAX as Self) as i64))
    }
}

macro_rules! bind_as_integer {
    ($($kind:ty),*) => {$(
        impl BindParameter for $kind {
            const NONE: BindValue<'static> = BindValue::Integer(None);

            fn bind(&self) -> BindValue<'_> {
                BindValue::Integer(Some(i64::from(*self)))
            }
        }
    )*};
}
bind_as_integer!(bool, u8, u32);

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

/// A type that a column is read as; `None` if the cell has another.
pub(in crate::steps) trait ColumnType: Sized {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self>;
}

impl ColumnType for String {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self> {
        match cell {
            RowCell::Text(text) => Some((*text).to_owned()),
            RowCell::Null | RowCell::Integer(_) => None,
        }
    }
}

impl ColumnType for i64 {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self> {
        match cell {
            RowCell::Integer(number) => Some(*number),
            RowCell::Null | RowCell::Text(_) => None,
        }
    }
}

impl ColumnType for u32 {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl ColumnType for u8 {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl ColumnType for bool {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    fn from_cell(cell: &RowCell<'_>) -> Option<Self> {
        match cell {
            RowCell::Null => Some(None),
            RowCell::Integer(_) | RowCell::Text(_) => T::from_cell(cell).map(Some),
        }
    }
}
