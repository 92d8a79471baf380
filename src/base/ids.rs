//! Ids that are positions in a list, and lists that only their own ids index: the id of another list does not compile there.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

/// Declares an id, whose doc comment says of which list it is a position, and how long it is one.
#[macro_export]
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(usize);

        impl $name {
            /// The one at this position.
            #[inline]
            pub const fn new(index: usize) -> $name {
                $name(index)
            }

            /// Its position, for what shows it.
            #[inline]
            pub const fn index(self) -> usize {
                self.0
            }
        }

        impl From<usize> for $name {
            #[inline]
            fn from(index: usize) -> $name {
                $name(index)
            }
        }

        impl From<$name> for usize {
            #[inline]
            fn from(id: $name) -> usize {
                id.0
            }
        }
    };
}

/// A list of `T` whose positions are ids of the type `I`.
#[derive(Clone, Debug)]
pub struct IdVec<I, T> {
    list: Vec<T>,
    id: PhantomData<fn(I)>,
}

impl<I: From<usize> + Into<usize>, T> IdVec<I, T> {
    /// Every id of it, in order.
    #[inline]
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + use<I, T> {
        (0..self.list.len()).map(I::from)
    }

    /// Everything in it with its id, in order.
    pub fn with_ids(&self) -> impl Iterator<Item = (I, &T)> {
        self.ids().zip(&self.list)
    }

    /// What has this id, if the list is long enough.
    pub fn get(&self, id: I) -> Option<&T> {
        self.list.get(id.into())
    }

    /// The id of the first of which this is true.
    pub fn find_id(&self, is_it: impl FnMut(&T) -> bool) -> Option<I> {
        self.list.iter().position(is_it).map(I::from)
    }
}

impl<I: Into<usize>, T> Index<I> for IdVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        &self.list[id.into()]
    }
}

impl<I: Into<usize>, T> IndexMut<I> for IdVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.list[id.into()]
    }
}

impl<I, T> Deref for IdVec<I, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.list
    }
}

impl<I, T> DerefMut for IdVec<I, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.list
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(list: Vec<T>) -> IdVec<I, T> {
        IdVec { list, id: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<L: IntoIterator<Item = T>>(list: L) -> IdVec<I, T> {
        Vec::from_iter(list).into()
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> IdVec<I, T> {
        Vec::new().into()
    }
}

impl<'a, I, T> IntoIterator for &'a IdVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.list.iter()
    }
}
