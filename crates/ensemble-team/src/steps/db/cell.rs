//! Values that statements get, and cells that rows have: whole numbers and texts, or nothing.

use std::borrow::Cow;

/// A value of a statement. Its type is known even if it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::steps) enum Value<'v> {
    Integer(Option<i64>),
    Text(Option<Cow<'v, str>>),
}

/// A type that can be a value of a statement.
pub(in crate::steps) trait Bind {
    /// The value that stands for none.
    const NONE: Value<'static>;

    fn bind(&self) -> Value<'_>;
}

impl Bind for str {
    const NONE: Value<'static> = Value::Text(None);

    fn bind(&self) -> Value<'_> {
        Value::Text(Some(Cow::Borrowed(self)))
    }
}

impl Bind for String {
    const NONE: Value<'static> = Value::Text(None);

    fn bind(&self) -> Value<'_> {
        self.as_str().bind()
    }
}

impl Bind for i64 {
    const NONE: Value<'static> = Value::Integer(None);

    fn bind(&self) -> Value<'_> {
        Value::Integer(Some(*self))
    }
}

/// A number beyond the largest of the database is stored as that.
impl Bind for u64 {
    const NONE: Value<'static> = Value::Integer(None);

    fn bind(&self) -> Value<'_> {
        Value::Integer(Some(Self::min(*self, i64::MAX as Self) as i64))
    }
}

macro_rules! bind_as_integer {
    ($($kind:ty),*) => {$(
        impl Bind for $kind {
            const NONE: Value<'static> = Value::Integer(None);

            fn bind(&self) -> Value<'_> {
                Value::Integer(Some(i64::from(*self)))
            }
        }
    )*};
}
bind_as_integer!(bool, u8, u32);

impl<T: Bind + ?Sized> Bind for &T {
    const NONE: Value<'static> = T::NONE;

    fn bind(&self) -> Value<'_> {
        (**self).bind()
    }
}

impl<T: Bind> Bind for Option<T> {
    const NONE: Value<'static> = T::NONE;

    fn bind(&self) -> Value<'_> {
        self.as_ref().map_or(T::NONE, Bind::bind)
    }
}

/// A cell of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::steps) enum Cell<'r> {
    Null,
    Integer(i64),
    Text(&'r str),
}

/// A type that a column is read as; `None` if the cell has another.
pub(in crate::steps) trait Column: Sized {
    fn from_cell(cell: &Cell<'_>) -> Option<Self>;
}

impl Column for String {
    fn from_cell(cell: &Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some((*text).to_owned()),
            Cell::Null | Cell::Integer(_) => None,
        }
    }
}

impl Column for i64 {
    fn from_cell(cell: &Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Integer(number) => Some(*number),
            Cell::Null | Cell::Text(_) => None,
        }
    }
}

impl Column for u32 {
    fn from_cell(cell: &Cell<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl Column for u8 {
    fn from_cell(cell: &Cell<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl Column for bool {
    fn from_cell(cell: &Cell<'_>) -> Option<Self> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl<T: Column> Column for Option<T> {
    fn from_cell(cell: &Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            Cell::Integer(_) | Cell::Text(_) => T::from_cell(cell).map(Some),
        }
    }
}
