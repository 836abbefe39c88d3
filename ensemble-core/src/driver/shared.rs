//! What a driver works with: owned jointly with its embedder, or borrowed from its caller.

use std::ops::Deref;
use std::sync::Arc;

pub(super) enum SharedRef<'a, T: ?Sized + 'a> {
    Owned(Arc<T>),
    Borrowed(&'a T),
}

impl<T: ?Sized> Deref for SharedRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Owned(target) => target,
            Self::Borrowed(target) => target,
        }
    }
}
