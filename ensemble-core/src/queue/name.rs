//! Types that can name a mailbox.

use super::Mailbox;
use crate::message::{Name, NameError};
use crate::{Error, Result};

mod sealed {
    pub trait Sealed {}
}

/// A type that names a mailbox, a holder or a sender: text, a [`Name`], or a [`Mailbox`]. Text is checked by the call
/// that takes it. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a mailbox",
    label = "give text or a `Name`"
)]
pub trait IntoName: sealed::Sealed {
    /// Checks the name.
    ///
    /// # Errors
    /// See [`NameError`](crate::message::NameError).
    #[doc(hidden)]
    fn into_name(self) -> Result<Name>;
}

/// A mistake in a name, as a caller of the face can match it.
pub(super) fn invalid_name(error: NameError) -> Error {
    Error::invalid("a name", "name", error.to_string())
}

macro_rules! into_name {
    ($($type:ty: |$this:ident| $name:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl IntoName for $type {
            fn into_name(self) -> Result<Name> {
                let $this = self;
                $name
            }
        }
    )*};
}

into_name! {
    &str: |name| Name::new(name).map_err(invalid_name);
    &&str: |name| Name::new(*name).map_err(invalid_name);
    String: |name| Name::new(name).map_err(invalid_name);
    &String: |name| Name::new(name.as_str()).map_err(invalid_name);
    Name: |name| Ok(name);
    &Name: |name| Ok(name.clone());
    &Mailbox: |mailbox| Ok(mailbox.name().clone());
}
