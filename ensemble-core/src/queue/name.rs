//! What can name a mailbox.

use super::Mailbox;
use crate::Result;
use crate::message::Name;

mod sealed {
    pub trait Sealed {}
}

/// What names a mailbox, a holder or a sender: text, a [`Name`], or a [`Mailbox`]. Text is checked by the call
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
    &str: |name| Ok(Name::new(name)?);
    &&str: |name| Ok(Name::new(*name)?);
    String: |name| Ok(Name::new(name)?);
    &String: |name| Ok(Name::new(name.as_str())?);
    Name: |name| Ok(name);
    &Name: |name| Ok(name.clone());
    &Mailbox: |mailbox| Ok(mailbox.name().clone());
}
